//! The processor time of a thread, from its schedstat.

use super::{Pid, Tid, read_text};

/// The processor time of a thread. A kernel that does not count it reports 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Time on a processor, in nanoseconds.
    pub ran: u64,
    /// Time in which it waited for a processor, in nanoseconds.
    pub delayed: u64,
    /// The number of times that it was given a processor.
    pub turns: u64,
}

impl Activity {
    /// Reads the activity of a thread. `None` if its schedstat cannot be read, for example because
    /// it has ended.
    pub fn of(pid: Pid, tid: Tid) -> Option<Self> {
        parse(&read_text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?)
    }
}

/// The three numbers of a schedstat (Documentation/scheduler/sched-stats.rst). `None` if one is
/// missing.
fn parse(text: &str) -> Option<Activity> {
    let mut words = text.split_whitespace().map(str::parse);
    let (ran, delayed, turns) = (words.next()?, words.next()?, words.next()?);
    Some(Activity {
        ran: ran.ok()?,
        delayed: delayed.ok()?,
        turns: turns.ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_parsed_and_fewer_are_rejected() {
        let activity = Activity {
            ran: 1_500_000_000,
            delayed: 7,
            turns: 600,
        };
        assert_eq!(parse("1500000000 7 600\n"), Some(activity));
        assert_eq!(parse("1 2"), None);
    }
}
