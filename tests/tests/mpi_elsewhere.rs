//! Ranks that are not descendants of the named launcher, or without a named launcher: found by the
//! launcher's own table, and by an ipath that a launcher starts beside them.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::halo::{Mpi, halo_of};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The ranks in a profile, and its number of calls.
fn ranks_of(file: &Path) -> (Vec<String>, u64) {
    let text = fs::read_to_string(file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let processes = profile["processes"].as_array().expect("processes");
    let rank = |process: &Value| process["labels"]["rank"].as_str().map(str::to_owned);
    let functions = profile["functions"].as_array().expect("functions");
    let calls = functions
        .iter()
        .filter_map(|f| f["totals"]["count"].as_u64());
    (processes.iter().filter_map(rank).collect(), calls.sum())
}

/// Programs that are ranks 0 and 1 by their environment, and a launcher whose table lists them.
fn tabled() -> ([Target; 2], Target) {
    let ranks = ["0", "1"].map(|number| {
        let mut command = Command::new(program("sleeper.c"));
        command.arg("600").env("OMPI_COMM_WORLD_RANK", number);
        Target::spawn(command).await_output("ready")
    });
    let pids = ranks.each_ref().map(|rank| rank.pid().to_string());
    let launcher = Target::start(program("mpir_table.c"), pids).await_output("ready");
    (ranks, launcher)
}

/// Measures the ranks of a launcher for a while.
fn attach(launcher: &Target, file: &Path) -> Finished {
    Run::ipath(["attach", "--mpi", &launcher.pid().to_string(), "-f", "tick"])
        .args(["--quiet", "--duration", "500ms", "-o"])
        .arg(file)
        .run()
        .expect(0)
}

#[test]
fn the_launchers_table_names_ranks() {
    let (ranks, launcher) = tabled();
    let scratch = Scratch::new("mpir");
    let file = scratch.file("p.json");
    attach(&launcher, &file);
    let (numbers, calls) = ranks_of(&file);
    assert_eq!(numbers, ["0", "1"]);
    assert!(calls > 0);
    for rank in ranks {
        rank.finish("ok calls ");
    }
}

/// One rank is under a debugger. The message says so and what to do; the other rank is measured.
#[test]
fn a_rank_that_is_refused_is_named() {
    let (ranks, launcher) = tabled();
    let refused = ranks[1].pid();
    let tracer = Target::start(program("tracer.c"), [refused.to_string()]).await_output("ready");
    let scratch = Scratch::new("mpir");
    let file = scratch.file("p.json");
    let finished = attach(&launcher, &file);
    let by = tracer.pid();
    let said = format!(
        "ipath: rank 1 is not measured: attach {refused}: thread {refused} is traced by {by} (tracer"
    );
    let mend = format!("(process {by}) first)");
    let is_it = |line: &str| line.starts_with(&said) && line.ends_with(&mend);
    assert!(finished.stderr.lines().any(is_it), "{}", finished.report());
    let (numbers, calls) = ranks_of(&file);
    assert_eq!(numbers, ["0"]);
    assert!(calls > 0);
    drop(tracer);
    for rank in ranks {
        rank.finish("ok calls ");
    }
}

/// An ipath that its own launcher starts measures the other ranks of its allocation on this
/// machine, and not itself.
#[test]
fn ranks_of_this_machine() {
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let scratch = Scratch::new("mpi");
        let allocation = format!("SLURM_JOB_ID={}-{mpi:?}", std::process::id());
        let start = |ranks: &str| {
            let mut command = Command::new(mpi.launcher());
            command
                .args(mpi.options())
                .args(["-n", ranks, "env", &allocation]);
            command
        };
        let nobody = |ranks: &[&str]| {
            let mut all = vec![allocation.clone()];
            all.extend([
                ipath().display().to_string(),
                "attach".into(),
                "--local-ranks".into(),
            ]);
            all.extend(
                ["-f", "libmpi*!MPI_Wait", "--quiet", "--duration", "300ms"].map(str::to_owned),
            );
            all.extend(ranks.iter().map(|&r| r.to_owned()));
            Run::new("env").args(all).limit(LIMIT).run()
        };
        let none = nobody(&[]);
        assert!(
            none.expect_error().contains("no rank of an MPI job"),
            "{}",
            none.report()
        );
        let mut command = start("2");
        command.arg(halo_of(mpi)).arg("1000000");
        let mut job = Target::spawn(command);
        let is_there = || {
            let found = Run::new("pgrep")
                .args(["-f", &halo_of(mpi).display().to_string()])
                .run();
            let pids: BTreeSet<&str> = found.stdout.lines().collect();
            let has_it = |pid: &&&str| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&allocation)
                    && maps.contains("libmpi")
            };
            pids.iter().filter(has_it).count() == 2
        };
        job.until(LIMIT, "two ranks", |_| is_there());
        let file = scratch.file("p%r.json");
        let mut command = start("1");
        command
            .arg(ipath())
            .args(["attach", "--local-ranks", "-f", "libmpi*!MPI_Wait"]);
        command
            .args(["--quiet", "--duration", "500ms", "-o"])
            .arg(&file);
        let mut measuring = Target::spawn(command);
        let status = measuring.wait(LIMIT);
        assert!(status.success(), "{status}: {}", measuring.report());
        let (numbers, calls) = ranks_of(&scratch.file("p0.json"));
        assert_eq!(numbers, ["0", "1"]);
        assert!(calls > 0, "{}", measuring.report());
        let missing = nobody(&["--ranks", "5"]).expect_error();
        assert!(
            missing.contains("no rank 5 on this machine: there are 0, 1"),
            "{missing}"
        );
        job.signal(nix::sys::signal::Signal::SIGTERM);
        job.wait(LIMIT);
    }
}
