//! The ranks of an MPI job as one thing that is measured: a session in each, and the sum of their profiles.

use std::sync::Arc;

use super::attach::selected;
use super::measure::{options, patterns, spots};
use super::outcome::tell_refused;
use super::remarks::warn;
use super::source::{AtEnd, Live, Watched};
use super::target::find;
use super::watch::{Watch, destination, hold, watch};
use crate::cli::{Job as Asked, Measure, Show};
use crate::error::{Failure, io_text};
use crate::merge::Merger;
use crate::mpi::{NoRanks, Rank, ranks};
use crate::process::{Pid, Process};
use crate::profile::{Changed, Profile};
use crate::session::{Session, SessionError, Where};
use crate::view::{Callees, Finder, Names, Sample, Source};

const OPERATION: &str = "attach";

/// Instruments the ranks that a launcher has started here, shows what happens, and takes everything out again.
pub(super) fn attach(
    launcher: Pid,
    asked: &Asked,
    measure: &Measure,
    show: &Show,
    keep: bool,
) -> Result<(), Failure> {
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns.at)?;
    let options = options(OPERATION, measure)?;
    if patterns.is_empty() && spots.is_empty() {
        let cause = "no function is named";
        let hint = "`ipath suggest PID` of one rank lists those worth naming with -f";
        return Err(Failure::new(OPERATION, launcher, cause).hint(hint));
    }
    let output = Watch::new(show)?;
    let launcher = find(OPERATION, launcher)?;
    let found = ranks(&launcher, &asked.ranks);
    let found = found.map_err(|e| {
        let launchers = "name the launcher: `pgrep -a mpirun`, `pgrep -a mpiexec`";
        let hint = matches!(e, NoRanks::None(_)).then(|| launchers.to_owned());
        Failure::of(OPERATION, e).maybe_hint(hint)
    })?;
    let at_end = match keep {
        true => AtEnd::Keep,
        false => AtEnd::TakeOut,
    };
    let create = |rank: &Rank| {
        let process = &rank.process;
        let failure = |e: SessionError| e.failure(OPERATION, process);
        process.check().map_err(|e| failure(e.into()))?;
        let selected = selected(OPERATION, process, &patterns, &spots, measure, &options)?;
        Session::create(process, &options, selected, Where::Running).map_err(failure)
    };
    let signals = hold(OPERATION)?;
    let mut job = Job::default();
    let mut failed = Vec::new();
    for rank in found {
        if signals.ended() {
            break;
        }
        match create(&rank) {
            Ok((session, changed)) => {
                // What is refused in one rank is in all.
                if job.members.is_empty() {
                    tell_refused(&changed);
                }
                job.members.push(Member {
                    number: rank.number,
                    live: Live::new(session, at_end),
                });
            }
            Err(failure) => failed.push((rank.number, failure)),
        }
    }
    crate::segment::sweep();
    if job.members.is_empty() {
        return match failed.into_iter().next() {
            Some((_, failure)) => Err(failure),
            // It was ended before it had begun.
            None => Ok(()),
        };
    }
    for (number, failure) in failed {
        warn(&format!("rank {number} is not measured: {failure}"));
    }
    watch(&output, show, job, signals, &[])
}

/// A rank and its session.
struct Member {
    number: u32,
    live: Live,
}

/// The ranks that are measured; there is one at least.
#[derive(Default)]
pub(super) struct Job {
    members: Vec<Member>,
    /// The latest sum.
    sum: Option<Profile>,
}

fn nothing(operation: &str) -> Failure {
    Failure::new(operation, "ranks", "none of them has a profile")
}

/// What is told of several ranks: once where all say the same.
fn told(answers: Vec<(u32, Result<String, String>)>) -> Result<String, String> {
    let of = answers.len();
    let mut said: Vec<(Result<String, String>, Vec<u32>)> = Vec::new();
    for (number, answer) in answers {
        match said.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, numbers)) => numbers.push(number),
            None => said.push((answer, vec![number])),
        }
    }
    let is_done = said.iter().any(|(answer, _)| answer.is_ok());
    let line = |(answer, numbers): (Result<String, String>, Vec<u32>)| {
        let (Ok(text) | Err(text)) = answer;
        match numbers.len() {
            n if n == of => text,
            1 => format!("rank {}: {text}", numbers[0]),
            n => format!("{n} ranks: {text}"),
        }
    };
    let text: Vec<String> = said.into_iter().map(line).collect();
    match is_done {
        true => Ok(text.join("; ")),
        false => Err(text.join("; ")),
    }
}

impl Job {
    /// The sessions that there are of a job's ranks, at the end of whose watching nothing becomes of them.
    pub(super) fn of(sessions: Vec<Session>) -> Self {
        let member = |session: Session| Member {
            number: session.document().rank.unwrap_or_default(),
            live: Live::new(session, AtEnd::Nothing),
        };
        Self {
            members: sessions.into_iter().map(member).collect(),
            sum: None,
        }
    }

    /// What comes of doing something in each rank.
    fn each(
        &mut self,
        mut change: impl FnMut(&mut Live) -> Result<String, String>,
    ) -> Result<String, String> {
        let members = self.members.iter_mut();
        let answers = members.map(|member| (member.number, change(&mut member.live)));
        told(answers.collect())
    }

    /// The same with a function of the latest sum, by its index there and in each.
    fn each_function(
        &mut self,
        function: usize,
        mut change: impl FnMut(&mut Live, usize) -> Result<String, String>,
    ) -> Result<String, String> {
        let gone = || "the function is not in the session".to_owned();
        let sum = self.sum.as_ref().ok_or_else(gone)?;
        let function = sum.functions.get(function).cloned();
        let function = function.ok_or_else(gone)?;
        let module = sum.modules.get(function.module).cloned();
        let module = module.ok_or_else(gone)?;
        self.each(|live| {
            let index = live.index_of(&module, &function).ok_or_else(gone)?;
            change(live, index)
        })
    }
}

/// The sum of these profiles of ranks.
pub(super) fn sum_of<'p>(
    operation: &str,
    profiles: impl Iterator<Item = &'p Profile>,
) -> Result<Profile, Failure> {
    let mut merger = Merger::default();
    for profile in profiles {
        let added = merger.add(profile);
        added.map_err(|e| Failure::new(operation, "ranks", e))?;
    }
    merger.finish().ok_or_else(|| nothing(operation))
}

impl Source for Job {
    fn sample(&mut self) -> Result<Sample<'_>, String> {
        Watched::look(self).map_err(|e| e.to_string())
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        self.each(|live| live.add(pattern))
    }

    fn callees(&mut self, function: usize) -> Result<Callees, String> {
        let mut found = Err("no rank has it".to_owned());
        let _ = self.each_function(function, |live, index| {
            if found.is_err() {
                found = live.callees(index);
            }
            Ok(String::new())
        });
        found
    }

    fn add_callees(&mut self, callees: &Callees) -> Result<String, String> {
        self.each(|live| live.add_callees(callees))
    }

    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String> {
        self.each_function(function, |live, index| live.change(index, metrics))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        self.each_function(function, |live, index| live.remove(index))
    }

    fn names(&mut self) -> Option<Arc<Names>> {
        self.members.first_mut()?.live.names()
    }

    fn finder(&mut self) -> Result<Box<dyn Finder>, String> {
        Err("estimates are of one process: `ipath suggest PID` of a rank gives them".to_owned())
    }

    fn add_found(&mut self, _: &[u64]) -> Result<String, String> {
        Err("estimates are of one process".to_owned())
    }

    fn write(&mut self, file: &str) -> Result<String, String> {
        let path = std::path::Path::new(file);
        let to = destination(path).map_err(|e| e.to_string())?;
        let sum = self.sum.as_ref().ok_or("there is no sample yet")?;
        let saved = sum.save_soon(&to).map_err(|e| io_text(&e));
        saved.map_err(|cause| format!("write {}: {cause}", path.display()))?;
        Ok(format!("written to {}", path.display()))
    }
}

impl Watched for Job {
    fn first(&self) -> &Process {
        self.members[0].live.session().process()
    }

    fn look(&mut self) -> Result<Sample<'_>, Failure> {
        let (mut merger, mut over, mut stopped) = (Merger::default(), 0, Vec::new());
        let (mut doubt, mut ended) = (None, None);
        for Member { number, live } in &mut self.members {
            let sample = Watched::look(live)?;
            let added = merger.add(sample.profile);
            added.map_err(|e| Failure::new("watch", "ranks", e))?;
            if let Some(why) = sample.ended {
                over += 1;
                ended = Some(why);
            }
            if let Some(stands) = sample.stands {
                stopped.push(format!("rank {number} {stands}"));
            }
            doubt = doubt.or(sample.doubt);
        }
        let sum = merger.finish().ok_or_else(|| nothing("watch"))?;
        Ok(Sample {
            profile: self.sum.insert(sum),
            changed: Changed::All,
            stands: (!stopped.is_empty()).then(|| stopped.join(", ")),
            ended: ended.filter(|_| over == self.members.len()),
            doubt,
        })
    }

    fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        let (mut done, mut profiles) = (Ok(()), Vec::new());
        let mut failed = Ok(());
        for Member { live, .. } in &mut self.members {
            let (ended, profile) = Live::finish(live);
            done = done.and(ended);
            match profile {
                Ok(profile) => profiles.push(profile),
                Err(failure) => failed = failed.and(Err(failure)),
            }
        }
        let sum = failed.and_then(|()| sum_of("watch", profiles.iter()));
        (done, sum)
    }

    fn kept_in(&self) -> Vec<Pid> {
        let members = self.members.iter();
        members.flat_map(|member| member.live.kept_in()).collect()
    }

    fn profile_again(&mut self) -> Result<Profile, Failure> {
        let lives = self.members.iter_mut().map(|member| &mut member.live);
        let profiles: Result<Vec<Profile>, Failure> = lives.map(Watched::profile_again).collect();
        sum_of("watch", profiles?.iter())
    }

    fn replaced(&self) -> Vec<String> {
        let members = self.members.iter();
        members.flat_map(|member| member.live.replaced()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_ranks_say_is_told_once() {
        let ok = |text: &str| Ok(text.to_owned());
        let err = |text: &str| Err(text.to_owned());
        assert_eq!(
            told(vec![(0, ok("added f")), (1, ok("added f"))]),
            ok("added f")
        );
        assert_eq!(
            told(vec![
                (0, ok("added f")),
                (1, err("gone")),
                (2, ok("added f"))
            ]),
            ok("2 ranks: added f; rank 1: gone")
        );
        assert_eq!(told(vec![(0, err("no")), (3, err("no"))]), err("no"));
    }
}
