//! MPI jobs as one session: the launcher leads to the ranks of Open MPI and of MPICH. Each rank's
//! counts must equal those of a wrapper around MPI_Wait, by glibc's stacks.

use ipath_tests::command::{Finished, Run};
use ipath_tests::halo::{Mpi, halo_of};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The number of calls by stack.
type Stacks = BTreeMap<String, u64>;

/// A job whose ranks wait for a file before they start and before they end.
struct Job {
    launcher: Target,
    /// The common start of the paths of the job's files.
    waits: PathBuf,
    ranks: usize,
}

impl Job {
    fn start(mpi: Mpi, ranks: usize, steps: &str, scratch: &Scratch) -> Self {
        let waits = scratch.file("waits");
        let mut command = Command::new(mpi.launcher());
        command.args(mpi.options());
        command.args(["-n", &ranks.to_string(), "env"]);
        command.arg(format!("LD_PRELOAD={}", mpi.wrapper().display()));
        command.arg(format!("WAITS={}", waits.display()));
        command.arg(halo_of(mpi)).arg(steps);
        Self {
            launcher: Target::spawn(command),
            waits,
            ranks,
        }
    }

    fn file(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("{}.{end}", self.waits.display()))
    }

    /// The contents of each rank's file, once all have written it.
    fn of_each(&mut self, what: &str) -> Vec<String> {
        let files: Vec<PathBuf> = (0..self.ranks)
            .map(|rank| self.file(&format!("{what}{rank}")))
            .collect();
        self.launcher
            .until(LIMIT, what, |_| files.iter().all(|file| file.exists()));
        let text = |file: &PathBuf| fs::read_to_string(file).expect("a file of its own");
        files.iter().map(text).collect()
    }

    /// Creates a file for which the ranks wait: `go` or `end`.
    fn allow(&self, what: &str) {
        fs::write(self.file(what), "").expect("a file of its own");
    }

    /// The pids of its ranks, in order.
    fn pids(&mut self) -> Vec<String> {
        let told = self.of_each("ready.");
        told.iter().map(|pid| pid.trim().to_owned()).collect()
    }

    /// Lets the job run to its end, and returns its output.
    fn result(mut self) -> String {
        self.allow("go");
        self.allow("end");
        let status = self.launcher.wait(LIMIT);
        assert!(status.success(), "{status}: {}", self.launcher.report());
        self.launcher.stdout()
    }
}

/// The numbers of calls that the wrapper counted, from the text of its file.
fn counted(text: &str) -> Stacks {
    let line = |line: &str| {
        let (count, stack) = line.split_once(' ').expect("a stack");
        (stack.to_owned(), count.parse().expect("a number"))
    };
    text.lines().map(line).collect()
}

/// The numbers of calls in a profile, by stack without the wrapper's own frame.
///
/// # Panics
/// If a path is incomplete.
fn measured(profile: &Profile) -> Stacks {
    let mut stacks = Stacks::new();
    for path in &profile.paths {
        assert!(path.complete, "{path:?}");
        let frame = |&index: &usize| {
            let frame = &profile.frames[index];
            let module = &profile.modules[frame.module.expect("code of a file")];
            let file = Path::new(&module.path).file_name().expect("a file");
            format!("{}+{:#x}", file.to_string_lossy(), frame.address + 1)
        };
        let stack: Vec<String> = path.stack.iter().skip(1).map(frame).collect();
        let count = path.metrics["count"].as_u64().expect("a count");
        *stacks.entry(stack.join(" ")).or_default() += count;
    }
    stacks
}

/// The profile that `snapshot` or `detach` writes for a process.
fn profile(operation: &str, pid: &str, file: &Path) -> Profile {
    Run::ipath([operation, pid, "-o"]).arg(file).run().expect(0);
    Profile::read(file)
}

/// Checks that the counts of each rank of a job, alone and in merged profiles, are those of the
/// wrapper, and that the job's output stays the same.
fn each_rank_is_exact(mpi: Mpi, ranks: usize) {
    let (scratch, plain) = (Scratch::new("mpi"), Scratch::new("mpi"));
    let expected = Job::start(mpi, ranks, "30", &plain).result();
    assert!(expected.contains("messages completed"), "{expected}");
    let mut job = Job::start(mpi, ranks, "30", &scratch);
    let pids = job.pids();
    let launcher = job.launcher.pid().to_string();
    let alone = Run::ipath(["attach", &launcher, "-f", "libmpi*!MPI_Wait"])
        .args(["--quiet", "--duration", "1ms"])
        .run();
    let is_hinted = alone.code() == 0 || alone.hints().contains("--mpi");
    assert!(is_hinted, "{}", alone.report());
    let none_yet = Run::ipath(["add", &launcher, "-f", "MPI_Wait"]).run();
    none_yet.expect_error();
    let hint = format!("`ipath attach --mpi {launcher} -f FUNC`");
    assert!(none_yet.hints().contains(&hint), "{}", none_yet.report());
    let one = Run::ipath(["attach", &pids[1], "-f", "libmpi*!MPI_Wait", "-o"]);
    let one = one.arg(scratch.file("one%r.json"));
    one.args(["--quiet", "--duration", "1ms"]).run().expect(0);
    Profile::read(&scratch.file("one1.json"));
    Run::ipath(["attach", "--mpi", &launcher, "-f", "libmpi*!MPI_Wait"])
        .args(["--keep", "--quiet", "--duration", "100ms"])
        .run()
        .expect(0);
    let again = Run::ipath(["attach", "--mpi", &launcher, "-f", "libmpi*!MPI_Send"]).run();
    again.expect_error();
    let hint = format!("`ipath top {launcher}`");
    assert!(again.hints().contains(&hint), "{}", again.report());
    // An error with the same cause in all ranks is printed once.
    let nowhere = Run::ipath(["add", &launcher, "-f", "of_no_rank"]).run();
    let line = nowhere.expect_error();
    let cause = format!("ipath: add {launcher}: no function matches 'of_no_rank'");
    assert_eq!(line, cause, "{}", nowhere.report());
    let status = Run::ipath(["status", &launcher]).run().expect(0).stdout;
    for pid in &pids {
        assert!(status.lines().any(|l| l.starts_with(pid)), "{status}");
    }
    job.allow("go");
    let oracle: Vec<Stacks> = job.of_each("").iter().map(|text| counted(text)).collect();
    let file = scratch.file("profile.json");
    for (rank, pid) in pids.iter().enumerate() {
        let profile = profile("snapshot", pid, &file);
        assert_eq!(measured(&profile), oracle[rank], "rank {rank} of {ranks}");
    }
    let files: Vec<PathBuf> = (0..ranks)
        .map(|rank| scratch.file(&format!("{rank}.json")))
        .collect();
    let of_each = scratch.file("%r.json");
    Run::ipath(["snapshot", &launcher, "-o"])
        .arg(&of_each)
        .run()
        .expect(0);
    let apart = scratch.file("apart.json");
    let merge = Run::ipath(["merge", "--per-process", "-o"]).arg(&apart);
    merge.args(&files).run().expect(0);
    for (rank, expected) in oracle.iter().enumerate() {
        let mut of_rank = Profile::read(&apart);
        of_rank.paths.retain(|path| path.process == Some(rank));
        assert_eq!(measured(&of_rank), *expected, "rank {rank} of {ranks}");
        let report = Run::ipath(["report", "--json", "--limit", "0", "--process"]);
        let report = report
            .arg(format!("rank {rank}"))
            .arg(&apart)
            .run()
            .expect(0);
        let calls: u64 = expected.values().sum();
        assert_eq!(report.json()["functions"][0]["totals"]["count"], calls);
    }
    let together = profile("detach", &launcher, &file);
    let all: u64 = oracle.iter().flat_map(Stacks::values).sum();
    assert_eq!(together.calls("MPI_Wait"), all);
    let text: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a profile")).expect("JSON");
    let processes = text["processes"].as_array().expect("processes");
    let labels = processes.iter().map(|p| p["labels"]["rank"].as_str());
    let numbers: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
    assert!(
        labels.eq(numbers.iter().map(|n| Some(n.as_str()))),
        "{processes:?}"
    );
    let status = Run::ipath(["status"]).run().expect(0).stdout;
    for pid in &pids {
        assert!(!status.lines().any(|l| l.starts_with(pid)), "{status}");
    }
    assert_eq!(job.result(), expected);
}

#[test]
fn each_rank_of_open_mpi_is_exact() {
    each_rank_is_exact(Mpi::Open, 2);
}

#[test]
fn each_rank_of_mpich_is_exact() {
    each_rank_is_exact(Mpi::Mpich, 2);
}

#[test]
fn four_ranks_are_exact() {
    each_rank_is_exact(Mpi::Open, 4);
    each_rank_is_exact(Mpi::Mpich, 4);
}

/// A job is measured in the middle of its run, all its ranks or some. Its output stays the same.
#[test]
fn a_job_is_measured_for_a_while() {
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let (scratch, plain) = (Scratch::new("mpi"), Scratch::new("mpi"));
        let expected = Job::start(mpi, 2, "400", &plain).result();
        let mut job = Job::start(mpi, 2, "400", &scratch);
        job.pids();
        job.allow("go");
        let launcher = job.launcher.pid().to_string();
        let file = scratch.file("profile.json");
        for (ranks, count) in [("0,1", 2), ("0-1", 2), ("1", 1)] {
            Run::ipath([
                "attach",
                "--mpi",
                &launcher,
                "--ranks",
                ranks,
                "-f",
                "libmpi*!MPI_Wait",
            ])
            .args(["--quiet", "--duration", "200ms", "-o"])
            .arg(&file)
            .run()
            .expect(0);
            let text = fs::read_to_string(&file).expect("a profile");
            let profile: Value = serde_json::from_str(&text).expect("JSON");
            let processes = profile["processes"].as_array().expect("processes");
            assert_eq!(processes.len(), count, "{ranks}: {processes:?}");
        }
        assert_eq!(job.result(), expected);
    }
}

#[test]
fn what_is_no_launcher_is_refused() {
    let other = Target::start("sleep", ["600"]);
    let pid = other.pid().to_string();
    let attach = |arguments: &[&str]| {
        let all = [&["attach", "--mpi", "-f", "MPI_Wait"], arguments].concat();
        Run::ipath(all).run().expect(1)
    };
    let finished = attach(&[&pid]);
    let error = finished.expect_error();
    assert!(error.contains("no rank of an MPI job"), "{error}");
    assert!(finished.hints().contains("mpirun"), "{}", finished.hints());
    drop(other);
    let scratch = Scratch::new("mpi");
    let mut job = Job::start(Mpi::Open, 2, "1", &scratch);
    job.pids();
    let launcher = job.launcher.pid().to_string();
    let error = attach(&[&launcher, "--ranks", "0,6-7"]).expect_error();
    assert!(
        error.contains("no rank 6, 7 on this machine: there are 0, 1"),
        "{error}"
    );
    job.result();
}

/// A process that started two jobs is not the launcher of either, and ranks with equal numbers are
/// not confused.
#[test]
fn jobs_are_not_mixed() {
    let scratches = [Scratch::new("mpi"), Scratch::new("mpi")];
    let start = |(mpi, scratch)| Job::start(mpi, 2, "1", scratch);
    let mut jobs = [(Mpi::Open, &scratches[0]), (Mpi::Mpich, &scratches[1])].map(start);
    jobs.iter_mut().for_each(|job| drop(job.pids()));
    let own = std::process::id().to_string();
    let finished = Run::ipath(["attach", "--mpi", &own, "-f", "MPI_Wait"])
        .run()
        .expect(1);
    let error = finished.expect_error();
    assert!(error.contains("several MPI jobs below it"), "{error}");
    let launcher = jobs[0].launcher.pid().to_string();
    assert!(error.contains(&launcher), "{error}");
    assert!(
        finished.hints().contains("name one of these"),
        "{}",
        finished.report()
    );
    for job in jobs {
        job.result();
    }
}

/// Each rank is measured separately, from its first instruction on.
#[test]
fn ranks_write_files_of_their_own() {
    for mpi in [Mpi::Open, Mpi::Mpich] {
        let scratch = Scratch::new("mpi");
        let run = |file: &str| {
            Run::new(mpi.launcher())
                .args(mpi.options())
                .args(["-n", "2"])
                .arg(ipath())
                .args(["run", "-f", "libmpi*!MPI_Wait", "-o"])
                .arg(scratch.file(file))
                .arg("--")
                .arg(halo_of(mpi))
                .arg("20")
                .limit(LIMIT)
                .run()
                .expect(0)
        };
        let is_warned = |run: &Finished| {
            run.stderr
                .matches("put %r, the rank, into the name")
                .count()
        };
        let same = run("same.json");
        assert_eq!(is_warned(&same), 1, "{}", same.report());
        assert_eq!(is_warned(&run("rank%r.json")), 0);
        for rank in ["0", "1"] {
            let profile = Profile::read(&scratch.file(&format!("rank{rank}.json")));
            assert!(profile.calls("MPI_Wait") > 20, "{rank}");
        }
    }
    let outside = Run::ipath(["run", "-f", "main", "-o", "x%r.json", "--", "true"]);
    let error = outside.run().expect(1).expect_error();
    assert!(error.contains("the rank in an MPI job"), "{error}");
}
