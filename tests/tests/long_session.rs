//! A long session: its memory does not grow with the number of counted calls.

use ipath_tests::place::Scratch;
use ipath_tests::racing::segment_names;
use ipath_tests::redis;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Functions that every request calls, functions that some requests call, and the allocator.
const FUNCTIONS: [&str; 7] = [
    "processCommand",
    "call",
    "lookupKeyReadWithFlags",
    "addReply",
    "dictFind",
    "zmalloc",
    "zfree",
];

/// Memory in bytes, of the process and of its segment.
#[derive(Debug, Clone, Copy)]
struct Taken {
    process: u64,
    segment: u64,
}

/// The anonymous resident memory of a process, and the memory of its segment.
fn taken(pid: u32) -> Taken {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    let segment = fs::metadata(&segment_names(pid)[0]).expect("there");
    Taken {
        process: kib.expect("a number") * 1024,
        segment: segment.blocks() * 512,
    }
}

/// The memory of a server and of its session does not grow under load for one minute, or
/// `IPATH_TEST_MINUTES`. Many clients connect and disconnect during the session.
#[test]
fn server_takes_no_more_memory() {
    let given = std::env::var("IPATH_TEST_MINUTES").ok();
    let minutes: u64 = given.map_or(1, |n| n.parse().expect("minutes"));
    let dir = Scratch::new("long");
    let mut command = Command::new(redis::SERVER);
    command.args(redis::arguments(&dir));
    let mut server = Target::spawn(command);
    let socket = dir.file("socket");
    server.until(Duration::from_secs(30), "opened its socket", |_| {
        UnixStream::connect(&socket).is_ok()
    });
    let pid = server.pid();
    // The first round creates the keys, whose number stays constant. Each round has new clients.
    let load = || {
        let mut client = Command::new("redis-benchmark");
        client
            .arg("-s")
            .arg(&socket)
            .args(["-q", "-c", "20", "-n", "20000"]);
        client.args([
            "-r",
            "1000",
            "-d",
            "64",
            "-t",
            "set,get,incr,sadd,hset,zadd,mset",
        ]);
        let output = client.output().expect("started");
        assert!(output.status.success(), "{output:?}");
    };
    load();
    let session = Session::attach(pid, &FUNCTIONS);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut samples = Vec::new();
    while Instant::now() < end || samples.len() < 6 {
        load();
        samples.push(taken(pid));
    }
    let profile = session.detach();
    let (calls, requests) = (profile.calls("processCommand"), samples.len() * 7 * 20_000);
    println!(
        "{calls} calls; {:?} at first, {:?} in the end",
        samples[0],
        samples.last()
    );
    assert!(calls >= requests as u64, "{calls} of {requests} requests");
    profile.assert_complete("a server of Debian's");
    // Rare paths can still be new late in the session. Growth with the calls would be megabytes.
    const SLACK: u64 = 1 << 20;
    let half = samples.len() / 2;
    let most = |samples: &[Taken]| {
        let process = samples.iter().map(|t| t.process).max();
        (
            process.unwrap_or(0),
            samples.iter().map(|t| t.segment).max().unwrap_or(0),
        )
    };
    let (first, second) = (most(&samples[..half]), most(&samples[half..]));
    assert!(
        second.0 <= first.0 + SLACK,
        "process: {first:?}, then {second:?}"
    );
    assert!(
        second.1 <= first.1 + SLACK,
        "segment: {first:?}, then {second:?}"
    );
    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.wait(Duration::from_secs(30));
}
