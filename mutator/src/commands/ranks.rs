//! `attach --mpi`: a session in each rank that a launcher has started on this machine.

use super::attach::selected;
use super::kind::Kind;
use super::limit::tell_unlimited;
use super::live::AtEnd;
use super::measure::{options, paths_of, patterns, spots};
use super::processes::Job;
use super::rank_file::of_own_rank;
use super::target::find;
use super::together;
use super::watch::{Watch, hold, watch};
use crate::cli::{Job as Asked, Measure, Show};
use crate::commands::failures::{SessionFailure, instead};
use crate::failure::Failure;
use ipath_session::mpi::{NoRanks, local_ranks, ranks};
use ipath_session::session::{Session, SessionError, Where};
use ipath_target::process::{Pid, Process};

const OPERATION: &str = "attach";

/// Instruments the ranks that a launcher has started on this machine, or without a launcher all
/// ranks on it, and shows the measurements. Removes the sessions at the end, unless `keep` is true.
pub(super) fn attach(
    launcher: Option<Pid>,
    asked: &Asked,
    measure: &Measure,
    show: &Show,
    keep: bool,
) -> Result<(), Failure> {
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns)?;
    let mut options = options(OPERATION, measure)?;
    if patterns.is_empty() && spots.is_empty() {
        let cause = "no function is named";
        let hint = "`ipath suggest PID` for one rank lists functions worth naming with -f";
        let subject = launcher.map_or("--local-ranks".to_owned(), |pid| pid.to_string());
        return Err(Failure::new(OPERATION, subject, cause).hint(hint));
    }
    let show = &of_own_rank(show)?;
    let output = Watch::new(show)?;
    let wanted: Vec<u32> = asked.ranks.iter().cloned().flatten().collect();
    options.family = launcher.map(|pid| find(OPERATION, pid)).transpose()?;
    let found = match &options.family {
        Some(launcher) => ranks(launcher, &wanted),
        None => local_ranks(&wanted),
    };
    let found = found.map_err(|e| {
        let launchers = "name the launcher: `pgrep -a mpirun`, `pgrep -a mpiexec`";
        let hint = match &e {
            NoRanks::None(_) | NoRanks::NoneHere => Some(launchers.into()),
            NoRanks::Several(..) => Some("name one of these: `ipath attach --mpi PID`".into()),
            NoRanks::Missing(..) => None,
        };
        let subject = launcher.map_or("this machine".to_owned(), |pid| pid.to_string());
        match e {
            NoRanks::Missing(..) => Failure::new(OPERATION, subject, e),
            // The error names its subject itself.
            e => Failure::of(OPERATION, e).maybe_hint(hint),
        }
    })?;
    let at_end = if keep { AtEnd::Keep } else { AtEnd::TakeOut };
    let create = |process: &Process| {
        let failure = |e: SessionError| match (&e, launcher) {
            (SessionError::Exists, Some(launcher)) => {
                Failure::new(OPERATION, process.pid, e).hint(instead(launcher))
            }
            _ => e.failure(OPERATION, process),
        };
        process.check().map_err(|e| failure(e.into()))?;
        let selected = selected(OPERATION, process, &patterns, &spots, measure, &options)?;
        Session::create(process, &options, selected, Where::Running).map_err(failure)
    };
    let signals = hold(OPERATION)?;
    let mut job = Job::new(Kind::Rank, paths_of(measure.per_process));
    let found = found.into_iter();
    let processes = found.map(|rank| (rank.number, rank.process)).collect();
    let kept = (at_end, measure.max_overhead);
    together::begin(&mut job, processes, kept, &signals, create)?;
    if job.is_empty() {
        return Ok(());
    }
    if let Some(launcher) = launcher {
        tell_unlimited(launcher, measure, keep);
    }
    watch(&output, show, job, signals, &[])
}
