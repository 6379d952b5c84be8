//! `ipath serve-metrics`: the served values are those of the session, as promtool and Prometheus'
//! own OpenMetrics parser understand them.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::racing::rounds;
use ipath_tests::target::Target;
use ipath_tests::tools::python;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Prints the calls of each function, and of each bucket, that prometheus_client reads.
const READER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
found = {}
for family in read(open(sys.argv[1]).read()):
    for s in family.samples:
        if s.name == 'ipath_calls_total' or s.name.endswith('_count') or s.labels.get('le') == '+Inf':
            key = s.name + ' ' + s.labels['function'] + ' ' + s.labels.get('under', '')
            found[key] = found.get(key, 0) + s.value
print(json.dumps(found))
";

/// Writes the answer of a URL to a file.
///
/// # Panics
/// If the server does not answer with success.
fn fetch(url: &str, accept: &str, into: &Path) {
    Run::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "30",
            "-H",
        ])
        .arg(format!("Accept: {accept}"))
        .arg("-o")
        .arg(into)
        .arg(url)
        .run()
        .expect(0);
}

#[test]
fn metrics_are_those_of_the_session() {
    let scratch = Scratch::new("serve");
    let target = Target::start(program("many_paths.c"), ["4", "0", "500"]).await_output("ready");
    let pid = target.pid().to_string();
    Run::ipath([
        "attach",
        &pid,
        "-f",
        "leaf",
        "--keep",
        "--quiet",
        "--duration",
        "1s",
    ])
    .run()
    .expect(0);
    let mut command = Command::new(ipath());
    command.args([
        "serve-metrics",
        &pid,
        "--listen",
        "127.0.0.1:0",
        "--under",
        "walk",
        "--under",
        "wlak",
    ]);
    let mut server = Target::spawn(command);
    server.until(Duration::from_secs(60), "its address", |server| {
        server.stdout().contains("/metrics\n")
    });
    assert_eq!(
        server.stderr(),
        "ipath: serve-metrics: no path passes through `wlak` so far\n"
    );
    let url = server.stdout().trim().to_owned();
    // A reading between two profiles lies between them.
    let (before, after) = (scratch.file("before.json"), scratch.file("after.json"));
    Run::ipath(["snapshot", &pid, "-o"])
        .arg(&before)
        .run()
        .expect(0);
    let page = scratch.file("open.txt");
    fetch(&url, "application/openmetrics-text;version=1.0.0", &page);
    Run::ipath(["snapshot", &pid, "-o"])
        .arg(&after)
        .run()
        .expect(0);
    let script = scratch.file("read.py");
    fs::write(&script, READER).expect("a file of its own");
    let read = Run::new(python()).arg(&script).arg(&page).run().expect(0);
    let read: Value = read.json();
    let calls = read["ipath_calls_total leaf walk"].as_f64().expect("calls") as u64;
    let between = Profile::read(&before).calls("leaf")..=Profile::read(&after).calls("leaf");
    assert!(between.contains(&calls), "{calls}: {between:?}");
    let count = &read["ipath_wall_seconds_count leaf walk"];
    assert_eq!(count, &read["ipath_wall_seconds_bucket leaf walk"]);
    assert!(count.as_f64().expect("a count") as u64 <= calls);
    // For a client that does not request OpenMetrics.
    let page = scratch.file("text.txt");
    fetch(&url, "text/plain", &page);
    let checked = Run::new("promtool")
        .args(["check", "metrics"])
        .stdin(&page)
        .run();
    assert_eq!(checked.code(), 0, "{}", checked.report());
    let elsewhere = url.replace("/metrics", "/");
    let missing = Run::new("curl")
        .args(["--silent", "--fail", &elsewhere])
        .run();
    assert_eq!(missing.code(), 22, "{}", missing.report());
    let posted = Run::new("curl")
        .args(["--silent", "--head", "--request", "POST", &url])
        .run()
        .expect(0);
    assert!(
        posted.stdout.starts_with("HTTP/1.1 405 "),
        "{}",
        posted.report()
    );
    assert!(
        posted.stdout.contains("Allow: GET, HEAD\r\n"),
        "{}",
        posted.report()
    );
    // It ends with the session.
    Run::ipath(["detach", &pid]).run().expect(0);
    let status = server.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", server.report());
    target.signal(Signal::SIGKILL);
}

/// The number of retransmitted packets of a new connection: `tcpi_total_retrans` of tcp(7).
fn resent(stream: &TcpStream) -> u32 {
    // SAFETY: plain integers, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (level, option, to) = (libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast());
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes.
    let got = unsafe { libc::getsockopt(stream.as_raw_fd(), level, option, to, &raw mut len) };
    assert_eq!(got, 0, "{}", std::io::Error::last_os_error());
    info.tcpi_total_retrans
}

/// Clients that hang up cost neither threads nor the answers of other clients.
#[test]
fn clients_that_hang_up_do_not_stop_the_server() {
    let scratch = Scratch::new("serve");
    let target = Target::start(program("many_paths.c"), ["4", "0", "500"]).await_output("ready");
    let pid = target.pid().to_string();
    Run::ipath(["attach", &pid, "-f", "leaf", "--keep", "--quiet"])
        .args(["--duration", "1s"])
        .run()
        .expect(0);
    let mut command = Command::new(ipath());
    command.args(["serve-metrics", &pid, "--listen", "127.0.0.1:0"]);
    let mut server = Target::spawn(command);
    server.until(Duration::from_secs(60), "its address", |server| {
        server.stdout().contains("/metrics\n")
    });
    let url = server.stdout().trim().to_owned();
    let address = url.trim_start_matches("http://");
    let address = address.trim_end_matches("/metrics").to_owned();
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid()));
        tasks.expect("its threads").count()
    };
    let (mut most, mut dropped) = (0, 0);
    let mut connect = || {
        let stream = TcpStream::connect(&address).expect("a connection");
        dropped += resent(&stream);
        stream
    };
    let count = rounds(1000);
    for number in 0..count {
        let mut stream = connect();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("asked");
        // Some close only their sending half, and some reset the connection with the answer unread.
        if number % 3 == 0 {
            stream.shutdown(Shutdown::Write).expect("closed");
        }
        most = most.max(threads());
    }
    // Some connect and stay silent.
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(connect());
        most = most.max(threads());
        // The program does not need the connections that the server has closed.
        if silent.len() > 500 {
            silent.remove(0);
        }
    }
    // The total for all clients: 64 connections, threads that are ending, and the command's own
    // threads.
    assert!(most < 2 * 64, "{most} threads");
    // If a busy machine delays the server, one client has to ask again after a second. If silent
    // clients block the server, nearly all clients have to.
    assert!(
        dropped <= count as u32 / 10,
        "{dropped} of {} connections",
        2 * count
    );
    let page = scratch.file("page.txt");
    fetch(&url, "text/plain", &page);
    let text = fs::read_to_string(&page).expect("a page");
    assert!(text.contains("ipath_calls_total{"), "{text}");
    assert!(
        text.contains(",kind=\"taken-out\"} 0\n"),
        "what was not seen has its series: {text}"
    );
    drop(silent);
    Run::ipath(["detach", &pid]).run().expect(0);
    let status = server.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", server.report());
    target.signal(Signal::SIGKILL);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let error = Run::ipath(["serve-metrics", &pid])
        .run()
        .expect(1)
        .expect_error();
    assert!(error.contains("no session"), "{error}");
    Run::ipath([
        "attach",
        &pid,
        "-f",
        "step",
        "--keep",
        "--quiet",
        "--duration",
        "100ms",
    ])
    .run()
    .expect(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = Run::ipath(["serve-metrics", &pid, "--listen", &address])
        .run()
        .expect(1)
        .expect_error();
    assert!(error.contains(&address), "{error}");
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}
