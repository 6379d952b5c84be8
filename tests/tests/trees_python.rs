//! A running Python service with its workers, measured as one.

use ipath_tests::command::Run;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::target::{Target, descendants};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A Python service with workers that it forked before the session.
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
