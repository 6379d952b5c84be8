//! Child processes are measured as well. Each process counts its own work, and ipath's sums must be
//! equal.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::redis;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The number of calls of `work` by the caller's name.
type Worked = BTreeMap<String, u64>;

/// The counts that the processes of a program wrote themselves.
fn told(folder: &Path) -> Worked {
    let mut worked = Worked::new();
    for entry in fs::read_dir(folder).expect("a folder of its own") {
        let path = entry.expect("there").path();
        for line in fs::read_to_string(path).expect("a file").lines() {
            let (who, calls) = line.split_once(' ').expect("two words");
            let calls: u64 = calls.parse().expect("a number");
            if calls > 0 {
                *worked.entry(who.to_owned()).or_default() += calls;
            }
        }
    }
    worked
}

/// The counts in a profile, in which no call is lost and every path is complete.
fn measured(profile: &Profile) -> Worked {
    let mut worked = Worked::new();
    profile.assert_lossless();
    for path in &profile.paths {
        assert!(path.complete, "{path:?}");
        let caller = &profile.frames[path.stack[0]];
        let caller = caller.function.clone().expect("a name");
        let count = path.metrics["count"].as_u64().expect("a count");
        *worked.entry(caller).or_default() += count;
    }
    worked
}

/// Follows a command that ends with status 3, and checks that ipath's counts are those of its
/// processes. Returns the command's output and the profile.
fn run(scratch: &Scratch, arguments: &[&str]) -> (String, Profile) {
    let (file, folder) = (scratch.file("profile.json"), scratch.file("worked"));
    fs::create_dir(&folder).expect("a folder of its own");
    let finished = Run::ipath(["run", "--follow", "--quiet", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .args(arguments)
        .env("WORKED", &folder)
        .limit(LIMIT)
        .run()
        .expect(3);
    let profile = Profile::read(&file);
    assert_eq!(measured(&profile), told(&folder), "{}", finished.report());
    (finished.stdout.clone(), profile)
}

/// Follows a program that starts processes in this way and so many times. Checks the counts and the
/// number of processes in the profile.
fn followed(way: &str, times: usize, processes: usize) {
    let scratch = Scratch::new("follow");
    let program = program("followed.c");
    let program = program.to_str().expect("a path");
    let (output, profile) = run(&scratch, &[program, way, &times.to_string()]);
    assert_eq!(
        (output.as_str(), profile.target.exe.as_str()),
        ("done\n", program)
    );
    let found = profile.processes.len();
    assert_eq!(found, processes, "{way}: {:?}", profile.processes);
}

#[test]
fn fork_is_followed() {
    followed("fork", 20, 21);
}

/// 500 children, one after the other.
#[test]
fn fork_storm_followed() {
    followed("fork", 500, 501);
}

#[test]
fn daemon_is_followed() {
    followed("daemon", 10, 21);
}

/// A child has its parent's functions until it executes another program.
#[test]
fn exec_of_a_child_is_followed() {
    followed("exec", 10, 21);
}

/// Programs without a loader are measured from their start.
#[test]
fn static_programs_are_followed() {
    for flags in [&["-static"][..], &["-static-pie", "-fPIE"]] {
        let scratch = Scratch::new("follow");
        let program = program_with("followed.c", flags);
        let program = program.to_str().expect("a path");
        let (_, profile) = run(&scratch, &[program, "exec", "10"]);
        assert_eq!(profile.processes.len(), 21, "{:?}", profile.processes);
    }
}

#[test]
fn vfork_is_followed() {
    followed("vfork", 10, 11);
}

#[test]
fn posix_spawn_is_followed() {
    followed("spawn", 10, 11);
}

#[test]
fn clone_vm_is_followed() {
    followed("clone_vm", 10, 11);
}

/// Children that are started by threads are followed.
#[test]
fn children_of_threads() {
    followed("thread", 10, 31);
}

/// Children whose second thread executes another program are followed.
#[test]
fn exec_in_a_thread() {
    followed("exec_in_thread", 10, 21);
}

/// Children that children start are followed.
#[test]
fn children_of_children() {
    followed("generations", 6, 1 + 6 * 7 / 2);
}

/// A process's signal handling is unchanged, and so is the status that its parent sees.
#[test]
fn signals_and_stops_are_the_programs() {
    followed("signals", 5, 6);
}

/// `attach --follow` measures a running process and all processes that it starts from then on.
#[test]
fn attached_and_followed() {
    let scratch = Scratch::new("follow");
    let (file, folder) = (scratch.file("profile.json"), scratch.file("worked"));
    fs::create_dir(&folder).expect("a folder of its own");
    let mut command = Command::new(program("followed.c"));
    command.args(["all", "3", "wait"]).env("WORKED", &folder);
    let mut target = Target::spawn(command).await_output("ready");
    let mut ipath = attached(target.pid(), &file);
    go_on(&folder);
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
    let status = ipath.wait(LIMIT);
    assert!(status.success(), "{status}: {}", ipath.report());
    assert_eq!(measured(&Profile::read(&file)), told(&folder));
}

/// An `attach --follow` that has printed its first report.
fn attached(pid: u32, file: &Path) -> Target {
    let mut command = Command::new(ipath());
    command.args(["attach", &pid.to_string(), "--follow", "--no-tui"]);
    command.args(["-f", "work", "-o"]).arg(file);
    Target::spawn(command).await_output("work")
}

/// An `attach --follow` for a limited time.
fn following(target: &Target, function: &str, duration: &str) -> Target {
    let mut command = Command::new(ipath());
    command.args(["attach", &target.pid().to_string(), "--follow", "--quiet"]);
    command.args(["-f", function, "--duration", duration]);
    Target::spawn(command)
}

/// Lets a program continue that waits for a file beside `folder`.
fn go_on(folder: &Path) {
    fs::write(folder.with_extension("go"), "").expect("a file of its own");
}

/// Detaching leaves nothing in a followed process and its children, and all continue.
#[test]
fn detached_amid_children() {
    let scratch = Scratch::new("follow");
    let (file, folder) = (scratch.file("profile.json"), scratch.file("worked"));
    fs::create_dir(&folder).expect("a folder of its own");
    let mut command = Command::new(program("followed.c"));
    command
        .args(["fork", "3000", "wait"])
        .env("WORKED", &folder);
    let mut target = Target::spawn(command).await_output("ready");
    let pid = target.pid();
    let before = ProcessState::of(pid);
    let mut ipath = attached(pid, &file);
    go_on(&folder);
    let children = || fs::read_dir(&folder).map_or(0, Iterator::count);
    target.until(LIMIT, "begun children", |_| children() > 20);
    ipath.signal(Signal::SIGINT);
    let status = ipath.wait(LIMIT);
    assert!(status.success(), "{status}: {}", ipath.report());
    let mut differences = before.differences(&ProcessState::of(pid));
    // It maps more memory as it continues.
    differences.retain(|line| line.starts_with("text") || line.starts_with("/dev/shm"));
    assert_eq!(differences, Vec::<String>::new());
    assert_eq!(ProcessState::session_in(pid), Vec::<String>::new());
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
    let calls = Profile::read(&file).calls("work");
    assert!(calls > 20, "{calls}");
}

/// Other commands see followed processes as one session, and change nothing there. After a kill of
/// ipath all processes continue, and its remains are removed.
#[test]
fn killed_while_following() {
    let scratch = Scratch::new("follow");
    let (file, folder) = (scratch.file("profile.json"), scratch.file("worked"));
    fs::create_dir(&folder).expect("a folder of its own");
    let mut command = Command::new(program("followed.c"));
    command
        .args(["fork", "2000", "wait"])
        .env("WORKED", &folder);
    let mut target = Target::spawn(command).await_output("ready");
    let pid = target.pid();
    let id = pid.to_string();
    let ipath = attached(pid, &file);
    let refused = Run::ipath(["add", &id, "-f", "in_child"]).run();
    let error = refused.expect_error();
    assert!(error.contains("ipath-follows"), "{}", refused.report());
    assert!(
        refused.hints().contains(&format!("kill {}", ipath.pid())),
        "{}",
        refused.report()
    );
    go_on(&folder);
    let children = || fs::read_dir(&folder).map_or(0, Iterator::count);
    target.until(LIMIT, "begun children", |_| children() > 20);
    Run::ipath(["snapshot", &id, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    assert!(Profile::read(&file).calls("work") > 0);
    ipath.signal(Signal::SIGKILL);
    let before = children();
    target.until(LIMIT, "gone on", |_| children() > before + 20);
    Run::ipath(["detach", &id]).run().expect(0);
    assert_eq!(ProcessState::session_in(pid), Vec::<String>::new());
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
}

/// A server that daemonizes is followed to the process that serves. Its calls for a script equal
/// those in the foreground.
#[test]
fn daemonising_server_is_followed_to_the_process_that_serves() {
    let played = |options: &[&str], more: &[&str]| {
        let folder = Scratch::public("redis");
        let file = folder.file("p.json");
        let mut command = Command::new(ipath());
        command.args(["run", "--quiet", "-f", "lookupKey"]);
        command.args(options).arg("-o").arg(&file).arg("--");
        command.arg(redis::SERVER).args(redis::arguments(&folder));
        command.args(more);
        let session = redis::play(command, &folder);
        assert_eq!(session.code, Some(0), "{}", session.output);
        (session.answers, Profile::read(&file))
    };
    let (answers, foreground) = played(&[], &[]);
    let (as_daemon, followed) = played(&["--follow"], &["--daemonize", "yes"]);
    assert_eq!(as_daemon, answers);
    assert!(foreground.calls("lookupKey") > 0);
    assert_eq!(measured(&followed), measured(&foreground));
    assert!(followed.processes.len() > 1, "{:?}", followed.processes);
}

/// Writes a small C project that two jobs of make build, each in a shell.
fn project(folder: &Path) {
    let mut makefile = String::from("prog: main.o f1.o f2.o f3.o f4.o\n\tgcc -o prog $^ && true\n");
    makefile += "%.o: %.c\n\tgcc -O2 -c $< -o $@ && true\n";
    fs::write(folder.join("Makefile"), makefile).expect("a folder of its own");
    fs::write(folder.join("main.c"), "int main(void) { return 0; }\n").expect("the same");
    for n in 1..5 {
        let text = format!("int f{n}(int x) {{ return x * {n}; }}\n");
        fs::write(folder.join(format!("f{n}.c")), text).expect("the same");
    }
}

/// A build: every program that make starts through shells is measured. Its calls of getenv equal
/// those of a kernel uprobe.
///
/// The uprobe is in a separate C library, for all processes: perf silently loses calls when it
/// records one process and those that it starts.
#[test]
fn make_with_two_jobs() {
    const EVENT: &str = "ipath_follow";
    const PROGRAMS: [&str; 5] = ["make", "cc1", "as", "collect2", "ld"];
    let folders = [Scratch::new("make"), Scratch::new("make")];
    folders.iter().for_each(|folder| project(folder.path()));
    let libc = folders[0].file("libc.so.6");
    fs::copy("/lib/x86_64-linux-gnu/libc.so.6", &libc).expect("a copy of the C library");
    let make = |folder: &Scratch| {
        ["make", "-j2", "-C"]
            .map(str::to_owned)
            .into_iter()
            .chain([folder.path().display().to_string()])
    };

    let probe = |arguments: [&str; 2]| Run::new("perf").args(["probe", "-q"]).args(arguments);
    let _ = probe(["-d", &format!("probe_libc:{EVENT}")]).run();
    let added = format!("{EVENT}=getenv");
    let add = Run::new("perf").args(["probe", "-q", "-x"]).arg(&libc);
    add.args(["--add", &added]).run().expect(0);
    let data = folders[0].file("perf.data");
    let event = format!("probe_libc:{EVENT}");
    let recorded = Run::new("perf")
        .args(["record", "-q", "-a", "-e", &event, "-o"])
        .arg(&data)
        .arg("env")
        .arg(format!("LD_LIBRARY_PATH={}", folders[0].path().display()))
        .args(make(&folders[0]))
        .run();
    let _ = probe(["-d", &event]).run();
    recorded.expect(0);
    let script = Run::new("perf")
        .args(["script", "-F", "comm", "-i"])
        .arg(&data);
    let mut expected = Worked::new();
    for comm in script.run().expect(0).stdout.lines() {
        *expected.entry(comm.trim().to_owned()).or_default() += 1;
    }
    expected.retain(|program, _| PROGRAMS.contains(&program.as_str()));
    assert_eq!(expected.len(), PROGRAMS.len(), "{expected:?}");

    let file = folders[1].file("p.json");
    Run::ipath([
        "run",
        "--follow",
        "-m",
        "count",
        "-f",
        "libc.so*!getenv",
        "-o",
    ])
    .arg(&file)
    .arg("--")
    .args(make(&folders[1]))
    .limit(LIMIT)
    .run()
    .expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let mut found = Worked::new();
    for path in &profile.paths {
        let root = &profile.frames[*path.stack.last().expect("a caller")];
        let module = &profile.modules[root.module.expect("code of a file")];
        let name = Path::new(&module.path).file_name().expect("a file");
        let name = name.to_string_lossy().replace("x86_64-linux-gnu-", "");
        let name = name.strip_suffix(".bfd").unwrap_or(&name).to_owned();
        *found.entry(name).or_default() += path.metrics["count"].as_u64().expect("a count");
    }
    let shells = profile.processes.iter().filter(|p| p.exe.ends_with("sh"));
    assert!(shells.count() >= 6, "{:?}", profile.processes);
    found.retain(|program, _| PROGRAMS.contains(&program.as_str()));
    assert_eq!(found, expected);
}

/// A child that resumes in the middle of a call's recording continues. If it cannot be measured,
/// the report says so.
#[test]
fn forked_in_a_handler() {
    const MUSL: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";
    const FOLLOW: &[&str] = &["--follow"];
    let ways: [(&[&str], &[&str], &str); 6] = [
        (FOLLOW, &[], "count,wall"),
        (&[], &[], "count,wall"),
        (FOLLOW, &[], "count"),
        (&[], &[], "count"),
        (&[], &["-static"], "count,wall"),
        (&[], &["-static", MUSL], "count,wall"),
    ];
    for (options, flags, metrics) in ways {
        let finished = Run::ipath(["run", "--quiet", "-f", "work", "-m", metrics])
            .args(options)
            .arg("--")
            .arg(program_with("forked_in_handler.c", flags))
            .limit(LIMIT)
            .run()
            .expect(0);
        assert_eq!(finished.stdout, "bad 0\n", "{}", finished.report());
    }
}

/// If too many functions match, the error says so rather than "none", and the hint names the
/// option.
#[test]
fn more_functions_than_may_be_meant() {
    let run = |options: &[&str]| {
        let run = Run::ipath(["run", "--follow", "--quiet", "-f", "bash!*"]).args(options);
        run.args(["--", "env", "bash", "-c", "true"]).run()
    };
    let refused = run(&[]).expect(1);
    for said in [
        "bash is not measured: ",
        ": more than 64 functions match 'bash!*'",
    ] {
        assert!(refused.stderr.contains(said), "{}", refused.report());
    }
    assert!(refused.hints().contains("--yes"), "{}", refused.report());
    run(&["--yes", "-m", "count"]).expect(0);
}

/// A pattern that matches in no program is reported, even if other patterns match.
#[test]
fn named_in_no_program() {
    let run = Run::ipath(["run", "--follow", "--quiet", "-m", "count"])
        .args(["-f", "work", "-f", "misspelt", "-f", "execvp"]);
    let program = program("followed.c").display().to_string();
    let script = format!("{program} fork 2; true");
    let run = run.args(["--", "env", "sh", "-c", &script]).run().expect(0);
    assert!(
        run.stderr
            .contains("no function in it matches 'misspelt', nor in any of the "),
        "{}",
        run.report()
    );
}

/// If a process is killed while it forks, its child is measured, or reported as not measured.
#[test]
fn killed_while_they_fork() {
    let scratch = Scratch::new("follow");
    let file = scratch.file("p.json");
    let run = Run::ipath([
        "run", "--follow", "--quiet", "-f", "work", "-m", "count", "-o",
    ]);
    let run = run.arg(&file).arg("--").arg(program("killed_forking.c"));
    let run = run.args(["100"]).limit(LIMIT).run().expect(0);
    let worked: u64 = run
        .stdout
        .trim()
        .rsplit(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("calls");
    let profile = Profile::read(&file);
    let orphans = profile.session.notes.iter().find_map(|note| {
        let number = note.strip_suffix(
            " processes are not included, because their parents were killed during the fork",
        )?;
        number.parse::<u64>().ok()
    });
    println!("{worked} calls, {orphans:?} processes not measured");
    assert_eq!(
        profile.calls("work") + orphans.unwrap_or(0),
        worked,
        "{}",
        run.report()
    );
}

/// A tree is named after the command that was started, and each process has its share of the cost.
#[test]
fn each_process_has_its_part_of_a_followed_tree() {
    let scratch = Scratch::new("follow");
    let file = scratch.file("p.json");
    let script = format!(
        "{0} fork 2; {0} spawn 1; true",
        program("followed.c").display()
    );
    let folder = scratch.file("worked");
    fs::create_dir(&folder).expect("a folder of its own");
    Run::ipath(["run", "--follow", "--per-process", "--quiet", "-f", "work"])
        .arg("-o")
        .arg(&file)
        .args(["--", "sh", "-c", &script])
        .env("WORKED", &folder)
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    assert!(profile.target.exe.ends_with("sh"), "{:?}", profile.target);
    let text: Value = serde_json::from_slice(&fs::read(&file).expect("a profile")).expect("JSON");
    assert_eq!(text["target"]["args"][2], script.as_str());
    let function = &text["functions"][0];
    let parts = function["processes"].as_array().expect("parts");
    let mut by_pid: BTreeMap<u64, u64> = BTreeMap::new();
    for part in parts {
        let process = part["process"].as_u64().expect("an index") as usize;
        let pid = text["processes"][process]["pid"].as_u64().expect("an id");
        *by_pid.entry(pid).or_default() += part["count"].as_u64().expect("a count");
    }
    let mut by_paths: BTreeMap<u64, u64> = BTreeMap::new();
    for path in text["paths"].as_array().expect("paths") {
        let process = path["process"].as_u64().expect("an index") as usize;
        let pid = text["processes"][process]["pid"].as_u64().expect("an id");
        let count = path["metrics"]["count"].as_u64().expect("a count");
        *by_paths.entry(pid).or_default() += count;
    }
    assert_eq!(by_paths, by_pid);
    // Each process wrote its counts to its own file.
    let mut told: Vec<u64> = Vec::new();
    for entry in fs::read_dir(&folder).expect("a folder of its own") {
        let text = fs::read_to_string(entry.expect("there").path()).expect("a file");
        let calls = text
            .lines()
            .map(|l| l.split_once(' ').expect("two words").1);
        told.push(
            calls
                .map(|calls| calls.parse::<u64>().expect("a number"))
                .sum(),
        );
    }
    told.retain(|&calls| calls > 0);
    told.sort_unstable();
    let mut found: Vec<u64> = by_pid.into_values().collect();
    found.sort_unstable();
    assert_eq!(found, told);
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    let command = format!(" -c {script}\n");
    assert!(report.contains(&command), "{report}");
    assert!(report.contains("called in "), "{report}");
}

/// Sends each thread of a process a signal that is ignored by default.
fn tell_threads(pid: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for tid in tids {
        // SAFETY: takes no pointer. It fails if the thread has ended.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGURG) };
    }
}

/// A process that constantly starts others, and waits for them in vfork(2), still stops whenever
/// following begins or ends.
#[test]
fn followed_amid_spawning() {
    const ROUNDS: usize = 12;
    for way in ["spawn", "vfork"] {
        let scratch = Scratch::new("follow");
        let folder = scratch.file("worked");
        fs::create_dir(&folder).expect("a folder of its own");
        let mut command = Command::new(program("followed.c"));
        command
            .args([way, "1000000", "wait"])
            .env("WORKED", &folder);
        let target = Target::spawn(command).await_output("ready");
        go_on(&folder);
        for _ in 0..ROUNDS {
            let mut ipath = following(&target, "work", "100ms");
            assert!(ipath.wait(LIMIT).success(), "{way}: {}", ipath.report());
        }
        target.signal(Signal::SIGKILL);
    }
}

/// System calls that following interrupts resume, and ignored signals do not end them.
#[test]
fn interrupted_calls_go_on() {
    const ROUNDS: usize = 12;
    let targets = ["syscalls.c", "sleeper.c"];
    let targets = targets.map(|p| Target::start(program(p), ["600"]).await_output("ready"));
    for _ in 0..ROUNDS {
        for target in &targets {
            let mut ipath = following(target, "tick", "300ms");
            while ipath.poll().is_none() {
                tell_threads(target.pid());
                std::thread::sleep(Duration::from_millis(7));
            }
            assert!(ipath.wait(LIMIT).success(), "{}", ipath.report());
        }
    }
    for target in targets {
        target.finish("ok calls ");
    }
}
