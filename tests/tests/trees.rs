//! Processes with children that run already, as one: each is exact, and what cannot be measured is said in a line.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::listed;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Calls of `work` by process and caller.
type Counts = BTreeMap<u32, (String, u64)>;

/// A server with workers that wait for a file.
struct Server {
    target: Target,
    scratch: Scratch,
    workers: usize,
}

impl Server {
    fn start(workers: usize) -> Self {
        let scratch = Scratch::new("workers");
        let mut command = Command::new(program("workers.c"));
        command.arg(workers.to_string());
        command.env("WORKED", scratch.file(""));
        Self {
            target: Target::spawn(command).await_output("ready"),
            scratch,
            workers,
        }
    }

    fn pid(&self) -> String {
        self.target.pid().to_string()
    }

    /// Its descendants, the helper too.
    fn children(&self) -> Vec<u32> {
        descendants(self.target.pid())
    }

    /// Lets the processes work; their own counts.
    fn counts(&mut self) -> Counts {
        self.allow("go");
        self.counts_of(self.workers + 2)
    }

    /// The counts of so many processes, once all have worked.
    fn counts_of(&mut self, all: usize) -> Counts {
        let folder = self.scratch.file("");
        let of = || -> Counts {
            let entries = fs::read_dir(&folder).expect("an own folder").flatten();
            let count = |entry: fs::DirEntry| {
                let pid = entry.file_name().to_str()?.parse().ok()?;
                let text = fs::read_to_string(entry.path()).ok()?;
                let (caller, count) = text.trim().split_once(' ')?;
                Some((pid, (caller.to_owned(), count.parse().ok()?)))
            };
            entries.filter_map(count).collect()
        };
        self.target.until(LIMIT, "worked", |_| of().len() == all);
        of()
    }

    fn allow(&self, what: &str) {
        fs::write(self.scratch.file(what), "").expect("an own folder");
    }
}

fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    children
        .flat_map(|pid: u32| std::iter::once(pid).chain(descendants(pid)))
        .collect()
}

/// The calls of `work` by process and caller in a profile whose paths are kept apart by process.
fn measured(file: &Path) -> Counts {
    let profile = Profile::read(file);
    let text: Value =
        serde_json::from_str(&fs::read_to_string(file).expect("a profile")).expect("JSON");
    let of = |path: &ipath_tests::profile::CallPath| {
        let process = &text["processes"][path.process.expect("kept apart")];
        let pid = process["pid"].as_u64().expect("a pid") as u32;
        let caller = profile.frames[path.stack[0]].function.clone();
        let count = path.metrics["count"].as_u64().expect("a count");
        (pid, (caller.expect("a name"), count))
    };
    let of_work =
        |path: &&ipath_tests::profile::CallPath| profile.functions[path.function].name == "work";
    profile.paths.iter().filter(of_work).map(of).collect()
}

/// A server with workers: one ends while it is measured, one has become another program before.
#[test]
fn workers_that_run_are_exact() {
    let mut server = Server::start(4);
    let pid = server.pid();
    let children = server.children();
    assert_eq!(children.len(), 6);
    let before: Vec<ProcessState> = children.iter().map(|&pid| ProcessState::of(pid)).collect();
    let file = server.scratch.file("p.json");
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "--children", "-f", "work", "--per-process"]);
    command.args(["--no-tui", "-o"]).arg(&file);
    let mut attach = Target::spawn(command);
    let helper = |line: &str| line.contains("(sleep) is not measured: no function matches 'work'");
    attach.until(LIMIT, "said what is not measured", |t| {
        t.stderr().lines().any(helper)
    });
    let counts = server.counts();
    let first = *counts.iter().find(|(_, c)| c.1 == 100).expect("a worker").0;
    server.allow("end");
    let is_gone = || !Path::new(&format!("/proc/{first}")).exists();
    // It is collected at the end.
    let is_over = |_: &Target| is_gone() || state(first) == 'Z';
    server.target.until(LIMIT, "ended a worker", is_over);
    attach.signal(Signal::SIGINT);
    assert!(attach.wait(LIMIT).success(), "{}", attach.report());
    assert_eq!(measured(&file), counts);
    let said = attach.stderr();
    assert_eq!(
        said.lines().filter(|line| helper(line)).count(),
        1,
        "{said}"
    );
    let profile = Profile::read(&file);
    profile.assert_complete("workers");
    let all: u64 = counts.values().map(|(_, count)| count).sum();
    assert_eq!(profile.calls("work"), all);
    let is_noted = |note: &String| note.contains("(sleep) is not measured");
    assert!(profile.session.notes.iter().any(is_noted));
    assert_eq!(profile.losses.unseen["processes"], 1);
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    let head = format!("pid {pid} on ");
    assert!(
        report.starts_with("6 processes as one") && report.contains(&head),
        "{report}"
    );
    for (pid, state) in children.into_iter().zip(before) {
        if pid != first {
            state.assert_unchanged(pid);
        }
    }
    server.target.finish("ok");
}

/// With `--follow` what the processes of the tree start later is measured, too.
#[test]
fn later_children_of_a_tree_are_followed() {
    let mut server = Server::start(3);
    let pid = server.pid();
    let file = server.scratch.file("p.json");
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "--children", "--follow", "-f", "work"]);
    command.args(["--per-process", "--no-tui", "-o"]).arg(&file);
    let mut attach = Target::spawn(command);
    let helper = "(sleep) is not measured: no function matches 'work'";
    attach.until(LIMIT, "said what is not measured", |t| {
        t.stderr().contains(helper)
    });
    let before = server.counts();
    server.allow("more");
    let counts = server.counts_of(before.len() + 2);
    attach.signal(Signal::SIGINT);
    assert!(attach.wait(LIMIT).success(), "{}", attach.report());
    assert_eq!(measured(&file), counts);
    for pid in server.children() {
        assert_eq!(listed(pid), None);
    }
    server.target.finish("ok");
}

/// The state of a process's first thread.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.unwrap_or('Z')
}

/// The commands on a session change and read those of all its processes by the id of the first.
#[test]
fn commands_are_for_all_processes_of_a_tree() {
    let mut server = Server::start(2);
    let pid = server.pid();
    let helper = server.children().into_iter().find(|&pid| is_sleep(pid));
    let helper = helper.expect("a helper").to_string();
    Run::ipath([
        "attach",
        &pid,
        "--children",
        "-f",
        "work",
        "--keep",
        "--quiet",
    ])
    .args(["--duration", "1ms"])
    .run()
    .expect(0);
    let again = Run::ipath(["attach", &pid, "--children", "-f", "main"]).run();
    assert!(again.expect_error().contains("has a session already"));
    assert!(
        again
            .hints()
            .contains(&format!("`ipath add {pid} -f FUNC`"))
    );
    let nowhere = Run::ipath(["add", &pid, "-f", "nowhere"]).run();
    assert!(
        nowhere
            .expect_error()
            .contains("no function matches 'nowhere'")
    );
    Run::ipath(["add", &pid, "-f", "in_worker"]).run().expect(0);
    let status = Run::ipath(["status", &pid]).run().expect(0).stdout;
    let is_process = |line: &&str| !line.starts_with(' ');
    assert_eq!(status.lines().filter(is_process).count(), 4, "{status}");
    assert_eq!(status.matches("in_worker").count(), 4, "{status}");
    assert!(!status.contains(&helper), "{status}");
    let counts = server.counts();
    let all: u64 = counts.values().map(|(_, count)| count).sum();
    let file = server.scratch.file("p.json");
    Run::ipath(["top", &pid, "--duration", "1ms", "--quiet", "-o"])
        .arg(&file)
        .run()
        .expect(0);
    assert_eq!(Profile::read(&file).calls("work"), all);
    // Without a function `attach` shows what there is.
    let shown = Run::ipath(["attach", &pid, "--duration", "1ms"])
        .run()
        .expect(0);
    assert!(
        shown.stdout.contains("4 processes as one"),
        "{}",
        shown.report()
    );
    Run::ipath(["remove", &pid, "-f", "in_worker"])
        .run()
        .expect(0);
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    assert_eq!(
        (profile.calls("work"), profile.calls("in_worker")),
        (all, 2)
    );
    for pid in server.children() {
        assert_eq!(listed(pid), None);
    }
    server.target.finish("ok");
}

fn is_sleep(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
}

/// Descendants that cannot be measured do not keep the others from it. If none is left that is an error.
#[test]
fn some_descendants_cannot_be_measured() {
    let mut server = Server::start(3);
    let pid = server.pid();
    let traced = *server
        .children()
        .iter()
        .find(|&&pid| !is_sleep(pid))
        .expect("a worker");
    let mut strace = Command::new("strace");
    strace.args([
        "-p",
        &traced.to_string(),
        "-e",
        "trace=none",
        "-o",
        "/dev/null",
    ]);
    let mut strace = Target::spawn(strace);
    strace.until(LIMIT, "attached", |_| tracer(traced) != 0);
    let file = server.scratch.file("p.json");
    let attach = Run::ipath(["attach", &pid, "--children", "-f", "work", "-f", "nowhere"])
        .args(["--keep", "--quiet", "--duration", "1ms"])
        .run()
        .expect(0);
    let said = format!("process {traced} (workers_c) is not measured: ");
    let lines: Vec<&str> = attach
        .stderr
        .lines()
        .filter(|l| l.contains(&said))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains("traced by"),
        "{}",
        attach.report()
    );
    let unmet = "processes matches 'nowhere'";
    assert!(attach.stderr.contains(unmet), "{}", attach.report());
    strace.signal(Signal::SIGTERM);
    strace.wait(LIMIT);
    let mut counts = server.counts();
    counts.remove(&traced);
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let all: u64 = counts.values().map(|(_, count)| count).sum();
    assert_eq!(Profile::read(&file).calls("work"), all);
    let none = Run::ipath(["attach", &pid, "--children", "-f", "nowhere"]).run();
    assert!(
        none.expect_error()
            .contains("no function matches 'nowhere'")
    );
    assert!(
        none.hints().contains("none of its 6 processes"),
        "{}",
        none.report()
    );
    let unnamed = Run::ipath(["attach", &pid, "--children"]).run();
    assert!(unnamed.expect_error().contains("no function is named"));
    assert!(
        unnamed
            .hints()
            .contains(&format!("`ipath suggest {pid} --children`"))
    );
    server.target.finish("ok");
}

/// The process that traces the first thread of another one; 0 for none.
fn tracer(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}

/// A service of Python's with workers that were forked before.
#[test]
fn workers_of_python_are_exact() {
    let scratch = Scratch::new("workers");
    let go = scratch.file("go").display().to_string();
    let script = "
import multiprocessing, os, signal, sys, time
def serve(n):
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.001)
    for _ in range(n):
        os.getsid(0)
    time.sleep(600)
workers = [multiprocessing.Process(target=serve, args=(100 * n,)) for n in range(1, 4)]
for worker in workers:
    worker.start()
print('ready', flush=True)
signal.pause()
";
    let args = ["-c", script, &go];
    let mut server = Target::start("/usr/bin/python3.11", args).await_output("ready");
    let pid = server.pid().to_string();
    let workers = descendants(server.pid());
    assert_eq!(workers.len(), 3);
    Run::ipath([
        "attach",
        &pid,
        "--children",
        "-f",
        "libc.so*!getsid",
        "--keep",
        "--quiet",
    ])
    .args(["--duration", "1ms"])
    .run()
    .expect(0);
    fs::write(scratch.file("go"), "").expect("an own folder");
    let file = scratch.file("p.json");
    let calls = || {
        Run::ipath(["snapshot", &pid, "-o"])
            .arg(&file)
            .run()
            .expect(0);
        Profile::read(&file).calls("getsid")
    };
    server.until(LIMIT, "served", |_| calls() >= 600);
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let text = fs::read_to_string(&file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let function = &profile["functions"][0];
    assert_eq!(function["totals"]["count"], 600, "{function:#}");
    let of_each = function["processes"].as_array().expect("processes");
    let count = |of: &Value| {
        let process = &profile["processes"][of["process"].as_u64().expect("an index") as usize];
        (
            process["pid"].as_u64().expect("a pid") as u32,
            of["count"].as_u64().expect("a count"),
        )
    };
    let mut counts: Vec<(u32, u64)> = of_each.iter().map(count).collect();
    counts.sort_unstable();
    let expected: Vec<(u32, u64)> = workers.into_iter().zip([100, 200, 300]).collect();
    assert_eq!(counts, expected);
    for (pid, _) in counts {
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

/// A shell with three programs in the background.
fn three_programs(searched: &str) -> Target {
    let (searcher, suggested) = (program("searched.c"), program("suggested.c"));
    let script = format!(
        "{0} {searched} & {0} {searched} & {1} cpu & wait",
        searcher.display(),
        suggested.display()
    );
    let mut shell = Target::start("sh", ["-c", &script]);
    let are_ready = |shell: &Target| shell.stdout().matches("ready").count() == 3;
    shell.until(LIMIT, "started its programs", are_ready);
    shell
}

/// The samples of a tree are those of all its processes. A function of several is one candidate.
#[test]
fn a_tree_is_sampled_as_one() {
    let shell = three_programs("lookup");
    let pid = shell.pid().to_string();
    let suggest = |more: &[&str]| {
        let run = Run::ipath(["suggest", &pid, "--children", "--limit", "0"]);
        run.args(more).run().expect(0)
    };
    let suggestion = suggest(&["--json"]).json();
    assert_eq!(suggestion["processes"], 4);
    let candidates = suggestion["candidates"].as_array().expect("candidates");
    let named = |name: &str| {
        let of_name = candidates.iter().filter(|c| c["name"] == name);
        let of_name: Vec<&Value> = of_name.collect();
        assert_eq!(of_name.len(), 1, "{name}: {suggestion:#}");
        of_name[0]
    };
    for (name, caller) in [("find_entry", "resolve_bodies"), ("hot", "mixed")] {
        let candidate = named(name);
        assert_eq!(candidate["patchable"], true, "{candidate:#}");
        assert_eq!(candidate["stack"][0], caller, "{candidate:#}");
    }
    let own = candidates
        .iter()
        .map(|c| c["self"].as_f64().expect("a share"));
    let all: f64 = own.sum();
    assert!((0.9..1.1).contains(&all), "{all}: {suggestion:#}");
    let text = suggest(&[]).stdout;
    let head = format!("4 processes: {pid}: ");
    let next = format!("ipath attach {pid} --children -f ");
    assert!(text.starts_with(&head) && text.contains(&next), "{text}");
}

/// A search over a tree measures the same functions in all its processes, and leaves nothing in them.
#[test]
fn a_tree_is_searched_as_one() {
    let shell = three_programs("lookup");
    let pid = shell.pid().to_string();
    let children = descendants(shell.pid());
    let before: Vec<ProcessState> = children.iter().map(|&pid| ProcessState::of(pid)).collect();
    let search = |more: &[&str]| {
        let run = Run::ipath(["attach", &pid, "--children", "--search", "--format", "json"]);
        run.args(more).limit(3 * LIMIT).run().expect(0)
    };
    let finished = search(&[]);
    let profile = finished.json();
    let found = found(&profile);
    assert_eq!(found[0][..2], ["find_entry", "resolve_bodies"], "{found:?}");
    let is_of_the_other = |path: &Vec<String>| path.iter().any(|name| name == "mixed");
    assert!(found.iter().any(is_of_the_other), "{found:?}");
    // Both that look entries up have called it, on the same path.
    let function = profile["search"]["paths"][0]["function"]
        .as_u64()
        .expect("an index");
    let of_each = &profile["functions"][function as usize]["processes"];
    assert_eq!(of_each.as_array().map(Vec::len), Some(2), "{of_each}");
    assert_eq!(profile["target"]["pid"], shell.pid());
    let within = search(&["-f", "mixed"]);
    assert!(
        within.stderr.contains("no function matches 'mixed'"),
        "{}",
        within.report()
    );
    let paths = self::found(&within.json());
    assert!(
        !paths.is_empty() && paths.iter().all(is_of_the_other),
        "{paths:?}"
    );
    for (pid, state) in children.into_iter().zip(before) {
        state.assert_unchanged(pid);
        assert_eq!(listed(pid), None);
    }
}

/// A search follows what processes start later: children of fork, each of which lives for a moment, and programs.
#[test]
fn a_search_follows_later_processes() {
    let target = Target::start(program("serving_children.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let run = Run::ipath(["attach", &pid, "--search", "--follow", "--format", "json"]);
    let finished = run.limit(3 * LIMIT).run().expect(0);
    before.assert_unchanged(target.pid());
    let profile = finished.json();
    let paths = found(&profile);
    assert_eq!(
        paths[0][..2],
        ["compute", "serve"],
        "{paths:?} {}",
        finished.stderr
    );
    let processes = profile["processes"].as_array().map_or(0, Vec::len);
    assert!(processes > 5, "{processes}: {}", finished.stderr);
    target.finish("ok children ");
    let scratch = Scratch::new("later");
    let go = scratch.file("go");
    let script = format!(
        "echo ready; while ! [ -e {} ]; do sleep 0.05; done; {} lookup & wait",
        go.display(),
        program("searched.c").display()
    );
    let shell = Target::start("bash", ["-c", &script]).await_output("ready\n");
    let mut command = Command::new(ipath());
    let pid = shell.pid().to_string();
    command.args(["attach", &pid, "--search", "--follow", "--format", "json"]);
    let mut search = Target::spawn(command);
    search.until(LIMIT, "begun to sample", |t| {
        t.stderr().contains("sampling for")
    });
    fs::write(&go, "").expect("an own folder");
    assert!(search.wait(3 * LIMIT).success(), "{}", search.report());
    let profile: Value = serde_json::from_str(&search.stdout()).expect("JSON");
    let paths = found(&profile);
    assert_eq!(paths[0][..2], ["find_entry", "resolve_bodies"], "{paths:?}");
    for pid in descendants(shell.pid()) {
        assert_eq!(listed(pid), None);
    }
}

/// `run --search --follow` searches in the program and in its children.
#[test]
fn a_search_follows_a_program_from_its_start() {
    let scratch = Scratch::new("later");
    let file = scratch.file("p.json");
    let script = format!(
        "{} lookup > /dev/null & sleep 8; kill $!; wait; exit 5",
        program("searched.c").display()
    );
    let run = Run::ipath(["run", "--search", "--follow", "-o"]).arg(&file);
    let run = run.args(["--", "bash", "-c", &script]).limit(3 * LIMIT);
    run.run().expect(5);
    let text = fs::read_to_string(&file).expect("a profile");
    let paths = found(&serde_json::from_str(&text).expect("JSON"));
    assert_eq!(paths[0][..2], ["find_entry", "resolve_bodies"], "{paths:?}");
}

/// The paths that a search has found, each with the function first and then its callers.
fn found(profile: &Value) -> Vec<Vec<String>> {
    let index = |value: &Value| value.as_u64().expect("an index") as usize;
    let path = |path: &Value| {
        let function = &profile["functions"][index(&path["function"])]["name"];
        let stack = path["stack"].as_array().expect("a stack").iter();
        let callers = stack.map(|frame| &profile["frames"][index(frame)]["function"]);
        let names = std::iter::once(function).chain(callers);
        names
            .map(|name| name.as_str().unwrap_or("?").to_owned())
            .collect()
    };
    let paths = profile["search"]["paths"].as_array().expect("paths");
    paths.iter().map(path).collect()
}
