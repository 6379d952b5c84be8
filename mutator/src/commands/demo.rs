//! `demo`: the live view of a small program, which is this executable in another process.

use crate::commands::failures::SessionFailure;
use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::live::{AtEnd, Live};
use super::measure::check;
use super::output::print_data;
use super::watch::{Watch, hold, watch};
use crate::cli::{Patterns, Show};
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_session::metric::Metric;
use ipath_session::session::{Options, Session, SessionError, Where, select_in};
use ipath_target::process::{Pid, Process};

const OPERATION: &str = "demo";
const FUNCTION: &str = "demo_find";

/// The duration if there is no terminal on which to press `q`.
const WITHOUT_TERMINAL: Duration = Duration::from_secs(5);

/// Starts the program and watches it.
pub(super) fn demo(show: &Show) -> Result<(), Failure> {
    let output = Watch::new(show)?.of_demo();
    let mut show = show.clone();
    if !output.is_view() {
        show.duration.get_or_insert(WITHOUT_TERMINAL);
    }
    let signals = hold(OPERATION)?;
    let started = start()?;
    let failure = |e: SessionError| e.failure(OPERATION, &started.process);
    let patterns = super::measure::patterns(OPERATION, &[FUNCTION.to_owned()])?;
    let options = Options {
        metrics: vec![Metric::Wall],
        ..Options::default()
    };
    let selected = select_in(&started.process, &patterns, options.wanted()).map_err(failure)?;
    let given = Patterns {
        edges: Vec::new(),
        loops: Vec::new(),
        paths: Vec::new(),
        at: Vec::new(),
        func: Vec::new(),
        inlined: false,
        timed: Vec::new(),
        yes: false,
        allow_trap: false,
    };
    check(OPERATION, FUNCTION, &given, &selected.selection, false)?;
    let (session, _) =
        Session::create(&started.process, &options, selected, Where::Running).map_err(failure)?;
    let live = Live::new(session, AtEnd::TakeOut);
    watch(&output, &show, live, signals, &[])
}

/// The demo program. Dropping this ends it.
struct Started {
    child: Child,
    process: Process,
}

impl Drop for Started {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start() -> Result<Started, Failure> {
    let failure = |e: std::io::Error| Failure::new(OPERATION, "start", io_text(&e));
    let own = std::env::current_exe().map_err(failure)?;
    let mut command = Command::new(own);
    command
        .arg("demo-target")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failure)?;
    let mut ready = [0; 1];
    if let Some(out) = &mut child.stdout {
        out.read_exact(&mut ready).map_err(failure)?;
    }
    let process = Process::find(Pid(child.id() as i32));
    let process = process.map_err(|e| Failure::of(OPERATION, e))?;
    Ok(Started { child, process })
}

/// Runs the demo program: a catalogue with lookups on several paths, of which one is needlessly
/// slow.
pub(super) fn target() -> Result<(), Failure> {
    print_data(b".")?;
    std::thread::spawn(|| {
        // The watcher holds the other end of the pipe. Once it is closed, the program ends.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let catalogue: Vec<u64> = (0..4096).map(|n| n * 7919 % 65_537).collect();
    let mut seed = 1;
    loop {
        let start = Instant::now();
        demo_serve_page(&catalogue, &mut seed);
        demo_serve_page(&catalogue, &mut seed);
        demo_rebuild_index(&catalogue, &mut seed);
        std::thread::sleep(Duration::from_millis(2).saturating_sub(start.elapsed()));
    }
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// The measured function: a linear search for `wanted` over the first `len` entries. Returns the
/// index of the entry, or `len` if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demo_find(catalogue: &u64, len: usize, wanted: u64) -> usize {
    // SAFETY: callers pass the first element of a slice and at most its length.
    let catalogue = unsafe { std::slice::from_raw_parts(catalogue, len) };
    catalogue
        .iter()
        .position(|&c| black_box(c) == wanted)
        .unwrap_or(len)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demo_check_price(catalogue: &Vec<u64>, seed: &mut u64) -> usize {
    black_box(demo_find(&catalogue[0], 64, next(seed)))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demo_check_stock(catalogue: &Vec<u64>, seed: &mut u64) -> usize {
    black_box(demo_find(&catalogue[0], 256, next(seed)))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demo_serve_page(catalogue: &Vec<u64>, seed: &mut u64) {
    for _ in 0..black_box(8) {
        black_box(demo_check_price(catalogue, seed) + demo_check_stock(catalogue, seed));
    }
}

/// Searches the whole catalogue although a part would suffice. The view should reveal this path.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn demo_rebuild_index(catalogue: &Vec<u64>, seed: &mut u64) {
    for _ in 0..black_box(4) {
        black_box(demo_find(&catalogue[0], catalogue.len(), next(seed)));
    }
}
