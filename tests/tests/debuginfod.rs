//! A debuginfod server, if one is set, provides the names and lines of stripped files. No answer
//! makes a command wait long, and a useless one leaves the names as they are without a server.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program_with;
use ipath_tests::debug_server::{Answer, DebugServer};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A program without symbols; its debug file is elsewhere.
struct Stripped {
    scratch: Scratch,
    program: PathBuf,
    /// The contents of its debug file.
    debug: Vec<u8>,
    /// The pattern of `work`, by its address in the file.
    work: String,
}

/// The standard output of a command that succeeds.
fn tool(name: &str, arguments: &[&str]) -> String {
    Run::new(name).args(arguments).run().expect(0).stdout
}

impl Stripped {
    /// Builds the program with this build id.
    fn new(build_id: &str) -> Self {
        let scratch = Scratch::new("debuginfod");
        let id = format!("-Wl,--build-id=0x{build_id}");
        let whole = program_with("stripped.c", &["-g", &id])
            .display()
            .to_string();
        let (program, debug) = (scratch.file("stripped"), scratch.file("debug"));
        let (shown, of_debug) = (program.display().to_string(), debug.display().to_string());
        tool("objcopy", &["--only-keep-debug", &whole, &of_debug]);
        tool("objcopy", &["--strip-all", &whole, &shown]);
        let symbols = tool("nm", &[&whole]);
        let line = symbols.lines().find(|l| l.ends_with(" t work"));
        let address = line.and_then(|l| l.split(' ').next()).expect("its address");
        let address = u64::from_str_radix(address, 16).expect("a number");
        Self {
            work: format!("stripped+{address:#x}"),
            debug: fs::read(&debug).expect("an own file"),
            scratch,
            program,
        }
    }

    fn ipath(&self, server: &DebugServer, arguments: &[&str]) -> Run {
        let run = Run::ipath(arguments);
        run.env("DEBUGINFOD_URLS", server.url.as_str())
            .env("DEBUGINFOD_CACHE_PATH", self.scratch.file("cache"))
            .env("DEBUGINFOD_TIMEOUT", "1")
    }

    /// Runs the program under ipath with the functions of this pattern measured. Returns the ended
    /// command and its profile.
    fn run(&self, server: &DebugServer, pattern: &str) -> (Finished, Profile) {
        let file = self.scratch.file("p.json");
        let (shown, program) = (
            file.display().to_string(),
            self.program.display().to_string(),
        );
        let arguments = ["run", "-f", pattern, "-o", &shown, "--", &program];
        let finished = self.ipath(server, &arguments).run().expect(0);
        (finished, Profile::read(&file))
    }
}

/// The number of calls by the name of the caller; the second part is true if the caller's line is
/// known.
fn callers(profile: &Profile) -> BTreeMap<(Option<String>, bool), u64> {
    let mut callers = BTreeMap::new();
    for path in &profile.paths {
        let caller = &profile.frames[path.stack[0]];
        let file = caller.file.as_deref();
        let has_line = file.is_some_and(|f| f.ends_with("stripped.c")) && caller.line.is_some();
        let key = (caller.function.clone(), has_line);
        *callers.entry(key).or_default() += count(&path.metrics);
    }
    callers
}

/// The result of [`callers`] if all names and lines are known.
fn named() -> BTreeMap<(Option<String>, bool), u64> {
    let named = |name: &str, calls| ((Some(name.to_owned()), true), calls);
    BTreeMap::from([named("first_caller", 100), named("second_caller", 200)])
}

/// The messages about debuginfod.
fn said(finished: &Finished) -> Vec<&str> {
    let lines = finished.stderr.lines();
    lines
        .filter(|l| l.starts_with("ipath: debuginfod: "))
        .collect()
}

#[test]
fn names_and_lines_come_from_a_server() {
    let stripped = Stripped::new("ab01");
    let server = DebugServer::start(Answer::File(stripped.debug.clone()));
    // A pattern that only the debug file can resolve; below, only frames need it.
    let (finished, profile) = stripped.run(&server, "work");
    assert_eq!(callers(&profile), named());
    let line = said(&finished).join("\n");
    assert!(
        line.contains("fetched debug information of stripped"),
        "{line}"
    );
    fs::remove_dir_all(stripped.scratch.file("cache")).expect("the client's");
    let (_, profile) = stripped.run(&server, &stripped.work);
    assert_eq!(callers(&profile), named());
    // A file is fetched only once.
    let asked = server.asked();
    let (_, profile) = stripped.run(&server, "work");
    assert_eq!(callers(&profile), named());
    assert_eq!(server.asked(), asked);
}

/// `suggest` names functions by the debug file of a server.
#[test]
fn sampling_has_their_names() {
    let stripped = Stripped::new("ab02");
    let server = DebugServer::start(Answer::File(stripped.debug.clone()));
    let mut program = Command::new(&stripped.program);
    program.arg("1000000");
    let target = ipath_tests::target::Target::spawn(program);
    let pid = target.pid().to_string();
    // On a busy machine the program, which sleeps a lot, may hardly be seen on a processor.
    let mut told = String::new();
    for _ in 0..15 {
        let run = stripped.ipath(&server, &["suggest", &pid, "--json", "--limit", "0"]);
        let finished = run.run().expect(0);
        let suggested = finished.json();
        let candidates = suggested["candidates"].as_array().expect("candidates");
        if candidates.iter().any(|c| c["name"] == "main") {
            return;
        }
        told = finished.report();
    }
    panic!("no candidate is called main: {told}");
}

/// Servers that send a wrong file, or none, leave the callers without names. One line says why.
#[test]
fn servers_without_the_right_file_change_no_name() {
    let stripped = Stripped::new("ab03");
    let other = Stripped::new("ab04");
    for (answer, cause) in [
        (Answer::NotFound, "no server has it"),
        (
            Answer::File(other.debug),
            "is not a debug file with its build id",
        ),
        (
            Answer::File(b"garbage".to_vec()),
            "is not a debug file with its build id",
        ),
        (Answer::Nothing, "stripped"),
    ] {
        let server = DebugServer::start(answer);
        let (finished, profile) = stripped.run(&server, &stripped.work);
        let unnamed: BTreeMap<_, _> = BTreeMap::from([((None, false), 300)]);
        assert_eq!(callers(&profile), unnamed, "{}", finished.report());
        let said = said(&finished);
        assert_eq!(said.len(), 1, "{}", finished.report());
        assert!(said[0].contains(cause), "{}", finished.report());
        // The client caches files and negative answers.
        let _ = fs::remove_dir_all(stripped.scratch.file("cache"));
    }
}

#[test]
fn functions_that_no_server_knows_are_not_found() {
    let stripped = Stripped::new("ab05");
    let program = stripped.program.display().to_string();
    for answer in [Answer::NotFound, Answer::Nothing] {
        let server = DebugServer::start(answer);
        let run = stripped.ipath(&server, &["run", "-f", "work", "--", &program]);
        let finished = run.limit(Duration::from_secs(50)).run().expect(1);
        assert!(
            finished.stderr.contains("no function matches 'work'"),
            "{}",
            finished.report()
        );
        assert_eq!(said(&finished).len(), 1, "{}", finished.report());
        let _ = fs::remove_dir_all(stripped.scratch.file("cache"));
    }
}

/// No server is contacted unless one is set.
#[test]
fn without_a_server_nothing_is_asked_for() {
    let stripped = Stripped::new("ab06");
    let program = stripped.program.display().to_string();
    let run = Run::ipath(["run", "-f", &stripped.work, "--", &program]);
    let finished = run.env("DEBUGINFOD_URLS", "").run().expect(0);
    assert!(said(&finished).is_empty(), "{}", finished.report());
}
