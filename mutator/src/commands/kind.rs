//! The relation between the processes of a job.

use crate::failure::Failure;
use ipath_base::files::file_name;
use ipath_profile::program;
use ipath_target::process::Process;

/// A process that is not measured, with its rank or process id and the reason.
pub(super) type Failed = (u32, Process, Failure);

/// The kind of a job of several processes, and how its processes are identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ranks of an MPI job, by their numbers.
    Rank,
    /// A process and its descendants, identified by their ids.
    Process,
}

impl Kind {
    /// The word for one process in messages.
    pub(super) fn one(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Process => "process",
        }
    }

    /// The word for several processes in messages.
    pub(super) fn several(self) -> &'static str {
        match self {
            Self::Rank => "ranks",
            Self::Process => "processes",
        }
    }

    /// Joins the answers of several processes, each given with the process's rank or process id.
    /// Equal answers appear once. `Ok` if at least one answer is.
    pub(super) fn told(
        self,
        answers: Vec<(u32, Result<String, String>)>,
    ) -> Result<String, String> {
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
                1 => format!("{} {}: {text}", self.one(), numbers[0]),
                n => format!("{n} {}: {text}", self.several()),
            }
        };
        let text: Vec<String> = said.into_iter().map(line).collect();
        if is_done {
            Ok(text.join("; "))
        } else {
            Err(text.join("; "))
        }
    }

    /// The line about a process that is not measured.
    pub(super) fn not_measured(self, number: u32, process: &Process, failure: &Failure) -> String {
        let line = failure.in_one_line();
        match self {
            Self::Rank => format!("rank {number} is not measured: {line}"),
            Self::Process => {
                let pid = format!(" {}: ", process.pid);
                let why = line.split_once(&pid).map_or(line.as_str(), |(_, why)| why);
                match name(process) {
                    Some(name) => format!("process {number} ({name}) is not measured: {why}"),
                    None => format!("process {number} is not measured: {why}"),
                }
            }
        }
    }
}

/// The name of a process for messages. `None` if it has ended.
fn name(process: &Process) -> Option<String> {
    let exe = process.exe()?.display().to_string();
    let args = process.args();
    let (name, _) = program(&exe, &args);
    Some(if name.starts_with('/') {
        file_name(&name).to_owned()
    } else {
        name.into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_ranks_say_is_told_once() {
        let ok = |text: &str| Ok(text.to_owned());
        let err = |text: &str| Err(text.to_owned());
        assert_eq!(
            Kind::Rank.told(vec![(0, ok("added f")), (1, ok("added f"))]),
            ok("added f")
        );
        assert_eq!(
            Kind::Rank.told(vec![
                (0, ok("added f")),
                (1, err("gone")),
                (2, ok("added f"))
            ]),
            ok("2 ranks: added f; rank 1: gone")
        );
        assert_eq!(
            Kind::Rank.told(vec![(0, err("no")), (3, err("no"))]),
            err("no")
        );
    }
}
