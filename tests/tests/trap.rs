//! Breakpoints for functions without room for a jump: opt-in, disclosed, exact, and gone
//! afterwards.
//!
//! The program has a fixed address that is so low that no punned jump has a target.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const FUNCTIONS: [&str; 3] = ["tiny_one", "tiny_two", "tiny_four"];

fn patterns() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().flat_map(|f| ["-f", *f])
}

#[test]
fn trap_counts_every_call_and_is_noted() {
    let program = program_with("trap.c", &["-no-pie"]);
    let scratch = Scratch::new("trap");
    let file = scratch.file("p.json");
    let ours = Run::ipath(["run", "--no-tui", "--allow-trap", "-o"])
        .arg(&file)
        .args(patterns())
        .arg("--")
        .arg(&program)
        .arg("2000")
        .run()
        .expect(0);
    assert!(
        ours.stdout.starts_with("ok calls 6000\n"),
        "{}",
        ours.report()
    );
    let profile = Profile::read(&file);
    let by_trap = |f: &&&str| {
        let function = profile.function(f).expect("instrumented");
        function.entry == "trap" || function.exits.iter().any(|e| e == "trap")
    };
    let trapped: Vec<&&str> = FUNCTIONS.iter().filter(by_trap).collect();
    assert!(!trapped.is_empty(), "all have room");
    for name in FUNCTIONS {
        assert_eq!(profile.calls(name), 6000, "{name}");
    }
    for name in trapped {
        let said = format!("{name}: instrumented by breakpoints");
        assert!(ours.stderr.contains(&said), "{}", ours.report());
    }
    profile.assert_lossless();
}

/// Twenty sessions with breakpoints leave the process unchanged.
#[test]
fn trap_comes_and_goes() {
    let target =
        Target::start(program_with("trap.c", &["-no-pie"]), ["0", "120"]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let scratch = Scratch::new("trap-attach");
    let file = scratch.file("p.json");
    for _ in 0..20 {
        Run::ipath([
            "attach",
            &pid,
            "--no-tui",
            "--allow-trap",
            "--duration",
            "20ms",
            "-o",
        ])
        .arg(&file)
        .args(patterns())
        .run()
        .expect(0);
        assert!(Profile::read(&file).calls("tiny_one") > 0);
        before.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}

/// A program whose other threads block SIGTRAP during the calls.
fn masking(how: &str) -> Target {
    Target::start(program_with("trap_masks.c", &["-no-pie"]), [how]).await_output("ready")
}

fn attach(target: &Target) -> Run {
    let pid = target.pid().to_string();
    let options = ["--no-tui", "--allow-trap", "-f", "tiny_four"];
    Run::ipath(["attach", &pid]).args(options)
}

/// Attaching with breakpoints succeeds beside threads that are created. All signals are blocked in
/// them meanwhile, and while the runtime records a first call.
#[test]
fn trap_beside_threads_that_are_made() {
    attach_often_to(masking("makes"));
}

/// Attaching with breakpoints succeeds beside threads that end. All signals are blocked in them
/// except one of the C library's.
#[test]
fn trap_beside_threads_that_end() {
    attach_often_to(masking("ends"));
}

fn attach_often_to(target: Target) {
    for _ in 0..15 {
        attach(&target).args(["--duration", "5ms"]).run().expect(0);
    }
    target.finish("ok calls ");
}

#[test]
fn no_trap_where_a_thread_blocks_it() {
    let target = masking("blocks");
    let before = ProcessState::of(target.pid());
    let line = attach(&target).run().expect_error();
    let why = format!(
        "thread {} blocks SIGTRAP: a breakpoint would end the program",
        target.pid()
    );
    assert!(line.contains(&why), "{line}");
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

/// Without `--allow-trap` no breakpoint is used.
#[test]
fn no_trap_unasked() {
    let target =
        Target::start(program_with("trap.c", &["-no-pie"]), ["0", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let scratch = Scratch::new("trap-unasked");
    let file = scratch.file("p.json");
    let attached = Run::ipath(["attach", &pid, "--no-tui", "--duration", "20ms", "-o"])
        .arg(&file)
        .args(patterns())
        .run();
    if attached.code() == 0 {
        let profile = Profile::read(&file);
        let functions = profile.functions.iter();
        let mut tactics = functions.flat_map(|f| f.exits.iter().chain([&f.entry]));
        assert!(tactics.all(|t| t != "trap"), "{:?}", profile.functions);
    } else {
        let line = attached.expect_error();
        assert!(
            line.contains("none of the functions can be patched"),
            "{line}"
        );
    }
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

/// The program's own handler is called through the runtime's handler, and returns after that has
/// been removed.
#[test]
fn trap_detach_amid_own_handler() {
    let scratch = Scratch::new("trap-own");
    let gate = scratch.file("gate");
    let program = program_with("trap_handler.c", &["-no-pie"]);
    let mut target = Target::start(program, [&gate]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let attach = ["attach", &pid, "--no-tui", "--allow-trap", "--keep"];
    Run::ipath(attach)
        .args(["--duration", "1ms"])
        .args(patterns())
        .run()
        .expect(0);
    target.signal(Signal::SIGUSR1);
    let limit = Duration::from_secs(20);
    target.until(limit, "come to its handler", |t| {
        t.stdout().contains("inside")
    });
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    let tactics = profile
        .functions
        .iter()
        .flat_map(|f| f.exits.iter().chain([&f.entry]));
    assert!(tactics.into_iter().any(|t| t == "trap"), "all have room");
    std::fs::write(&gate, "").expect("an own file");
    target.until(limit, "left its handler", |t| t.stdout().contains("left"));
    before.assert_unchanged(target.pid());
    target.finish("ok");
}

/// A trap that is not ipath's has its normal effect: without a handler of the program it ends the
/// program, even while a session has breakpoints in it.
#[test]
fn trap_of_the_program_ends_it() {
    let program = program_with("trap.c", &["-no-pie"]);
    let mut target = Target::start(program, ["0", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "--no-tui", "--allow-trap", "--keep"];
    Run::ipath(attach)
        .args(["--duration", "1ms"])
        .args(patterns())
        .run()
        .expect(0);
    target.signal(Signal::SIGTRAP);
    let status = target.wait(Duration::from_secs(20));
    assert_eq!(status.signal(), Some(Signal::SIGTRAP as i32), "{status}");
    let scratch = Scratch::new("trap-ended");
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
}

/// All functions of the C library and of the loader are patched, also the code with which ipath
/// makes system calls in the process.
#[test]
fn trap_is_allowed_everywhere() {
    let program = program_with(
        "busy.c",
        &["-O2", "-pthread", "-Wl,--no-as-needed", "-lgcc_s"],
    );
    let mut target = Target::start(&program, ["2", "600"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let all = ["-f", "*", "--yes", "--allow-trap", "--no-tui"];
    let attach = Run::ipath(["attach", &pid]).args(all);
    attach.args(["--duration", "200ms"]).run().expect(0);
    before.assert_unchanged(target.pid());
    assert!(target.poll().is_none(), "{}", target.report());
}
