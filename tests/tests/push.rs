//! `ipath push`: the sums that a server accepts equal the program's own counts, even if the server
//! fails in between. The requests have the form of the servers' own definitions.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::halo::Mpi;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::receiver::{Accepted, Receiver, sums};
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Extra time beyond the command's own limits, for a busy machine.
const SLACK: Duration = Duration::from_secs(30);

/// A program that has a session and waits to begin.
fn measured() -> Target {
    let target = Target::start(program("pushed.c"), [] as [&str; 0]).await_output("ready");
    let pid = target.pid().to_string();
    Run::ipath(["attach", &pid, "-f", "work", "--keep", "--quiet"])
        .args(["--duration", "100ms"])
        .run()
        .expect(0);
    target
}

/// Lets a waiting program begin its calls.
fn begin(target: Target) -> Target {
    target.signal(Signal::SIGUSR1);
    target.await_output("begun")
}

/// Ends the program, and returns its own numbers of calls by function and caller.
fn counted(target: Target) -> BTreeMap<String, i64> {
    let mut target = target;
    target.signal(Signal::SIGTERM);
    assert!(target.wait(LIMIT).success(), "{}", target.report());
    let text = target.stdout();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let all = lines.map(|(name, n)| (format!("work {name}"), n.parse().expect("a number")));
    all.collect()
}

/// Starts `ipath push` of a process or file to the receiver.
fn pushing(target: &str, receiver: &Receiver, options: &[&str]) -> Target {
    let mut command = Command::new(ipath());
    command
        .args(["push", target, "--to", &receiver.address()])
        .args(options);
    Target::spawn(command)
}

/// Writes a profile to a file in the folder, and returns its path.
fn profile(scratch: &Scratch) -> PathBuf {
    let file = scratch.file("p.json");
    let program = program("many_paths.c");
    Run::ipath(["run", "--no-tui", "-f", "leaf", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program)
        .args(["3", "2", "0"])
        .run()
        .expect(0);
    file
}

/// Checks that each profile begins where the one before it ends, and that its query has these
/// times.
fn assert_one_after_another(accepted: &[Accepted]) {
    for pair in accepted.windows(2) {
        let ((from, ns), (next, _)) = (pair[0].time(), pair[1].time());
        assert_eq!(from + ns, next);
    }
    for profile in accepted {
        let (from, ns) = profile.time();
        assert_eq!(profile.query("from"), from.to_string());
        assert_eq!(profile.query("until"), (from + ns).to_string());
    }
}

/// The server fails, is slow, overloaded, down, and up again. Each call is accepted once.
#[test]
fn sums_at_the_server_are_the_programs_own() {
    let mut receiver = Receiver::start(&["503 - busy", "503", "hang 60", "429 1", "500"]);
    let mut target = measured();
    let pid = target.pid().to_string();
    let options = [
        "--every",
        "200ms",
        "--timeout",
        "2s",
        "--label",
        "team=a",
        "--label",
        "exe=",
    ];
    let mut push = pushing(&pid, &receiver, &options);
    target = begin(target);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() >= 3);
    receiver.down();
    push.until(LIMIT, "found nobody", |push| {
        push.stderr().contains("connection refused")
    });
    receiver.up();
    let before = receiver.accepted_count();
    push.until(LIMIT, "pushed again", |_| {
        receiver.accepted_count() >= before + 3
    });
    let counted = counted(target);
    assert!(push.wait(LIMIT).success(), "{}", push.report());
    let accepted = receiver.accepted();
    assert!(counted.values().all(|&n| n > 0), "{counted:?}");
    assert_eq!(sums(&accepted, "count"), counted);
    assert_one_after_another(&accepted);
    // Increments that could not be sent are merged into one profile.
    assert!(accepted.len() < receiver.requests().len() - 4);
    for profile in &accepted {
        let series = profile.query("name");
        assert!(series.starts_with("pushed_c{host="), "{series}");
        assert!(
            series.ends_with(&format!(",pid={pid},team=a}}")),
            "{series}"
        );
        assert_eq!(
            (profile.query("format"), &profile.0["path"]),
            ("pprof", &"/ingest".into())
        );
        assert_eq!(
            profile.0["profile"]["period"],
            serde_json::json!(["count", "calls", 1])
        );
    }
    let said = push.stderr();
    for words in [
        "503 Service Unavailable: busy",
        "no answer within 2.0 s",
        "429",
        "accepted again",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let calls: i64 = counted.values().sum();
    let told = format!("{} profiles of {calls} calls sent to ", accepted.len());
    assert!(
        push.stdout().starts_with(&told),
        "{told}: {}",
        push.report()
    );
}

/// Pushing ends with the session, and times add up as calls do.
#[test]
fn a_session_is_pushed_to_its_end() {
    let receiver = Receiver::start(&[]);
    let scratch = Scratch::new("push");
    let target = begin(measured());
    let pid = target.pid().to_string();
    let mut push = pushing(&pid, &receiver, &["--every", "100ms"]);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() >= 3);
    let file = scratch.file("last.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    assert!(push.wait(LIMIT).success(), "{}", push.report());
    let accepted = receiver.accepted();
    let profile = Profile::read(&file);
    let sum = |metric| sums(&accepted, metric).values().sum::<i64>();
    assert_eq!(sum("count"), profile.calls("work") as i64);
    let function = profile.function("work").expect("work");
    assert_eq!(
        Some(sum("wall")),
        function.totals["wall"]["exclusive"].as_i64()
    );
    counted(target);
}

/// With the id of a launcher, each rank has its own series.
#[test]
fn ranks_are_told_apart() {
    let receiver = Receiver::start(&["503"]);
    let mut command = Command::new(Mpi::Open.launcher());
    command.args(Mpi::Open.options()).args(["-n", "2"]);
    command.arg(program("pushed.c"));
    let mut launcher = Target::spawn(command);
    let are_ready = |launcher: &Target| launcher.stdout().matches("ready").count() == 2;
    launcher.until(LIMIT, "two ranks", are_ready);
    let pid = launcher.pid().to_string();
    Run::ipath(["attach", "--mpi", &pid, "-f", "work", "--keep", "--quiet"])
        .args(["--duration", "100ms"])
        .run()
        .expect(0);
    let url = receiver.address();
    let refused = Run::ipath(["push", &pid, "--to", &url, "-o", "one.json"]).run();
    assert!(
        refused.expect_error().contains("%r"),
        "{}",
        refused.report()
    );
    let mut push = pushing(&pid, &receiver, &["--every", "200ms"]);
    let ranks = Run::new("pgrep")
        .args(["-P", &pid, "-x", "pushed_c"])
        .run()
        .expect(0);
    let signal = |signal| {
        for rank in ranks.stdout.lines() {
            let rank = Pid::from_raw(rank.parse().expect("an id"));
            kill(rank, signal).expect("a rank");
        }
    };
    signal(Signal::SIGUSR1);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() >= 4);
    signal(Signal::SIGTERM);
    assert!(launcher.wait(LIMIT).success(), "{}", launcher.report());
    assert!(push.wait(LIMIT).success(), "{}", push.report());
    let mut counted: BTreeMap<String, i64> = BTreeMap::new();
    let text = launcher.stdout();
    for (name, n) in text.lines().filter_map(|line| line.split_once(' ')) {
        *counted.entry(format!("work {name}")).or_default() += n.parse::<i64>().expect("a number");
    }
    let (first, second): (Vec<Accepted>, Vec<Accepted>) = receiver
        .accepted()
        .into_iter()
        .partition(|profile| profile.query("name").ends_with(",rank=0}"));
    assert!(second.iter().all(|p| p.query("name").ends_with(",rank=1}")));
    let mut both = sums(&first, "count");
    for (path, n) in sums(&second, "count") {
        *both.entry(path).or_default() += n;
    }
    assert_eq!(both, counted);
    assert_one_after_another(&first);
    assert_one_after_another(&second);
}

/// With `--from-now` earlier counts are left out.
#[test]
fn a_push_may_begin_now() {
    let receiver = Receiver::start(&[]);
    let target = begin(measured());
    let pid = target.pid().to_string();
    std::thread::sleep(Duration::from_millis(300));
    let mut push = pushing(&pid, &receiver, &["--every", "200ms", "--from-now"]);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() >= 2);
    let counted = counted(target);
    assert!(push.wait(LIMIT).success(), "{}", push.report());
    let sums = sums(&receiver.accepted(), "count");
    for (path, n) in &counted {
        assert!(
            sums[path] > 0 && sums[path] < *n,
            "{path}: {} of {n}",
            sums[path]
        );
    }
}

#[test]
fn a_file_is_sent_once_with_all_its_metrics() {
    let receiver = Receiver::start(&["503"]);
    let scratch = Scratch::new("push");
    let file = profile(&scratch);
    let pushed = Run::ipath(["push"])
        .arg(&file)
        .args(["--to", &receiver.address()]);
    let pushed = pushed.args(["--name", "my app"]).run().expect(0);
    let accepted = receiver.accepted();
    assert_eq!(accepted.len(), 1, "{}", pushed.report());
    assert!(
        accepted[0].query("name").starts_with("my_app{exe=/"),
        "{}",
        accepted[0].query("name")
    );
    let profile = Profile::read(&file);
    assert_eq!(
        sums(&accepted, "count").values().sum::<i64>(),
        profile.calls("leaf") as i64
    );
    let function = profile.function("leaf").expect("leaf");
    let wall = function.totals["wall"]["exclusive"].as_i64();
    assert_eq!(Some(sums(&accepted, "wall").values().sum::<i64>()), wall);
}

#[test]
fn parca_takes_it_by_its_own_definition() {
    let receiver = Receiver::start(&["grpc 14 later"]);
    let scratch = Scratch::new("push");
    let file = profile(&scratch);
    let push = |options: &[&str]| {
        let push = Run::ipath(["push"])
            .arg(&file)
            .args(["--to", &receiver.address()]);
        push.args(["--as", "parca"]).args(options).run()
    };
    let pushed = push(&["--label", "rank=7"]).expect(0);
    assert!(
        pushed.stderr.contains("gRPC status 14: later"),
        "{}",
        pushed.report()
    );
    let accepted = receiver.accepted();
    let [accepted] = &accepted[..] else {
        panic!("{}", pushed.report());
    };
    let series = &accepted.0["series"];
    for (name, value) in [
        ("__name__", "ipath"),
        ("job", "many_paths_c"),
        ("rank", "7"),
    ] {
        assert_eq!(series[name], value, "{series}");
    }
    assert_eq!(
        accepted.0["headers"]["content-type"],
        "application/grpc-web+proto"
    );
    let profile = Profile::read(&file);
    let sums = sums(std::slice::from_ref(accepted), "count");
    assert_eq!(sums.values().sum::<i64>(), profile.calls("leaf") as i64);
    // A server that answers with a web page has not accepted the profile.
    receiver.plan(&["page", "grpc 3 no%20name"]);
    for cause in ["not Parca", "gRPC status 3: no name"] {
        let error = push(&[]).expect(1).expect_error();
        assert!(error.contains(cause), "{error}");
    }
}

/// Text from a server is printed harmlessly, and secrets are sent to that server only.
#[test]
fn refusals_are_one_line_without_secrets() {
    let receiver = Receiver::start(&[]);
    let elsewhere = Receiver::start(&[]);
    let scratch = Scratch::new("push");
    let file = profile(&scratch);
    let push = |token: &str, options: &[&str]| {
        let push = Run::ipath(["push"])
            .arg(&file)
            .args(["--to", &receiver.address()]);
        push.args(options).env("IPATH_PUSH_TOKEN", token).run()
    };
    let redirect = format!("to {}/ingest", elsewhere.address());
    for (answer, words) in [
        (
            "400 - no\\x1b[31m way\\nfor {token}",
            "400 Bad Request: no\\x1b[31m way for [hidden]",
        ),
        ("401 - ", "401 Unauthorized"),
        ("422 - too old", "422 Unprocessable Entity: too old"),
        (&redirect, "which is not followed"),
    ] {
        receiver.plan(&[answer]);
        let refused = push("s3cr3t", &[]).expect(1);
        let error = refused.expect_error();
        assert!(error.contains(words), "{words}: {error}");
        assert!(!refused.stderr.contains("s3cr3t"), "{}", refused.stderr);
    }
    assert_eq!(receiver.requests().len(), 4);
    assert!(elsewhere.requests().is_empty());
    for request in receiver.requests() {
        assert_eq!(request["headers"]["authorization"], "Bearer s3cr3t");
    }
    let headers = scratch.file("headers");
    fs::write(&headers, "X-Scope-OrgID: team\nAuthorization: Basic eA==\n").expect("a file");
    push("s3cr3t", &["--header", &format!("@{}", headers.display())]).expect(0);
    let last = receiver.requests().pop().expect("a request");
    assert_eq!(last["headers"]["authorization"], "Basic eA==");
    assert_eq!(last["headers"]["x-scope-orgid"], "team");
}

/// Contradictory requests are refused, and change nothing.
#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new("push");
    let file = profile(&scratch).display().to_string();
    let url = "http://127.0.0.1:9";
    let of_file = format!("push {file}: the profile has no metric");
    for (options, words) in [
        (&["--to", "localhost:4040"][..], "http:// or https://"),
        (
            &["--to", "http://me:s3cr3t@localhost"],
            "must not contain a password",
        ),
        (&["--to", url, "--every", "1s"], "a file does not change"),
        (&["--to", url, "--header", "s3cr3t"], "`Name: value`"),
        (&["--to", url, "--header", "@/none"], "no such file"),
        (&["--to", url, "--metric", "none"], &of_file),
        (&["--to", url, "-o", "/none/p.json"], "no such file"),
        (
            &["--to", url, "-o", "%r.json"],
            "%r is the rank in an MPI job",
        ),
    ] {
        let refused = Run::ipath(["push", &file]).args(options).run().expect(1);
        let error = refused.expect_error();
        assert!(error.contains(words), "{words}: {error}");
        assert!(!refused.stderr.contains("s3cr3t"), "{}", refused.stderr);
    }
    let target = Target::start(program("pushed.c"), [] as [&str; 0]).await_output("ready");
    let refused = Run::ipath(["push", &target.pid().to_string(), "--to", url]).run();
    assert!(
        refused.expect_error().contains("no session"),
        "{}",
        refused.report()
    );
}

/// Increments that are not accepted by the end are reported and kept, and can be sent later.
#[test]
fn nothing_hangs_and_nothing_is_lost() {
    let mut receiver = Receiver::start(&[]);
    let scratch = Scratch::new("push");
    let rest = scratch.file("rest.json");
    let rest_name = rest.display().to_string();
    let target = begin(measured());
    let pid = target.pid().to_string();
    let options = ["--every", "200ms", "--give-up", "1s", "-o", &rest_name];
    let mut push = pushing(&pid, &receiver, &options);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() >= 2);
    receiver.down();
    let counted = counted(target);
    let status = push.wait(LIMIT);
    assert_eq!(status.code(), Some(1), "{}", push.report());
    let said = push.stderr();
    let last = said.lines().rev().take(2).collect::<Vec<_>>();
    assert!(
        last[0].starts_with("hint: ") && last[0].contains(&rest_name),
        "{said}"
    );
    assert!(
        last[1].contains("calls were not accepted: connection refused"),
        "{said}"
    );
    receiver.up();
    Run::ipath(["report"]).arg(&rest).run().expect(0);
    Run::ipath(["push"])
        .arg(&rest)
        .args(["--to", &receiver.address()])
        .run()
        .expect(0);
    let accepted = receiver.accepted();
    assert_eq!(sums(&accepted, "count"), counted);
    assert_one_after_another(&accepted);
}

/// A server that accepts connections and sends nothing is given up after the time limit, with
/// status 1.
#[test]
fn a_silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let scratch = Scratch::new("push");
    let file = profile(&scratch);
    let began = Instant::now();
    let push = |options: &[&str]| {
        let push = Run::ipath(["push"]).arg(&file).args(["--to", &url]);
        push.args(options).run()
    };
    let pushed = push(&["--timeout", "500ms", "--give-up", "2s"]).expect(1);
    assert!(began.elapsed() < SLACK, "{}", pushed.report());
    assert!(
        pushed.stderr.contains("not accepted: no answer within"),
        "{}",
        pushed.report()
    );
    // A profile from a file need not be kept.
    assert_eq!(pushed.hints(), "");
}

/// Sends so many signals, and checks that the command ends soon with status 1.
fn ends_by(signals: usize, push: &mut Target) {
    let began = Instant::now();
    for number in 0..signals {
        push.signal(Signal::SIGINT);
        if number + 1 < signals {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    let status = push.wait(LIMIT);
    assert_eq!(status.code(), Some(1), "{}", push.report());
    assert!(began.elapsed() < SLACK, "{}", push.report());
    assert!(push.stderr().contains("not accepted"), "{}", push.report());
}

/// One signal ends a single push, and two signals end a repeated one, whatever it is waiting for.
#[test]
fn signals_end_it_at_once() {
    let receiver = Receiver::start(&["hang 200", "hang 200", "hang 200"]);
    let scratch = Scratch::new("push");
    let file = profile(&scratch).display().to_string();
    let long = ["--timeout", "100s", "--give-up", "100s"];
    let mut push = pushing(&file, &receiver, &long);
    push.until(LIMIT, "asked", |_| receiver.requests().len() == 1);
    ends_by(1, &mut push);
    let target = begin(measured());
    let pid = target.pid().to_string();
    let mut push = pushing(&pid, &receiver, &[&["--every", "1s"], &long[..]].concat());
    push.until(LIMIT, "asked", |_| receiver.requests().len() == 2);
    ends_by(2, &mut push);
    // A request that is under way may take as long as retries may.
    let options = ["--every", "1s", "--timeout", "100s", "--give-up", "1s"];
    let mut push = pushing(&pid, &receiver, &options);
    push.until(LIMIT, "asked", |_| receiver.requests().len() == 3);
    ends_by(1, &mut push);
    // The first accepted profile contains everything counted up to that moment.
    let mut push = pushing(&pid, &receiver, &["--every", "100s"]);
    push.until(LIMIT, "pushed", |_| receiver.accepted_count() == 1);
    let once = Run::ipath(["snapshot", &pid, "-o", "-"]).run().expect(0);
    let before: serde_json::Value = once.json();
    let before = before["functions"][0]["totals"]["count"]
        .as_i64()
        .expect("calls");
    // timeout(1) sends two signals. They act as one, even if sending has already begun at the
    // second one.
    receiver.plan(&["503 1 later"]);
    push.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(20));
    push.signal(Signal::SIGTERM);
    assert!(push.wait(LIMIT).success(), "{}", push.report());
    let sent: i64 = sums(&receiver.accepted(), "count").values().sum();
    assert!(sent >= before, "{sent} of {before}");
    // The session is unchanged.
    Run::ipath(["detach", &pid]).run().expect(0);
    counted(target);
}

/// The files of a certificate for 127.0.0.1, of its key, and of its issuer's certificate.
fn certificate(folder: &Path) -> [PathBuf; 3] {
    let script = "
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca \
    -addext basicConstraints=critical,CA:TRUE
openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1
printf 'subjectAltName=IP:127.0.0.1\\nbasicConstraints=CA:FALSE\\n' > server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem";
    let script = format!("set -e; cd '{}'; {script}", folder.display());
    Run::new("bash").args(["-c", &script]).run().expect(0);
    ["server.pem", "server.key", "ca.pem"].map(|name| folder.join(name))
}

#[test]
fn a_server_is_known_by_its_certificate() {
    let scratch = Scratch::new("push");
    let [certificate, key, authority] = certificate(scratch.path());
    let receiver = Receiver::with(&[], &[&certificate, &key]);
    let file = profile(&scratch);
    let push = |trusted: &Path| {
        let push = Run::ipath(["push"])
            .arg(&file)
            .args(["--to", &receiver.address()]);
        push.env("SSL_CERT_FILE", trusted)
            .env("SSL_CERT_DIR", "")
            .run()
    };
    push(&authority).expect(0);
    let calls = Profile::read(&file).calls("leaf") as i64;
    assert_eq!(
        sums(&receiver.accepted(), "count").values().sum::<i64>(),
        calls
    );
    // From another authority.
    let other = scratch.file("other");
    fs::create_dir(&other).expect("a folder");
    let [_, _, other] = self::certificate(&other);
    let error = push(&other).expect_error();
    assert!(error.contains("TLS: "), "{error}");
    assert_eq!(receiver.requests().len(), 1);
}
