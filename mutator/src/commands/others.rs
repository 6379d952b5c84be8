//! The descendants of a process that are not measured with it.

use std::time::Duration;

use ipath_base::printable::printable;
use ipath_profile::report::human;
use ipath_target::process::{Pid, Process};

use super::remarks::warn;

/// Warns that `alike` processes started by the target run the same program and are left out: a user
/// who names a server may want its workers. `done` is the participle of the operation that leaves
/// them out, such as "measured", and `otherwise` the advice. Returns the note for the profile.
/// `None` if `alike` is 0.
pub(super) fn tell_left_out(
    operation: &str,
    pid: Pid,
    alike: usize,
    done: &str,
    otherwise: &str,
) -> Option<String> {
    let which = match alike {
        0 => return None,
        1 => "a process that it has started runs the same program and is".to_owned(),
        n => format!("{n} processes that it has started run the same program and are"),
    };
    warn(&format!(
        "{operation} {pid}: {which} not {done}: {otherwise}"
    ));
    Some(format!("{which} not {done}"))
}

/// A process and its descendants, without this command.
pub(super) fn tree(root: &Process) -> Vec<Process> {
    let own = Pid(std::process::id() as i32);
    let all = std::iter::once(root.clone()).chain(root.descendants());
    all.filter(|process| process.pid != own).collect()
}

/// The descendants of a process with their CPU time at one moment.
pub(super) struct Others {
    /// Each descendant, with its CPU time at that moment in nanoseconds.
    begun: Vec<(Process, u64)>,
    /// The CPU time of the process itself at that moment, in nanoseconds.
    own: u64,
}

impl Others {
    /// The current descendants of `process` whose CPU time can be read, with that time.
    pub(super) fn of(process: &Process) -> Self {
        let with_time = |process: Process| {
            let time = process.cpu_time()?;
            Some((process, time))
        };
        let begun = tree(process).into_iter().skip(1);
        Self {
            begun: begun.filter_map(with_time).collect(),
            own: process.cpu_time().unwrap_or(0),
        }
    }

    /// A note on the descendants if they have used more CPU time than `process` since that moment,
    /// and enough to be worth a note. `None` otherwise.
    pub(super) fn busier(&self, process: &Process) -> Option<String> {
        let since = |process: &Process, then: u64| {
            let now = process.cpu_time().unwrap_or(then);
            now.saturating_sub(then)
        };
        let all = self.begun.iter().map(|(process, then)| {
            let name = process
                .exe()
                .and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
            (name.unwrap_or_default(), since(process, *then))
        });
        let all: Vec<(String, u64)> = all.collect();
        said(&all, since(process, self.own))
    }
}

/// A note on descendants by name and CPU time in nanoseconds, compared with the `own` time of their
/// ancestor. `None` if they have used too little.
fn said(all: &[(String, u64)], own: u64) -> Option<String> {
    /// Less time is not worth a note.
    const LEAST: Duration = Duration::from_millis(20);
    let sum: u64 = all.iter().map(|(_, time)| time).sum();
    let busy = all.iter().filter(|(_, time)| *time > 0).count();
    let (name, _) = all.iter().max_by_key(|(_, time)| *time)?;
    let is_more = sum > own && u128::from(sum) >= LEAST.as_nanos();
    is_more.then(|| {
        let time = human::time(sum.into());
        let which = match busy {
            1 => format!("a process that it has started ({})", printable(name)),
            n => format!("{n} processes that it has started ({})", printable(name)),
        };
        format!("{which} ran for {time} meanwhile: --children includes them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_named_if_they_do_the_work() {
        let of = |times: &[u64], own: u64| {
            let all = times
                .iter()
                .map(|ms| ("postgres".to_owned(), ms * 1_000_000));
            said(&all.collect::<Vec<_>>(), own * 1_000_000)
        };
        assert_eq!(
            of(&[0, 700, 300], 10).as_deref(),
            Some(
                "2 processes that it has started (postgres) ran for 1.00 s meanwhile: --children includes them"
            )
        );
        assert_eq!(
            of(&[50], 0).as_deref(),
            Some(
                "a process that it has started (postgres) ran for 50.0 ms meanwhile: --children includes them"
            )
        );
        assert_eq!(of(&[50], 60), None);
        assert_eq!(of(&[5], 0), None);
        assert_eq!(of(&[], 0), None);
    }
}
