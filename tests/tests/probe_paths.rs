//! Paths of measured functions only (`--path probes`). They are those of the full walk without the
//! other frames.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use serde_json::Value;

/// The functions of called.cc.
const CALLED: &str = "leaf,inner,recursive,tail_target,tail_caller,tail_first,throwing,\
    thrown_through,catching,jumping,jumped_over,landing,handled,raising,first_work,second_work,\
    resuming,rounds";

/// The calls by path: the measured function, and those that have called it, the innermost first.
type Calls = BTreeMap<Vec<String>, u64>;

/// A profile of one of the two kinds of paths.
struct Measured(Value);

impl Measured {
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a profile");
        let this = Self(serde_json::from_str(&text).expect("JSON"));
        for loss in ["missed", "overflow"] {
            assert_eq!(this.0["losses"][loss], 0, "{loss}");
        }
        this
    }

    /// Runs a program whose paths are of this kind.
    fn of(path: &str, functions: &str, options: &[&str], command: &[&OsStr]) -> Self {
        let scratch = Scratch::new("probe_paths");
        let file = scratch.file("profile.json");
        let run = Run::ipath(["run", "-f", functions, "--path", path, "-o"]).arg(&file);
        let run = run.args(options.iter().copied()).arg("--");
        run.args(command.iter().copied()).run().expect(0);
        Self::read(&file)
    }

    fn list(&self, of: &str) -> &[Value] {
        self.0[of].as_array().expect("a list")
    }

    /// The names of the measured functions.
    fn functions(&self) -> BTreeSet<String> {
        let functions = self.list("functions").iter();
        functions
            .map(|function| text(&function["linkage"]))
            .collect()
    }

    /// The calls on each path, of functions in `of` only. The value and the phase that keep calls
    /// apart are added to the function's name.
    fn calls(&self, of: &BTreeSet<String>) -> Calls {
        let (frames, functions) = (self.list("frames"), self.list("functions"));
        let mut calls = Calls::new();
        for path in self.list("paths") {
            let at = |index: &Value| index.as_u64().expect("an index") as usize;
            let function = text(&functions[at(&path["function"])]["linkage"]);
            if !of.contains(&function) {
                continue;
            }
            let mut names = vec![format!("{function} {} {}", path["by"], path["phase"])];
            for frame in path["stack"].as_array().expect("a list") {
                let name = text(&frames[at(frame)]["function"]);
                // The landing pads of a function may be apart from it.
                let name = name.strip_suffix(".cold").unwrap_or(&name);
                names.extend(of.get(name).cloned());
            }
            let count = path["metrics"]["count"].as_u64().expect("a count");
            if count > 0 {
                *calls.entry(names).or_default() += count;
            }
        }
        calls
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Checks that both kinds of paths of a program are the same, with at least this number of paths.
fn assert_same(functions: &str, options: &[&str], command: &[&OsStr], least: usize) {
    let [whole, short] =
        ["stack", "probes"].map(|of| Measured::of(of, functions, options, command));
    // Where the program is loaded decides whether some functions can be patched.
    let both = &whole.functions() & &short.functions();
    let (expected, found) = (whole.calls(&both), short.calls(&both));
    assert_eq!(found, expected, "{options:?} {command:?}");
    assert!(found.len() >= least, "{} paths", found.len());
    assert_eq!(short.0["losses"]["incomplete"], 0);
    assert_eq!(short.0["exactness"], Value::Null, "no call site is judged");
    let frames = short.list("frames");
    let of_functions = |frame: &Value| frame["offset"].is_null() && frame["line"].is_null();
    assert!(frames.iter().all(of_functions), "{frames:?}");
}

fn called(options: &[&str], arguments: &[&str], least: usize) {
    let program = program_with("called.cc", &["-g", "-pthread"]);
    let arguments = arguments.iter().map(OsStr::new);
    let command: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments).collect();
    assert_same(CALLED, options, &command, least);
}

/// Recursion, tail calls, signals on the same stack and another one, exceptions and jumps.
#[test]
fn measured_callers_are_those_of_the_walk() {
    called(&[], &["300", "1"], 30);
    called(&[], &["300", "8"], 30);
    // A thread takes over the room of one that has ended.
    called(&[], &["60", "60"], 30);
}

/// The same with coroutines, which begin when calls without them are remembered already.
#[test]
fn measured_callers_in_coroutines_are_those_of_the_walk() {
    called(&[], &["200", "1", "coroutines"], 40);
    called(&[], &["100", "3", "coroutines"], 40);
}

/// Calls are kept apart as on whole paths. A caller's value or phase is not on the paths of others.
#[test]
fn measured_callers_are_kept_apart() {
    called(&["--by", "arg1"], &["40", "1"], 100);
    called(&["--phase", "rounds"], &["60", "1"], 30);
    called(&["--phase", "catching", "--by", "arg1"], &["20", "1"], 100);
    called(&["-m", "cpu,arg1"], &["60", "2"], 30);
}

#[test]
fn measured_callers_of_followed_processes_are_those_of_the_walk() {
    let program = program_with("called.cc", &["-g", "-pthread"]);
    let both = format!("{0} 60 2; {0} 40 1 coroutines", program.display());
    let command = ["/bin/sh", "-c", &both].map(OsStr::new);
    assert_same(CALLED, &["--follow", "--yes"], &command, 30);
}

/// Goroutines' stacks grow and move.
#[test]
fn measured_callers_in_goroutines_are_those_of_the_walk() {
    let program = program("paths.go");
    assert_same("main.leaf,main.mid", &[], &[program.as_os_str()], 300);
}

/// The calls of leaf by its callers.
fn leaves(profile: &Profile) -> BTreeMap<Vec<String>, u64> {
    let of = |path: &CallPath| {
        let frames = path.stack.iter().map(|&frame| &profile.frames[frame]);
        let names = frames.map(|frame| frame.function.clone().unwrap_or_default());
        (names.collect(), count(&path.metrics))
    };
    let is_leaf = |path: &&CallPath| profile.functions[path.function].name == "leaf";
    profile.paths.iter().filter(is_leaf).map(of).collect()
}

/// A function that is added is on paths from its next call on. One that is removed while it is
/// executed is on none from then on. Parts of functions cannot be added.
#[test]
fn functions_become_callers_and_are_none_any_more() {
    let program = program_with("called.cc", &["-g", "-pthread"]);
    let target = Target::start(&program, ["2000", "1", "again"]);
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "-f", "leaf", "--path", "probes", "--no-tui"];
    let keep = ["--keep", "--duration", "1ms"];
    Run::ipath(attach).args(keep).run().expect(0);
    let session = Session::of(target.pid());
    while session.snapshot().calls("leaf") == 0 {}
    let (alone, added) = (Vec::new(), vec!["rounds".to_owned()]);
    assert!(leaves(&session.snapshot()).into_keys().eq([alone.clone()]));
    session.add(&["rounds"]).expect(0);
    while leaves(&session.snapshot())
        .into_keys()
        .ne([alone.clone(), added.clone()])
    {}
    let refused = Run::ipath(["add", &pid, "--at", "leaf+0x0"]).run();
    assert_ne!(refused.code(), 0);
    let why = "its paths consist of measured functions only";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    // The program is in rounds nearly all the time.
    for _ in 0..4 {
        session.remove(&["rounds"]).expect(0);
        let then = leaves(&session.snapshot());
        while leaves(&session.snapshot())[&alone] == then[&alone] {}
        let later = leaves(&session.snapshot());
        assert_eq!(later[&added], then[&added]);
        session.add(&["rounds"]).expect(0);
        while leaves(&session.snapshot())[&added] == later[&added] {}
    }
    session.detach();
}

/// What concerns other frames of the stack, or does not see the ends of calls, is refused.
#[test]
fn what_needs_a_walk_is_refused() {
    for (options, cause) in [
        (&["--depth", "3"][..], "--depth needs a walk of the stack"),
        (&["--under", "rounds"], "--under needs a walk of the stack"),
        (&["--not-under", "rounds"], "--not-under needs a walk"),
        (
            &["--collapse-recursion"],
            "--collapse-recursion needs a walk",
        ),
        (&["-m", "count"], "do not see the ends of calls"),
        (&["--inlined"], "only whole functions can be measured"),
        (
            &["--at", "leaf+0x0"],
            "only whole functions can be measured",
        ),
    ] {
        let program = program_with("called.cc", &["-g", "-pthread"]);
        let run = Run::ipath(["run", "-f", "leaf", "--path", "probes"]);
        let finished = run
            .args(options.iter().copied())
            .arg("--")
            .arg(program)
            .run();
        assert_ne!(finished.code(), 0, "{options:?}");
        assert!(finished.stderr.contains(cause), "{}", finished.stderr);
    }
}
