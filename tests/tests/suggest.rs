//! `ipath suggest`: the costly function, which is known by construction, is among the first
//! candidates. Sampled shares equal the exact ones within their error bounds.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::halo::{halo, mpirun};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::redis;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The arguments that make `suggest` list all candidates of a process.
fn arguments<'a>(pid: &'a str, duration: &'a str) -> [&'a str; 7] {
    [
        "suggest",
        pid,
        "--json",
        "--limit",
        "0",
        "--duration",
        duration,
    ]
}

/// The suggestions for a process after sampling for `duration`, as JSON.
fn suggestion(pid: u32, duration: &str) -> Value {
    Run::ipath(arguments(&pid.to_string(), duration))
        .run()
        .expect(0)
        .json()
}

fn candidates(suggestion: &Value) -> &[Value] {
    suggestion["candidates"].as_array().expect("candidates")
}

/// The names of the first three candidates, or of all if there are fewer.
fn first_names(suggestion: &Value) -> Vec<&str> {
    let first = candidates(suggestion).iter().take(3);
    first.map(|c| c["name"].as_str().expect("a name")).collect()
}

/// The candidate with this name.
///
/// # Panics
/// If there is none.
fn named<'s>(suggestion: &'s Value, name: &str) -> &'s Value {
    let found = candidates(suggestion).iter().find(|c| c["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {suggestion:#}"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// The share of the first in the sum of two estimates, and its error bound. Each estimate is given
/// with its bound. The estimates exceed their own bounds in 1 of 20 cases, so the bound is doubled.
fn share_of_two(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let both = one.0 + other.0;
    (one.0 / both, 2.0 * (one.1 + other.1) / both)
}

/// The sum of a metric of a function in an exact profile.
fn sum(profile: &Profile, name: &str, metric: &str) -> f64 {
    let function = profile.function(name).expect("measured");
    number(&function.totals[metric], "sum")
}

/// The suggestions for a process, and the exact profile of some functions in the same period.
fn both(pid: u32, functions: &[&str], metric: &str) -> (Value, Profile) {
    let scratch = Scratch::new("suggest");
    let file = scratch.file("p.json").display().to_string();
    let shown = pid.to_string();
    let mut begin = vec![
        "attach",
        &shown,
        "-m",
        metric,
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
    ];
    begin.extend(functions.iter().flat_map(|f| ["-f", f]));
    Run::ipath(begin).run().expect(0);
    let found = suggestion(pid, "3s");
    Run::ipath(["detach", &shown, "-o", &file]).run().expect(0);
    (found, Profile::read(Path::new(&file)))
}

/// Checks that the time is attributed to `hot` of this program, called by `mixed`. Returns the
/// suggestions.
fn assert_hot_is_found(target: &Target, hot: &str, warm: &str, mixed: &str) -> Value {
    let found = suggestion(target.pid(), "2s");
    assert_eq!(first_names(&found)[0], hot, "{found:#}");
    let (hot, warm) = (named(&found, hot), named(&found, warm));
    assert_eq!(hot["patchable"], true, "{hot:#}");
    assert_eq!(hot["stack"][0], mixed, "{hot:#}");
    let own = |c: &Value| (number(c, "self"), number(c, "self_error"));
    let (share, error) = share_of_two(own(hot), own(warm));
    assert!(
        (share - 0.75).abs() <= error + 0.02,
        "{share} ± {error}: {found:#}"
    );
    found
}

#[test]
fn suggest_finds_what_is_on_a_processor() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let found = assert_hot_is_found(&target, "hot", "warm", "mixed");
    let (own, total) = (
        number(named(&found, "hot"), "self"),
        number(named(&found, "hot"), "total"),
    );
    assert!(own > 0.0 && total >= own, "{found:#}");
    target.finish("ok");
}

#[test]
fn suggest_agrees_with_what_is_exact() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let (found, profile) = both(target.pid(), &["hot", "warm"], "cpu");
    let own = |name| {
        (
            number(named(&found, name), "self"),
            number(named(&found, name), "self_error"),
        )
    };
    let (sampled, error) = share_of_two(own("hot"), own("warm"));
    let (hot, warm) = (sum(&profile, "hot", "cpu"), sum(&profile, "warm", "cpu"));
    let exact = hot / (hot + warm);
    assert!(
        (sampled - exact).abs() <= error,
        "{sampled} ± {error}, exactly {exact}"
    );
    target.finish("ok");
}

#[test]
fn suggest_agrees_with_how_long_is_waited() {
    let target = Target::start(program("suggested.c"), ["lock"]).await_output("ready");
    let (found, profile) = both(target.pid(), &["update_shared", "rest"], "wall");
    let off = |name| {
        let candidate = named(&found, name);
        (
            number(candidate, "waiting"),
            number(candidate, "waiting_error"),
        )
    };
    let (sampled, error) = share_of_two(off("update_shared"), off("rest"));
    let (shared, rest) = (
        sum(&profile, "update_shared", "wall"),
        sum(&profile, "rest", "wall"),
    );
    let exact = shared / (shared + rest);
    assert!(
        (sampled - exact).abs() <= error + 0.05,
        "{sampled} ± {error}, exactly {exact}"
    );
    target.finish("ok");
}

#[test]
fn suggest_finds_who_waits_for_a_lock() {
    let target = Target::start(program("suggested.c"), ["lock"]).await_output("ready");
    let found = suggestion(target.pid(), "2s");
    assert!(first_names(&found).contains(&"update_shared"), "{found:#}");
    let lock = named(&found, "pthread_mutex_lock");
    assert_eq!(lock["stack"][0], "update_shared", "{found:#}");
    assert!(number(lock, "waits_per_second") > 0.0, "{found:#}");
    target.finish("ok");
}

/// Waiting for work is excluded, although it is the longest wait by far. A thread that waits for an
/// answer is included, although it also waits on a condition variable.
#[test]
fn suggest_tells_waiting_for_work_from_other_waiting() {
    let target = Target::start(program("worker_pool.c"), ["60"]).await_output("ready");
    let found = suggestion(target.pid(), "3s");
    let ns = |field: &str| found[field].as_f64().expect("a time");
    assert!(
        ns("waited_for_work_ns") > 2.0 * ns("waited_ns"),
        "{found:#}"
    );
    let names: Vec<_> = candidates(&found)
        .iter()
        .map(|c| c["name"].as_str())
        .collect();
    let place = |name: &str| {
        names
            .iter()
            .position(|n| *n == Some(name))
            .unwrap_or(usize::MAX)
    };
    for waits in ["charge", "await_answer"] {
        assert!(number(named(&found, waits), "waiting") > 0.1, "{found:#}");
        assert!(place(waits) < place("next_job"), "{found:#}");
    }
    // The sleep between two jobs paces the program.
    for paced in candidates(&found).iter().filter(|c| c["name"] == "main") {
        assert!(number(paced, "waiting") < 0.05, "{found:#}");
    }
    if place("next_job") < names.len() {
        let worker = named(&found, "next_job");
        assert!(number(worker, "waiting") < 0.1, "{found:#}");
        assert!(number(worker, "waiting_for_work") > 0.5, "{found:#}");
    }
}

/// Rust: a worker that receives from a channel waits for work, as does a `main` that sleeps. A
/// contended mutex is waiting for others.
#[test]
fn suggest_tells_receiving_from_a_channel_from_other_waiting() {
    let target = Target::start(program("channels.rs"), ["60"]).await_output("ready");
    let found = suggestion(target.pid(), "3s");
    let ns = |field: &str| found[field].as_f64().expect("a time");
    assert!(
        ns("waited_for_work_ns") > 2.0 * ns("waited_ns"),
        "{found:#}"
    );
    for idle in candidates(&found) {
        let name = idle["name"].as_str().expect("a name");
        if name.contains("::recv") || name == "channels::main" {
            assert!(number(idle, "waiting") < 0.05, "{found:#}");
        }
    }
    assert!(
        number(named(&found, "channels::record"), "waiting") > 0.1,
        "{found:#}"
    );
}

/// The path of a copy of the program without symbols.
fn stripped(program: &Path, scratch: &Scratch) -> PathBuf {
    let copy = scratch.file("stripped");
    let strip = Run::new("strip").arg("-o").arg(&copy).arg(program);
    strip.run().expect(0);
    copy
}

#[test]
fn suggest_finds_functions_without_a_name() {
    let scratch = Scratch::new("suggest");
    let whole = program("suggested.c");
    let symbols = Run::new("nm").arg(&whole).run().expect(0).stdout;
    let line = symbols.lines().find(|l| l.ends_with(" T hot"));
    let address = line.and_then(|l| u64::from_str_radix(l.split(' ').next()?, 16).ok());
    let target = Target::start(stripped(&whole, &scratch), ["cpu"]).await_output("ready");
    let found = suggestion(target.pid(), "2s");
    let first = &candidates(&found)[0];
    assert_eq!(first["address"].as_u64(), address, "{found:#}");
    assert_eq!(first["linkage"], "", "{found:#}");
    assert_eq!(first["patchable"], true, "{found:#}");
    target.finish("ok");
}

#[test]
fn suggest_finds_its_way_without_unwind_tables() {
    let flags = [
        "-fomit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let target = Target::start(program_with("suggested.c", &flags), ["cpu"]).await_output("ready");
    let found = assert_hot_is_found(&target, "hot", "warm", "mixed");
    let stack = named(&found, "hot")["stack"].as_array().expect("callers");
    assert_eq!(stack[1], "main", "{found:#}");
    target.finish("ok");
}

#[test]
fn suggest_finds_its_way_in_go() {
    let scratch = Scratch::new("suggest");
    let go = program("suggested.go");
    for program in [stripped(&go, &scratch), go] {
        let target = Target::start(program, [""; 0]).await_output("ready");
        let found = assert_hot_is_found(&target, "main.hot", "main.warm", "main.mixed");
        assert_eq!(
            named(&found, "main.hot")["stack"][1],
            "main.main",
            "{found:#}"
        );
    }
}

#[test]
fn suggest_finds_what_redis_does_for_keys() {
    let scratch = Scratch::new("suggest");
    let server = redis::serving(&scratch);
    let socket = scratch.file("socket");
    let shown = socket.display().to_string();
    let fill = "for i = 1, 20000 do redis.call('set', 'key:' .. i, i) end";
    let filled = Run::new("redis-cli").args(["-s", &shown, "eval", fill, "0"]);
    filled.run().expect(0);
    let mut load = Command::new("redis-benchmark");
    load.args([
        "-s",
        &shown,
        "-q",
        "-c",
        "3",
        "-n",
        "100000000",
        "keys",
        "key:*999",
    ]);
    let load = Target::spawn(load);
    let found = suggestion(server.pid(), "2s");
    let first = first_names(&found);
    // The function that compares keys is static in one build and not in another.
    assert!(
        first
            .iter()
            .any(|n| ["keysCommand", "stringmatchlen"].contains(n)),
        "{found:#}"
    );
    drop((load, server));
}

#[test]
fn suggest_finds_where_mpi_waits() {
    let shown = halo().display().to_string();
    let scratch = Scratch::new("suggest");
    let file = scratch.file("found.json").display().to_string();
    let ipath = ipath().display().to_string();
    let rank_1 =
        format!("{shown} 4000 & P=$!; sleep 2; {ipath} suggest $P --json > {file}; wait $P");
    mpirun(&format!("[ $R = 0 ] && exec {shown} 4000; {rank_1}"))
        .run()
        .expect(0);
    let text = std::fs::read_to_string(&file).expect("written");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let first = first_names(&found);
    assert!(
        first
            .iter()
            .any(|n| ["MPI_Wait", "PMPI_Wait", "complete"].contains(n)),
        "{found:#}"
    );
}

/// A process whose threads all sleep gives an error with a hint, and so does one that has ended.
#[test]
fn suggest_says_where_nothing_runs() {
    let target = Target::start(program("suggested.c"), ["idle"]).await_output("ready");
    let pid = target.pid().to_string();
    let arguments = ["suggest", &pid, "--duration", "300ms"];
    let finished = Run::ipath(arguments).run().expect(1);
    let error = finished.expect_error();
    assert!(error.contains("none of its threads"), "{error}");
    assert!(
        finished.hints().contains("--duration"),
        "{}",
        finished.hints()
    );
    target.finish("ok");
    let gone = Run::ipath(arguments).run().expect(1).expect_error();
    assert!(gone.contains("no such process"), "{gone}");
}

#[test]
fn suggest_leaves_the_process_as_it_is() {
    use ipath_tests::snapshot::ProcessState;
    let target = Target::start(program("suggested.c"), ["lock"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    suggestion(target.pid(), "1s");
    before.assert_unchanged(target.pid());
    target.finish("ok");
}

#[test]
fn suggest_prints_rows_with_errors_and_what_to_do_next() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let pid = target.pid().to_string();
    let finished = Run::ipath(["suggest", &pid, "--duration", "1s"])
        .run()
        .expect(0);
    let text = &finished.stdout;
    let row = text.lines().find(|l| l.contains("  hot  ")).expect("a row");
    let has_error = row.contains('±') || row.contains("over ");
    assert!(has_error && row.contains('%'), "{text}");
    // No other function has this name.
    let next = format!("ipath attach {pid} -f 'hot'\n");
    assert!(text.contains(&next), "{text}");
    target.finish("ok");
}

/// Threads that constantly hand over to each other are switched very often. Only some switches are
/// sampled, but the number of waits is still correct.
#[test]
fn suggest_samples_some_of_many_waits() {
    let target = Target::start(program("handing.c"), [""; 0]).await_output("ready");
    let before = switches(target.pid());
    let found = suggestion(target.pid(), "2s");
    let all = switches(target.pid()) - before;
    let sampled = found["waits"].as_u64().expect("a number");
    assert!(
        sampled > 0 && (all < 5000 || sampled * 4 < all),
        "{sampled} of {all}"
    );
    assert!(first_names(&found).contains(&"hand_over"), "{found:#}");
    target.finish("ok");
}

/// Times are the kernel's. Samples alone overestimate a thread that is switched often during part
/// of its time.
#[test]
fn suggest_shows_no_more_time_than_there_was() {
    for (program, arguments, threads) in [
        (program("suggested.c"), &["bursts"][..], 1.0),
        (program("handing.c"), &[], 2.0),
    ] {
        let target = Target::start(program, arguments).await_output("ready");
        for _ in 0..3 {
            let before = cpu_time(target.pid());
            let found = suggestion(target.pid(), "1s");
            let used = cpu_time(target.pid()) - before;
            let [observed, cpu, waited] =
                ["observed_ns", "cpu_ns", "waited_ns"].map(|key| number(&found, key));
            let what = format!("{cpu} and {waited} of {observed} ns, {used} ns used");
            assert!(cpu + waited <= 1.01 * threads * observed, "{what}");
            assert!(cpu <= 1.1 * used + 2e7, "{what}");
        }
        target.finish("ok");
    }
}

/// The CPU time of a process in nanoseconds.
fn cpu_time(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let counted = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        counted.split(' ').next()?.parse::<f64>().ok()
    };
    threads.filter_map(of).sum()
}

/// The number of times that the threads of a process have waited.
fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = status
            .lines()
            .find(|l| l.starts_with("voluntary_ctxt_switches"))?;
        line.rsplit('\t').next()?.parse::<u64>().ok()
    };
    threads.filter_map(of).sum()
}

/// Code without a function is one row, no matter where its samples are.
#[test]
fn suggest_puts_code_without_a_function_together() {
    let target = Target::start(program("suggested.c"), ["generated"]).await_output("ready");
    let found = suggestion(target.pid(), "2s");
    let is_generated = |c: &&Value| c["name"].as_str().is_some_and(|n| n.contains("generated"));
    let rows = candidates(&found).iter().filter(is_generated);
    let shares: Vec<f64> = rows.map(|c| number(c, "self")).collect();
    assert!(shares.len() == 1 && shares[0] > 0.8, "{found:#}");
    target.finish("ok");
}

/// A library that replaces an unloaded one at the same address has its own frames. After the next
/// swap the frames are those of the first one again.
#[test]
fn suggest_sees_what_comes_to_the_place_of_a_library() {
    let library = |frame| program_with("reloaded_lib.c", &["-shared", "-fPIC", frame]);
    let libraries = [library("-DFRAME=1032"), library("-DFRAME=2056")];
    let mut target = Target::start(program("swapped.c"), &libraries).await_output("ready");
    let pid = target.pid().to_string();
    let mut suggest = Target::start(ipath(), arguments(&pid, "10m"));
    target.until(Duration::from_secs(300), "come to its end", |t| {
        t.stdout().contains("done")
    });
    suggest.signal(Signal::SIGINT);
    suggest.wait(Duration::from_secs(60));
    let found: Value = serde_json::from_str(&suggest.stdout()).expect("JSON");
    for name in ["hot", "hotter", "hottest"] {
        let stack = &named(&found, name)["stack"];
        assert_eq!(
            [&stack[0], &stack[1], &stack[2]],
            ["step", "caller", "main"],
            "{found:#}"
        );
    }
    assert!(!target.stdout().contains("moved"), "{}", target.stdout());
    target.finish("ok");
}

/// The probes of a session, and the runtime, are not reported as code of the program.
#[test]
fn suggest_knows_what_ipath_has_put_there() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "-f", "step", "--keep"];
    Run::ipath(attach.iter().chain(&["--duration", "100ms", "--no-tui"]))
        .run()
        .expect(0);
    let found = suggestion(target.pid(), "2s");
    let own = named(&found, "measuring");
    assert_eq!(own["reason"], "ipath's own", "{own:#}");
    assert!(!found.to_string().contains("generated code"), "{found:#}");
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}

/// Without symbols and unwind tables, functions that calls lead to are named by their addresses.
/// All other code is `[no known function]`.
#[test]
fn functions_that_nothing_names() {
    let scratch = Scratch::new("suggest");
    let bare = scratch.file("bare").display().to_string();
    let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let whole = program_with("unnamed_hot.c", &flags);
    let strip = ["-s", "-R", ".eh_frame", "-R", ".eh_frame_hdr", "-o", &bare];
    Run::new("strip").args(strip).arg(&whole).run().expect(0);
    let address = |name: &str| {
        let nm = Run::new("nm").arg(&whole).run().expect(0).stdout;
        let line = nm.lines().find(|line| line.ends_with(&format!(" {name}")));
        let address = line.and_then(|line| line.split(' ').next()).expect("there");
        u64::from_str_radix(address, 16).expect("a number")
    };
    let target = Target::start(Path::new(&bare), [""; 0]).await_output("ready");
    let suggestion = suggestion(target.pid(), "1s");
    let hot = format!("bare+{:#x}", address("hot"));
    let found = named(&suggestion, &hot);
    assert_eq!(found["patchable"], true, "{suggestion:#}");
    assert!(number(found, "self") > 0.4, "{suggestion:#}");
    let main = address("main");
    for candidate in candidates(&suggestion) {
        let at = candidate["address"].as_u64().expect("an address");
        let is_main = candidate["module"].as_str() == Some(&bare) && at == main;
        let is_unknown = candidate["name"] == "[no known function]";
        assert!(
            !is_main && (!is_unknown || candidate["patchable"] == false),
            "{suggestion:#}"
        );
    }
    drop(target);
}
