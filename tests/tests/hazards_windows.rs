//! Hazards of overwriting code: threads, signal frames, return addresses, branches and data inside
//! the bytes of a jump.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::exact::{assert_output_kept, check};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The file in which a program keeps its own counts, and through which a test keeps its threads
/// outside its functions.
struct Counters(PathBuf);

const LINE: usize = 64;
/// The time limit for a call of each function, on any machine.
const LONGEST: Duration = Duration::from_secs(60);

impl Counters {
    /// A number of a line of the file; 0 if the file is shorter.
    fn number(bytes: &[u8], line: usize, index: usize) -> u64 {
        let at = line * LINE + index * 8;
        let bytes = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap_or_default()
    }

    /// The number of calls of the function with this index, summed over all threads.
    fn calls(&self, index: usize) -> u64 {
        let bytes = self.bytes();
        let lines = 1..bytes.len() / LINE;
        lines.map(|line| Self::number(&bytes, line, index)).sum()
    }

    fn write(&self, index: usize, number: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.0);
        let file = file.expect("the counter file");
        let written = file.write_all_at(&number.to_le_bytes(), index as u64 * 8);
        written.expect("write the counter file");
    }

    /// Holds all threads outside the functions, and waits until they are there.
    fn hold(&self, target: &mut Target, threads: usize) {
        self.write(0, 1);
        target.until(Duration::from_secs(10), "held its threads", |_| {
            let bytes = self.bytes();
            (1..=threads).all(|line| Self::number(&bytes, line, 7) == 1)
        });
    }

    fn release(&self) {
        self.write(0, 0);
    }
}

fn ipath(command: &str, pid: u32, functions: &[&str]) -> Finished {
    let patterns = functions.iter().flat_map(|f| ["-f", f]);
    Run::ipath([command, &pid.to_string()]).args(patterns).run()
}

fn attach(pid: u32, functions: &[&str]) -> Finished {
    let patterns = functions.iter().flat_map(|f| ["-f", f]);
    Run::ipath(["attach", &pid.to_string(), "--keep", "--no-tui"])
        .args(["--duration", "1ms"])
        .args(patterns)
        .run()
}

/// The profile of a session up to now.
fn snapshot(pid: u32, scratch: &Scratch) -> Profile {
    let file = scratch.file("p.json");
    let pid = pid.to_string();
    Run::ipath(["snapshot", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    Profile::read(&file)
}

/// Runs the program to its end under ipath, and compares with its own counts and with gdb's. gdb
/// cannot distinguish a jump back to the first instruction from a call, so `loops` are left out.
fn run_exactly(source: &str, case: &str, functions: &[&str], loops: &[&str]) {
    let alone = Program::new(&program(source), [case, "1", "60"]);
    for function in functions.iter().filter(|f| !loops.contains(f)) {
        let profile = check(&alone, function, &sites(&alone.path, function));
        assert_eq!(profile.calls(function), 60);
    }
    let many = Program::new(&program(source), [case, "4", "2000"]);
    let scratch = Scratch::new(case);
    let file = scratch.file("p.json");
    let ours = many.under_ipath(functions, "count,wall", &file);
    assert_output_kept(&many.plain(), &ours);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    for function in functions {
        let own = format!(" {function} {}", profile.calls(function));
        assert!(
            profile.calls(function) == 8000 && ours.stdout.contains(&own),
            "{own}\n{}",
            ours.report()
        );
    }
}

/// Repeatedly instruments functions of a running program and removes them, with exact counts in
/// between.
#[derive(Clone, Copy)]
struct Rounds<'a> {
    /// A file in `tests/programs`.
    source: &'a str,
    case: &'a str,
    threads: usize,
    rounds: usize,
    /// The functions, each after its index among the case's functions.
    functions: &'a [(usize, &'a str)],
}

impl Rounds<'_> {
    fn start(&self, scratch: &Scratch) -> (Target, Counters) {
        let counters = Counters(scratch.file("counters"));
        let threads = self.threads.to_string();
        let file = counters.0.display().to_string();
        let args = [self.case, &threads, "0", &file];
        let target = Target::start(program(self.source), args).await_output("ready");
        (target, counters)
    }

    /// Removes and adds the functions in each round, and compares counts in every tenth.
    fn play(&self) {
        let scratch = Scratch::new(self.case);
        let (mut target, counters) = self.start(&scratch);
        let pid = target.pid();
        let before = ProcessState::of(pid);
        let names: Vec<&str> = self.functions.iter().map(|f| f.1).collect();
        attach(pid, &names).expect(0);
        for round in 0..self.rounds {
            ipath("remove", pid, &names).expect(0);
            ipath("add", pid, &names).expect(0);
            assert!(
                target.poll().is_none(),
                "round {round}: {}",
                target.report()
            );
            if round % 10 == 0 {
                self.count(&mut target, &counters, &scratch);
            }
        }
        ipath("detach", pid, &[]).expect(0);
        before.assert_unchanged(pid);
        target.finish("ok calls ");
    }

    /// Counts calls between two moments at which no thread is in a function.
    fn count(&self, target: &mut Target, counters: &Counters, scratch: &Scratch) {
        let look = |target: &mut Target| {
            counters.hold(target, self.threads);
            let profile = snapshot(target.pid(), scratch);
            profile.assert_lossless();
            let each = self.functions.iter();
            each.map(|&(index, name)| (profile.calls(name), counters.calls(index)))
                .collect::<Vec<_>>()
        };
        let first = look(target);
        counters.release();
        let is_called =
            |((index, _), before): (&(usize, &str), &(u64, u64))| counters.calls(*index) > before.1;
        let begun = Instant::now();
        while !self.functions.iter().zip(&first).all(is_called) {
            assert!(begun.elapsed() < LONGEST, "{}", target.report());
            std::thread::sleep(Duration::from_millis(1));
        }
        let second = look(target);
        counters.release();
        for (i, (_, name)) in self.functions.iter().enumerate() {
            let found = second[i].0 - first[i].0;
            let made = second[i].1 - first[i].1;
            assert!(
                found == made && made > 0,
                "{name}: {found} counted, {made} made"
            );
        }
    }
}

/// How often gdb finds a thread at one of these places, in `looks` attempts. A place is
/// `SYMBOL + OFFSET`, as gdb prints it.
fn seen_at(target: &Target, places: &[&str], looks: usize) -> usize {
    let pid = target.pid().to_string();
    let mut seen = 0;
    for _ in 0..looks {
        let gdb = Run::new("gdb").args([
            "-nx",
            "-batch",
            "-p",
            &pid,
            "-ex",
            "thread apply all info symbol $pc",
        ]);
        let text = gdb.run().stdout;
        let at = |line: &&str| places.iter().any(|p| line.starts_with(p));
        seen += text.lines().filter(at).count();
    }
    seen
}

/// Counts are exact while probes change in functions in whose overwritten bytes threads run.
#[test]
fn pc_in_window_while_it_runs() {
    let functions = &[
        (0, "copy_at_entry"),
        (1, "copy_at_exit"),
        (2, "cpuid_at_both"),
        (3, "copy_then_jump"),
    ];
    run_exactly("windows.c", "pc", &functions.map(|f| f.1), &[]);
    let rounds = Rounds {
        source: "windows.c",
        case: "pc",
        threads: 4,
        rounds: 40,
        functions,
    };
    // The test is meaningful only if threads are found in the middle of the overwritten bytes.
    let scratch = Scratch::new("pc");
    let (target, _counters) = rounds.start(&scratch);
    let places = [
        "copy_at_entry + 2 ",
        "copy_at_exit + 7 ",
        "cpuid_at_both + 3 ",
        "cpuid_at_both + 12 ",
        "copy_then_jump + 9 ",
    ];
    let seen = seen_at(&target, &places, 10);
    println!("{seen} of 40 program counters in a window's middle");
    assert!(seen >= 10, "{seen} of 40 program counters");
    target.finish("ok calls ");
    rounds.play();
}

#[test]
fn branch_into_window_is_exact_while_probes_change() {
    let functions = &[
        (0, "loop_head"),
        (1, "loop_to_entry"),
        (2, "shared_body"),
        (3, "enters_shared_body"),
    ];
    run_exactly(
        "windows.c",
        "branch",
        &functions.map(|f| f.1),
        &["loop_to_entry"],
    );
    Rounds {
        source: "windows.c",
        case: "branch",
        threads: 4,
        rounds: 20,
        functions,
    }
    .play();
}

#[test]
fn jump_table_into_window_is_exact_while_probes_change() {
    let functions = &[(0, "table_to_head"), (1, "table_to_exit")];
    run_exactly("windows.c", "table", &functions.map(|f| f.1), &[]);
    Rounds {
        source: "windows.c",
        case: "table",
        threads: 4,
        rounds: 20,
        functions,
    }
    .play();
}

/// `frames.c`, whose only thread can be kept inside a function.
struct Kept {
    scratch: Scratch,
    counters: Counters,
    target: Target,
    before: ProcessState,
}

impl Kept {
    fn start(place: &str) -> Self {
        let scratch = Scratch::new(place);
        let counters = Counters(scratch.file("counters"));
        let file = counters.0.display().to_string();
        let target = Target::start(program("frames.c"), [place, &file]).await_output("ready");
        let before = ProcessState::of(target.pid());
        Self {
            scratch,
            counters,
            target,
            before,
        }
    }

    fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// Makes the thread stay in the function with this index, and waits until it is there.
    fn keep(&mut self, index: usize) {
        self.counters.write(1, index as u64 + 1);
        self.until_kept(1);
    }

    fn let_go(&mut self) {
        self.counters.write(1, 0);
        self.until_kept(0);
    }

    fn until_kept(&mut self, kept: u64) {
        let counters = &self.counters;
        self.target
            .until(Duration::from_secs(10), "come to its place", |_| {
                Counters::number(&counters.bytes(), 0, 2) == kept
            });
    }

    /// Starts a command of `ipath`, and checks that it is still waiting after a moment.
    fn begin(&mut self, subcommand: &str, arguments: &[&str]) -> Target {
        let mut command = std::process::Command::new(ipath_tests::place::ipath());
        command
            .args([subcommand, &self.pid().to_string()])
            .args(arguments);
        let mut started = Target::spawn(command);
        std::thread::sleep(Duration::from_millis(150));
        assert!(started.poll().is_none(), "{}", started.report());
        started
    }

    /// Checks that the text and the rest of the state are unchanged.
    fn assert_clean(&mut self, what: &str) {
        assert!(
            self.target.poll().is_none(),
            "{what}: {}",
            self.target.report()
        );
        self.before.assert_unchanged(self.pid());
    }

    /// Checks the counts of one function while the thread runs.
    fn count(&mut self, index: usize, name: &str) {
        let rounds = Rounds {
            source: "frames.c",
            case: "",
            threads: 1,
            rounds: 0,
            functions: &[(index, name)],
        };
        rounds.count(&mut self.target, &self.counters, &self.scratch);
    }

    fn finish(self) {
        self.target.finish("ok calls ");
    }
}

/// Attaches, adds, removes and detaches while a handler interrupts the middle of a window.
fn signal_frames(place: &str) {
    let mut kept = Kept::start(place);
    let pid = kept.pid();
    for (index, name) in [(0, "load_at_entry"), (1, "load_at_exit")] {
        // The handler does not return, so nothing may be overwritten.
        kept.keep(index);
        let refused = attach(pid, &[name]);
        let error = refused.expect_error();
        assert!(error.contains("stays inside the code of"), "{error}");
        kept.let_go();
        kept.assert_clean("refused");

        // It returns while ipath tries.
        kept.keep(index);
        let keep = ["-f", name, "--keep", "--no-tui", "--duration", "1ms"];
        let mut attaching = kept.begin("attach", &keep);
        kept.let_go();
        let status = attaching.wait(Duration::from_secs(20));
        assert!(status.success(), "{}", attaching.report());
        kept.count(index, name);

        // The frame's pc is now in the trampoline. It continues there after everything is removed.
        kept.keep(index);
        ipath("remove", pid, &[name]).expect(0);
        kept.let_go();
        ipath("add", pid, &[name]).expect(0);
        kept.count(index, name);

        kept.keep(index);
        if (place, index) == ("same", 0) {
            // Until ipath gives up.
            ipath("detach", pid, &[]).expect_error();
            assert!(kept.target.poll().is_none(), "{}", kept.target.report());
        }
        let mut detaching = kept.begin("detach", &[]);
        kept.let_go();
        let status = detaching.wait(Duration::from_secs(20));
        assert!(status.success(), "{}", detaching.report());
        kept.assert_clean("detached");
    }
    kept.finish();
}

#[test]
fn signal_frame_in_window_survives_every_change() {
    signal_frames("same");
}

/// Like `signal_frame_in_window_survives_every_change`, with the handler on an alternate stack.
#[test]
fn signal_frame_in_window_on_an_alternate_stack() {
    signal_frames("alternate");
}

/// Like `signal_frame_in_window_survives_every_change`, with a second handler on top, on an
/// alternate stack.
#[test]
fn signal_frame_in_window_below_another() {
    signal_frames("nested");
}

#[test]
fn return_into_window_survives_every_change() {
    let mut kept = Kept::start("same");
    let pid = kept.pid();
    let mut had = Vec::new();
    for (index, name) in [
        (2, "pointer_call_at_entry"),
        (3, "direct_call_at_entry"),
        (4, "call_before_exit"),
        (5, "call_before_padded_exit"),
    ] {
        kept.keep(index);
        let attached = attach(pid, &[name]);
        if attached.code() != 0 {
            let error = attached.expect_error();
            let named = error.contains(name) && error.contains("call-in-window");
            assert!(named, "{error}");
            kept.let_go();
            kept.assert_clean(name);
            continue;
        }
        had.push(name);
        kept.let_go();
        kept.count(index, name);
        kept.keep(index);
        ipath("remove", pid, &[name]).expect(0);
        kept.let_go();
        kept.keep(index);
        ipath("add", pid, &[name]).expect(0);
        kept.let_go();
        kept.count(index, name);
        // The callee returns to the former place of the probes.
        kept.keep(index);
        ipath("detach", pid, &[]).expect(0);
        kept.let_go();
        kept.assert_clean(name);
    }
    println!("{had:?}");
    let sure = ["direct_call_at_entry", "call_before_padded_exit"];
    assert!(sure.iter().all(|name| had.contains(name)), "{had:?}");
    kept.finish();
}

#[test]
fn data_in_code_of_running_threads_is_exact_or_refused() {
    let functions = [
        (0, "data_amid"),
        (1, "data_like_code"),
        (2, "data_after"),
        (3, "data_called_over"),
    ];
    let scratch = Scratch::new("data");
    let plan = Rounds {
        source: "windows.c",
        case: "data",
        threads: 2,
        rounds: 0,
        functions: &[],
    };
    let (mut target, counters) = plan.start(&scratch);
    let pid = target.pid();
    let before = ProcessState::of(pid);
    for (index, name) in functions {
        let attached = attach(pid, &[name]);
        if attached.code() == 0 {
            let functions = &[(index, name)];
            Rounds { functions, ..plan }.count(&mut target, &counters, &scratch);
            ipath("detach", pid, &[]).expect(0);
        } else {
            let error = attached.expect_error();
            println!("{error}");
            let named = error.contains(name) && error.contains("data-in-code");
            assert!(named, "{error}");
        }
        assert!(target.poll().is_none(), "{name}: {}", target.report());
        before.assert_unchanged(pid);
        // Entries do not depend on the meaning of the data.
        let pid = pid.to_string();
        let counted = Run::ipath(["attach", &pid, "-f", name, "-m", "count", "--no-tui"])
            .args(["--duration", "100ms"])
            .run();
        println!("{name} without exits: {}", counted.code());
        assert!(target.poll().is_none(), "{name}: {}", target.report());
        before.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}

#[test]
fn landing_pad_into_window_is_refused_only_at_the_entry() {
    // The landing pad is in the bytes of the entry's jump.
    let scratch = Scratch::new("pads");
    let program = Program::new(&program("pads.cc"), ["pads", "1", "60"]);
    let file = scratch.file("p.json");
    let error = program
        .under_ipath(&["pad_at_entry"], "count,wall", &file)
        .expect_error();
    assert!(
        error.contains("pad_at_entry (branch-into-window)"),
        "{error}"
    );

    let functions = &[(1, "pad_at_exit")];
    run_exactly("pads.cc", "pads", &functions.map(|f| f.1), &[]);
    Rounds {
        source: "pads.cc",
        case: "pads",
        threads: 4,
        rounds: 50,
        functions,
    }
    .play();
}

#[test]
fn cold_part_is_exact_while_probes_change() {
    let functions = &[
        (0, "cold_return"),
        (1, "cold_and_back"),
        (2, "cold_by_hand"),
    ];
    run_exactly("windows.c", "cold", &functions.map(|f| f.1), &[]);
    Rounds {
        source: "windows.c",
        case: "cold",
        threads: 4,
        rounds: 20,
        functions,
    }
    .play();
}
