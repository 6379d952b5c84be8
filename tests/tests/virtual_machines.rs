//! Call paths through code that virtual machines generate: V8 and HotSpot. The oracle is the
//! machine's own stack, by which the programs count their calls. It has only their own functions,
//! innermost first.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::source;
use ipath_tests::place::{Scratch, work_dir};
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::own_counts;
use ipath_tests::target::Target;
use std::collections::BTreeMap;
use std::sync::Once;
use std::time::Duration;

/// The number of calls by the stack of functions, innermost first. `None` is a function without a
/// name: the interpreter's frame does not identify its function.
type Calls = BTreeMap<Vec<Option<String>>, u64>;

/// The program's own counts.
fn own(finished: &Finished) -> Calls {
    let own = own_counts(&format!("{}{}", finished.stdout, finished.stderr));
    let own = own.into_iter();
    let names = |stack: &str| stack.split(';').map(|name| Some(name.to_owned())).collect();
    own.map(|(stack, calls)| (names(&stack), calls)).collect()
}

/// The calls of a function on complete paths, by the frames that `frame` selects and names. Also
/// returns the number of its calls on incomplete paths.
fn found(
    profile: &Profile,
    function: &str,
    frame: impl Fn(&str) -> Option<Option<String>>,
) -> (Calls, u64) {
    let mut found = Calls::new();
    let mut incomplete = 0;
    for path in &profile.paths {
        if profile.functions[path.function].name != function {
            continue;
        }
        let calls = count(&path.metrics);
        if !path.complete {
            incomplete += calls;
            continue;
        }
        let frames = path.stack.iter().map(|&at| &profile.frames[at]);
        let named = frames.filter_map(|f| frame(f.function.as_deref().unwrap_or_default()));
        *found.entry(named.collect()).or_default() += calls;
    }
    (found, incomplete)
}

/// Runs a command under ipath with a function measured. Returns the ended command and the profile.
fn measured(function: &str, command: &[&str]) -> (Finished, Profile) {
    let scratch = Scratch::new("machine");
    let file = scratch.file("p.json");
    let run = ["run", "--interval", "50ms", "-f", function, "-o"];
    let run = Run::ipath(run).arg(&file).arg("--").args(command);
    let finished = run.limit(Duration::from_secs(100)).run().expect(0);
    let profile = Profile::read(&file);
    // The map file that the machine wrote.
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", profile.target.pid));
    assert_eq!(profile.losses.missed, 0, "{:?}", profile.losses);
    (finished, profile)
}

const ROUNDS: &str = "20000";

/// Checks that most calls are on complete paths. The first calls from a place are on incomplete
/// paths until the command has answered, which takes a while on a busy machine.
fn assert_most(found: &Calls, incomplete: u64, own: &Calls) {
    let all: u64 = own.values().sum();
    let complete: u64 = found.values().sum();
    assert_eq!(complete + incomplete, all, "each call is counted");
    println!("{incomplete} of {all} incomplete");
    assert!(complete > incomplete, "{incomplete} of {all} incomplete");
}

/// Runs the script under node with these options. Returns its own counts, those on complete paths,
/// and the number of calls on incomplete ones.
fn node(options: &[&str]) -> (Calls, Calls, u64) {
    let script = source("stacks.js").display().to_string();
    let usual = [
        "node",
        "--perf-basic-prof",
        // With this option the interpreter has a copy of its code for each function.
        "--interpreted-frames-native-stack",
        // V8 writes a log file into its working directory.
        "--no-logfile-per-isolate",
        "--logfile=/dev/null",
    ];
    let command = [&usual, options, &[&script, ROUNDS]].concat();
    let (finished, profile) = measured("uv_fs_write", &command);
    // `JS:*down /some/folder/stacks.js:27:14`; the mark before the name is the tier.
    let (found, incomplete) = found(&profile, "uv_fs_write", |name| {
        let (function, place) = name.strip_prefix("JS:")?.split_once(' ')?;
        let function = function.trim_start_matches(['*', '~', '^', '+']);
        let name = match function {
            "" => "main",
            name => name,
        };
        place.contains("stacks.js:").then(|| Some(name.to_owned()))
    });
    (own(&finished), found, incomplete)
}

/// Each of V8's tiers: its interpreter and its baseline compiler alone, then the optimizing one.
#[test]
fn stacks_of_v8() {
    for options in [&["--no-opt"][..], &["--no-turbo-inlining"]] {
        let (own, found, incomplete) = node(options);
        assert_most(&found, incomplete, &own);
        for (stack, calls) in &found {
            let counted = own.get(stack).copied().unwrap_or_default();
            assert!(calls <= &counted, "{options:?} {stack:?}: {calls}");
        }
    }
}

/// Inlined functions have no frame, and all others are present.
#[test]
fn stacks_of_v8_with_inlined_functions() {
    let (own, found, incomplete) = node(&[]);
    assert_most(&found, incomplete, &own);
    for stack in found.keys() {
        let is_among = own.keys().any(|own| {
            let mut rest = own.iter();
            stack.iter().all(|name| rest.any(|other| other == name))
        });
        assert!(is_among, "{stack:?}");
    }
}

/// The deoptimizer writes return addresses that follow no call: the first instruction of a built-in
/// function.
#[test]
fn frames_that_v8_has_deoptimized() {
    let script = source("deoptimized.js").display().to_string();
    for options in [&[][..], &["--interpreted-frames-native-stack"]] {
        let usual = [
            "node",
            "--perf-basic-prof",
            "--no-logfile-per-isolate",
            "--logfile=/dev/null",
            "--allow-natives-syntax",
        ];
        let command = [&usual, options, &[&script, "50"]].concat();
        let (_, profile) = measured("uv_fs_write", &command);
        let made = "Builtins_InterpreterEnterAtNextBytecode";
        let (found, _) = found(&profile, "uv_fs_write", |name| {
            let is_it = name == made || name.contains("deoptimized.js:");
            is_it.then(|| Some(name.split(' ').next().unwrap_or(name).to_owned()))
        });
        let has = |stack: &&Vec<Option<String>>| stack.iter().flatten().any(|name| name == made);
        assert!(
            found.keys().any(|stack| has(&stack)),
            "{options:?} {found:?}"
        );
        let names = |stack: &Vec<usize>| {
            stack
                .iter()
                .all(|&at| profile.frames[at].function.is_some())
        };
        assert!(
            profile.paths.iter().all(|path| names(&path.stack)),
            "{options:?}"
        );
    }
}

/// Methods of the library between `Stacks.deflate` and zlib: two of Deflater's, and the native one.
const BETWEEN: usize = 3;

/// The command that runs the program for this many rounds.
fn java_command(options: &[&str], rounds: &str) -> Vec<String> {
    let classes = work_dir("java").display().to_string();
    let sources = source("Stacks.java").display().to_string();
    static COMPILED: Once = Once::new();
    COMPILED.call_once(|| {
        let compile = Run::new("javac").args(["-d", &classes, &sources]);
        compile.run().expect(0);
    });
    let usual = ["java", "-XX:-Inline", "-cp", &classes];
    let all = [&usual, options, &["Stacks", rounds]].concat();
    all.into_iter().map(str::to_owned).collect()
}

/// The numbers of calls of zlib's function on complete paths by the methods that lead to it, and
/// the number of its calls on incomplete paths.
fn found_in_java(profile: &Profile) -> (Calls, u64) {
    // `int Stacks.down(int, boolean, long)`
    let (found, incomplete) = found(profile, "deflate", |name| {
        let method = name.split_once('(').and_then(|(before, _)| {
            let (class, method) = before.rsplit_once('.')?;
            (!class.contains("::")).then_some(method)
        });
        match (name, method) {
            ("Interpreter" | "", _) => Some(None),
            (_, Some(method)) => Some(Some(method.to_owned())),
            _ => None,
        }
    });
    let mut own = Calls::new();
    for (mut stack, calls) in found {
        assert!(stack.len() > BETWEEN, "{stack:?}");
        stack.drain(..BETWEEN);
        *own.entry(stack).or_default() += calls;
    }
    (own, incomplete)
}

/// Runs the program under Java with these options. Returns its own counts, those on complete paths,
/// the number of calls on incomplete ones, and the profile.
fn java(options: &[&str]) -> (Calls, Calls, u64, Profile) {
    let names = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];
    let command = java_command(&[options, &names].concat(), ROUNDS);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let (finished, profile) = measured("libz.so*!deflate", &command);
    let (found, incomplete) = found_in_java(&profile);
    (own(&finished), found, incomplete, profile)
}

/// True if every frame of a found stack matches the machine's own stack.
fn is_possible(found: &[Option<String>], own: &[Option<String>]) -> bool {
    let mut pairs = found.iter().zip(own);
    found.len() == own.len() && pairs.all(|(found, own)| found.is_none() || found == own)
}

/// Checks that each found stack is one of the machine's, and that no depth has more calls than the
/// machine made.
fn assert_none_wrong(found: &Calls, own: &Calls) {
    for stack in found.keys() {
        let is_there = own.keys().any(|own| is_possible(stack, own));
        assert!(is_there, "{stack:?}");
    }
    // No more calls of any depth than the machine made.
    let depths = |calls: &Calls| {
        let mut depths = BTreeMap::<usize, u64>::new();
        for (stack, calls) in calls {
            *depths.entry(stack.len()).or_default() += calls;
        }
        depths
    };
    let own = depths(own);
    for (depth, calls) in depths(found) {
        assert!(calls <= own[&depth], "{calls} of depth {depth}");
    }
}

/// The interpreter alone, with and without frame pointers in compiled code: it has its own.
#[test]
fn stacks_of_hotspots_interpreter() {
    for option in ["-XX:+PreserveFramePointer", "-XX:-PreserveFramePointer"] {
        let (own, found, incomplete, _) = java(&["-Xint", option]);
        assert_most(&found, incomplete, &own);
        assert_none_wrong(&found, &own);
    }
}

/// Compiled methods with frame pointers: all methods compiled, and the default mix.
#[test]
fn stacks_of_compiled_methods() {
    for option in ["-Xcomp", "-Xmixed"] {
        let (own, found, incomplete, _) = java(&[option, "-XX:+PreserveFramePointer"]);
        assert_most(&found, incomplete, &own);
        assert_none_wrong(&found, &own);
        if option == "-Xcomp" {
            let all_named = found.keys().flatten().all(Option::is_some);
            assert!(all_named, "{found:?}");
        }
    }
}

/// Compiled methods without frame pointers: a path ends there, is marked incomplete, and omits no
/// frame before that.
#[test]
fn stacks_without_frame_pointers_are_incomplete() {
    let (own, found, incomplete, profile) = java(&["-Xmixed", "-XX:-PreserveFramePointer"]);
    assert_none_wrong(&found, &own);
    let complete: u64 = found.values().sum();
    assert_eq!(complete + incomplete, own.values().sum::<u64>());
    let causes: Vec<&String> = profile.losses.causes.keys().collect();
    assert_eq!(causes, ["no-unwind-rule"]);
}

/// A running virtual machine: the command knows the layout of its code from the first call on. Its
/// methods have the names that it writes down on request.
#[test]
fn stacks_of_a_running_machine() {
    let options = ["-XX:+PreserveFramePointer"];
    let plain = java_command(&options, "100");
    let plain = Run::new(&plain[0]).args(&plain[1..]).run().expect(0);
    let endless = java_command(&options, "2000000000");
    let mut target = Target::start(&endless[0], &endless[1..]).await_output("ready");
    let pid = target.pid().to_string();
    let named = Run::new("jcmd").args([&pid, "Compiler.perfmap"]).run();
    named.expect(0);
    let scratch = Scratch::new("machine");
    let file = scratch.file("p.json");
    let attach = ["attach", &pid, "--no-tui", "--duration", "500ms", "-o"];
    let run = Run::ipath(attach).arg(&file);
    run.args(["-f", "libz.so*!deflate"]).run().expect(0);
    let profile = Profile::read(&file);
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let (found, incomplete) = found_in_java(&profile);
    let complete: u64 = found.values().sum();
    assert!(
        complete > incomplete,
        "{complete} complete, {incomplete} not"
    );
    let own = own(&plain);
    for stack in found.keys() {
        let is_there = own.keys().any(|own| is_possible(stack, own));
        assert!(is_there, "{stack:?}");
    }
    assert!(target.poll().is_none(), "it runs on: {}", target.report());
}
