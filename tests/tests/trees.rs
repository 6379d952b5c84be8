//! Running processes with their children, measured as one. The counts of each are exact, and one
//! line names each process that cannot be measured.

use ipath_tests::command::{Finished, NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::elf32;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::listed;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::{Target, descendants};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// By process id: the function that called `work`, and the number of its calls.
type Counts = BTreeMap<u32, (String, u64)>;

/// A server with workers that wait for a file.
struct Server {
    target: Target,
    scratch: Scratch,
    workers: usize,
}

impl Server {
    /// Starts ipath with these additional options, which follows the server and its workers. They
    /// then start two more processes. Returns ipath and the counts of all processes.
    fn followed(&mut self, options: &[&str]) -> (Target, Counts) {
        let mut command = Command::new(ipath());
        command.args([
            "attach",
            &self.pid(),
            "--children",
            "--follow",
            "-f",
            "work",
        ]);
        command.arg("--no-tui").args(options);
        let mut attach = Target::spawn(command);
        let helper = "(sleep) is not measured: no function matches 'work'";
        attach.until(LIMIT, "said what is not measured", |t| {
            t.stderr().contains(helper)
        });
        let before = self.counts();
        self.allow("more");
        (attach, self.counts_of(before.len() + 2))
    }

    fn start(workers: usize) -> Self {
        Self::start_with(workers, &[])
    }

    /// Starts it with these variables in its environment.
    fn start_with(workers: usize, environment: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("workers");
        let mut command = Command::new(program("workers.c"));
        command.envs(environment.iter().copied());
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

    /// The ids of its descendants, including the helper.
    fn children(&self) -> Vec<u32> {
        descendants(self.target.pid())
    }

    /// Lets the processes work. Returns their own counts.
    fn counts(&mut self) -> Counts {
        self.allow("go");
        self.counts_of(self.workers + 2)
    }

    /// The counts of `all` processes, after all have worked.
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

    /// Creates a file for which processes wait.
    fn allow(&self, what: &str) {
        fs::write(self.scratch.file(what), "").expect("an own folder");
    }
}

/// The calls of `work` in a profile whose paths are kept apart by process.
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

/// The calls of each worker of a server are exact. One worker ends during the session, and another
/// one executed a different program before.
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
    // The server reaps it at the end.
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

/// A worker that waits in vfork(2) cannot be stopped. It is measured as soon as its child has
/// ended. The others are measured in the meantime.
#[test]
fn a_worker_in_vfork_does_not_delay_the_others() {
    for options in [&[][..], &["--follow"]] {
        let mut server = Server::start_with(3, &[("VFORKS", "1")]);
        let is_waiting = |pid: &u32| state(*pid) == 'D';
        let waiting = server.children().into_iter().find(is_waiting);
        let waiting = waiting.expect("a worker in vfork");
        let file = server.scratch.file("p.json");
        let mut command = Command::new(ipath());
        command.args(["attach", &server.pid(), "--children", "--per-process"]);
        command.args(["-f", "work", "--no-tui", "--interval", "50ms", "-o"]);
        let mut attach = Target::spawn({
            command.arg(&file).args(options);
            command
        });
        attach.until(LIMIT, "printed a summary", |t| {
            t.stdout().contains("in all")
        });
        assert!(is_waiting(&waiting) && listed(waiting).is_none());
        server.allow("go");
        server.counts_of(4);
        server.allow("child");
        let is_measured = |_: &Target| listed(waiting).is_some();
        attach.until(LIMIT, "measured the worker", is_measured);
        server.allow("again");
        let counts = server.counts_of(5);
        attach.signal(Signal::SIGINT);
        assert!(attach.wait(LIMIT).success(), "{}", attach.report());
        assert_eq!(measured(&file), counts, "{}", attach.report());
        let text: Value =
            serde_json::from_str(&fs::read_to_string(&file).expect("a profile")).expect("JSON");
        let processes = text["processes"].as_array().expect("processes");
        let elapsed = |process: &Value| process["elapsed_ns"].as_u64().expect("a time");
        let (late, others): (Vec<_>, Vec<_>) = processes
            .iter()
            .partition(|process| process["pid"] == waiting);
        assert_eq!((late.len(), others.len()), (1, 4));
        assert!(others.iter().all(|other| elapsed(other) > elapsed(late[0])));
        server.target.finish("ok");
    }
}

/// With `--follow`, processes that the tree starts later are measured, too.
#[test]
fn later_children_of_a_tree_are_followed() {
    let mut server = Server::start(3);
    let file = server.scratch.file("p.json");
    let (mut attach, counts) = server.followed(&["--per-process", "-o", &file.to_string_lossy()]);
    attach.signal(Signal::SIGINT);
    assert!(attach.wait(LIMIT).success(), "{}", attach.report());
    assert_eq!(measured(&file), counts);
    for pid in server.children() {
        assert_eq!(listed(pid), None);
    }
    server.target.finish("ok");
}

/// After `ipath` is killed, `detach` of the first process also removes the sessions of the
/// processes that have ended. Their calls are in its profile.
#[test]
fn detach_removes_what_ended_processes_have_left() {
    let mut server = Server::start(3);
    let pid = server.pid();
    let (mut attach, counts) = server.followed(&[]);
    attach.signal(Signal::SIGKILL);
    attach.wait(LIMIT);
    let measured_pids: Vec<u32> = counts.keys().copied().collect();
    let of_caller = |name: &str| {
        let mut of_name = counts.iter().filter(|(_, (caller, _))| caller == name);
        *of_name.next().expect("a process").0
    };
    let (late, grandchild) = (of_caller("in_late"), of_caller("in_grandchild"));
    for pid in [late, grandchild] {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("a process");
    }
    server.allow("end");
    let first = counts.iter().find(|(_, c)| c.1 == 100).expect("a worker");
    for pid in [*first.0, late, grandchild] {
        let is_over = |_: &Target| state(pid) == 'Z';
        server.target.until(LIMIT, "ended a process", is_over);
    }
    let file = server.scratch.file("p.json");
    let detach = Run::ipath(["detach", &pid, "-o"]).arg(&file).run();
    let said = detach.expect(0).stderr;
    assert!(said.contains("3 of its processes had ended"), "{said}");
    let all: u64 = counts.values().map(|(_, count)| count).sum();
    assert_eq!(Profile::read(&file).calls("work"), all);
    let names = fs::read_dir("/dev/shm").expect("there").flatten();
    let names: Vec<String> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for pid in measured_pids {
        let own = format!("ipath-{pid}-");
        assert!(!names.iter().any(|name| name.starts_with(&own)), "{pid}");
    }
    server.target.finish("ok");
}

/// A process that was forked from a measured one has inherited its jumps. They are not mistaken for
/// another tool's patches.
#[test]
fn jumps_inherited_from_the_parent_are_named() {
    let mut server = Server::start(1);
    let pid = server.pid();
    let attach = ["attach", &pid, "-f", "work", "--keep", "--quiet"];
    Run::ipath(attach)
        .args(["--duration", "1ms"])
        .run()
        .expect(0);
    server.allow("go");
    let before = server.counts_of(2);
    server.allow("more");
    let counts = server.counts_of(before.len() + 1);
    let mut late = counts.iter().filter(|(_, (by, _))| by == "in_late");
    let late = late.next().expect("a child").0.to_string();
    let attach = || Run::ipath(["attach", &late, "-f", "work", "--duration", "1ms"]).run();
    let refused = attach();
    let said = refused.expect_error();
    assert!(said.contains("has jumps of its parent's session"), "{said}");
    let hints = refused.hints();
    assert!(hints.contains(&format!("`ipath detach {pid}`")), "{hints}");
    Run::ipath(["detach", &pid]).run().expect(0);
    let hints = attach().hints();
    assert!(hints.contains("start the process again"), "{hints}");
    let both = [
        "attach",
        &late,
        "-f",
        "work",
        "-f",
        "in_late",
        "--duration",
        "1ms",
    ];
    let both = Run::ipath(both).run().expect(0).stderr;
    assert!(
        both.contains("work: not instrumented: inherited-jumps"),
        "{both}"
    );
    server.target.finish("ok");
}

/// The state letter of a process's first thread (proc(5)), or Z if it does not exist.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.unwrap_or('Z')
}

/// With the id of the first process, commands change and read the sessions of all processes.
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
    // Without a function, `attach` shows the existing sessions.
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

/// Descendants that cannot be measured do not prevent measuring the others. It is an error if none
/// is left.
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

/// A 32-bit descendant is not measured. In addition, an unprivileged user cannot measure other
/// users' processes.
#[test]
fn descendants_of_another_kind_are_said() {
    let scratch = Scratch::public("trees");
    let other = scratch.file("other");
    elf32::write(&other);
    let folder = scratch.path().display();
    // An unprivileged user cannot start the program as another user.
    let as_nobody = if nix::unistd::geteuid().is_root() {
        format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups ")
    } else {
        String::new()
    };
    let script = format!(
        "chmod 777 {folder}; {0} & WORKED={folder} {as_nobody}{1} 2 & wait",
        other.display(),
        program("workers.c").display()
    );
    let shell = Target::start("bash", ["-c", &script]).await_output("ready");
    let pid = shell.pid().to_string();
    let all = Run::ipath(["attach", &pid, "--children", "-f", "work", "--quiet"]);
    let all = all.args(["--duration", "1ms"]).run().expect(0);
    let said = |finished: &Finished, name: &str, why: &str| {
        let head = format!("({name}) is not measured: ");
        let is_it = |line: &&str| line.contains(&head) && line.contains(why);
        assert_eq!(
            finished.stderr.lines().filter(is_it).count(),
            1,
            "{}",
            finished.report()
        );
    };
    said(&all, "other", "32-bit");
    said(&all, "bash", "no function matches 'work'");
    if as_nobody.is_empty() {
        return;
    }
    let file = scratch.file("p.json");
    let own = Run::ipath(["attach", &pid, "--children", "-f", "work", "--quiet", "-o"]);
    let own = own
        .arg(&file)
        .args(["--duration", "1ms"])
        .as_nobody()
        .run()
        .expect(0);
    let lines = own
        .stderr
        .lines()
        .filter(|line| line.contains("is not measured"));
    // The shell, the 32-bit program and the helper.
    assert_eq!(lines.count(), 3, "{}", own.report());
    let text = fs::read_to_string(&file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(profile["processes"].as_array().map(Vec::len), Some(4));
}

/// The pid of the process that traces the first thread of a process, or 0 if there is none.
fn tracer(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}
