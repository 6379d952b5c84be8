//! A thread of the process that is sampled.

use std::borrow::Cow;
use std::collections::HashSet;

use super::activity::Pace;
use super::event::Events;
use super::paths::PathId;
use super::thread::{Spent, Tally, ThreadTime};
use ipath_target::process::Activity;

/// A thread that is sampled in windows.
pub(super) struct Watched {
    pub(super) time: ThreadTime,
    /// The open window. `None` while the thread is not sampled.
    pub(super) window: Option<Window>,
    /// The time at which it was first seen: CLOCK_MONOTONIC, in nanoseconds.
    met: u64,
    /// The total length of its past windows, in nanoseconds.
    looked: u64,
    /// Its activity at `followed`.
    activity: Activity,
    /// Its activity at `met`.
    first: Activity,
    /// The time at which `activity` was read: CLOCK_MONOTONIC, in nanoseconds.
    followed: u64,
    /// Its pace: the mean of the last update and the earlier pace.
    pub(super) pace: Pace,
    /// The number of updates of `pace`.
    paces: u32,
    /// True once it has run since it was first seen.
    pub(super) has_run: bool,
    /// The wanted size of its ring in bytes. 0 if unknown.
    pub(super) ring: usize,
    /// One in this many of its samples is taken: more than 1 after the largest ring was full.
    pub(super) thin: u64,
}

/// A period in which a thread is sampled.
pub(super) struct Window {
    /// `None` in tests.
    pub(super) events: Option<Events>,
    /// The start: CLOCK_MONOTONIC, in nanoseconds.
    pub(super) begun: u64,
    /// The planned end: CLOCK_MONOTONIC, in nanoseconds.
    pub(super) ends: u64,
    /// The unspent part of the cost that was taken from the budget in advance, in nanoseconds.
    pub(super) prepaid: f64,
    /// The number of the thread's switches at the last sample of a switch.
    pub(super) counted: u64,
    /// True once records were dropped in it.
    pub(super) has_lost: bool,
}

impl Watched {
    /// A thread that is first seen now.
    pub(super) fn met(now: u64, activity: Activity) -> Self {
        Self {
            time: ThreadTime::new(),
            window: None,
            met: now,
            looked: 0,
            activity,
            first: activity,
            followed: now,
            pace: Pace::default(),
            paces: 0,
            has_run: false,
            ring: 0,
            thin: 1,
        }
    }

    /// Updates its activity as of `now`, `seconds` after the last update. Returns true if it ran
    /// since then.
    pub(super) fn follow(&mut self, activity: Activity, now: u64, seconds: f64) -> bool {
        self.followed = now;
        let pace = Pace::between(self.activity, activity, seconds);
        let ran = activity != self.activity;
        self.has_run |= ran;
        self.activity = activity;
        let middle = |before: f64, now: f64| match self.paces {
            0 => now,
            _ => (before + now) / 2.0,
        };
        self.pace = Pace {
            processor: middle(self.pace.processor, pace.processor),
            turns: middle(self.pace.turns, pace.turns),
        };
        self.paces = self.paces.saturating_add(1);
        ran
    }

    /// True if it has not run for a while.
    pub(super) fn is_asleep(&self) -> bool {
        self.paces > 0 && self.pace.turns < 0.5 && self.pace.processor <= 0.0
    }

    /// True if it comes before threads that hardly do anything.
    pub(super) fn is_busy(&self) -> bool {
        const PROCESSOR: f64 = 0.005;
        const TURNS: f64 = 20.0;
        self.pace.processor >= PROCESSOR || self.pace.turns >= TURNS
    }

    /// Adds `ns` to its sampled time.
    pub(super) fn looked_for(&mut self, ns: u64) {
        self.looked += ns;
    }

    /// Ends the window and returns it. `None` if there is none.
    pub(super) fn close(&mut self, now: u64) -> Option<Window> {
        let window = self.window.take()?;
        self.time.end(now);
        self.looked += now.saturating_sub(window.begun);
        Some(window)
    }

    /// Adds the samples of the thread until `now` to `all`. Returns false if the thread was not
    /// sampled. `for_work` returns the paths at which it waits for work.
    pub(super) fn tell(
        &self,
        all: &mut Tally,
        now: u64,
        for_work: impl FnOnce(&ThreadTime) -> HashSet<PathId>,
    ) -> bool {
        let of_window = self.window.as_ref().map(|w| now.saturating_sub(w.begun));
        let looked = self.looked + of_window.unwrap_or(0);
        if looked == 0 {
            return false;
        }
        // Assumes the same activity outside of windows as in them.
        let lived = now.saturating_sub(self.met) as f64;
        let factor = (lived / looked as f64).max(1.0);
        all.lived += lived;
        let mut time = Cow::Borrowed(&self.time);
        if self.window.is_some() {
            time.to_mut().end(now);
        }
        let (spent, delayed) = self.counted(lived).unwrap_or_else(|| {
            let spent = Spent {
                cpu: time.cpu() * factor,
                waited: time.waited as f64 * factor,
            };
            (spent, 0.0)
        });
        all.delayed += delayed;
        all.absorb(&time, spent, &for_work(&time));
        true
    }

    /// The kernel's count of its time and of its time without a processor, in ns, scaled to a life
    /// of `lived` ns. `None` if the kernel does not count.
    fn counted(&self, lived: f64) -> Option<(Spent, f64)> {
        let counted = self.followed.saturating_sub(self.met) as f64;
        if counted <= 0.0 || self.activity.turns == 0 {
            return None;
        }
        let part = |now: u64, then: u64| (now.saturating_sub(then) as f64 / counted).min(1.0);
        let cpu = part(self.activity.ran, self.first.ran);
        let delayed = part(self.activity.delayed, self.first.delayed);
        let spent = Spent {
            cpu: cpu * lived,
            waited: (1.0 - cpu - delayed).max(0.0) * lived,
        };
        Some((spent, delayed * lived))
    }
}

#[cfg(test)]
mod tests {
    use super::super::thread::Met;
    use super::*;

    fn nothing(_: &ThreadTime) -> HashSet<PathId> {
        HashSet::new()
    }

    fn window(begun: u64) -> Window {
        Window {
            events: None,
            begun,
            ends: begun + 100,
            prepaid: 0.0,
            counted: 0,
            has_lost: false,
        }
    }

    /// The kernel's count overrides samples: in bursts they add up to more time than the thread
    /// had.
    #[test]
    fn times_are_those_that_the_kernel_counts() {
        let mut thread = Watched::met(
            0,
            Activity {
                ran: 7,
                delayed: 3,
                turns: 1,
            },
        );
        thread.window = Some(window(0));
        thread.time.begin(Met::Running, 0);
        for _ in 0..3 {
            thread.time.on_processor(1, 100);
            thread.time.on_processor(2, 100);
        }
        thread.time.off_processor(Some(3), 900);
        let activity = Activity {
            ran: 407,
            delayed: 103,
            turns: 9,
        };
        assert!(thread.follow(activity, 1000, 0.1));
        let mut all = Tally::default();
        assert!(thread.tell(&mut all, 2000, nothing));
        assert_eq!((all.cpu, all.waited, all.delayed), (800.0, 1000.0, 200.0));
        assert_eq!((all.paths[&1].cpu, all.paths[&2].cpu), (400.0, 400.0));
        assert_eq!(all.paths[&3].waited, 1000.0);
    }

    #[test]
    fn what_is_seen_in_windows_stands_for_the_time_between_them() {
        let mut thread = Watched::met(0, Activity::default());
        let mut all = Tally::default();
        assert!(!thread.tell(&mut all, 500, nothing));
        thread.window = Some(window(500));
        thread.time.begin(Met::Running, 500);
        thread.time.on_processor(1, 40);
        assert!(thread.close(600).is_some());
        assert!(thread.tell(&mut all, 1000, nothing));
        assert_eq!(all.paths[&1].cpu, 400.0);
        // An open window counts with the time until now.
        thread.window = Some(window(1000));
        thread.time.begin(Met::Waiting(Some(2)), 1000);
        let mut all = Tally::default();
        assert!(thread.tell(&mut all, 1100, nothing));
        assert_eq!((all.paths[&1].cpu, all.paths[&2].waited), (220.0, 550.0));
    }

    #[test]
    fn who_has_turns_is_not_asleep() {
        let mut thread = Watched::met(0, Activity::default());
        assert!(!thread.follow(Activity::default(), 1, 0.1));
        assert!(thread.is_asleep() && !thread.has_run);
        let activity = Activity {
            ran: 500,
            delayed: 0,
            turns: 5,
        };
        assert!(thread.follow(activity, 2, 0.1));
        assert!(!thread.is_asleep() && thread.is_busy() && thread.has_run);
        assert!(!thread.follow(activity, 3, 0.1));
        assert_eq!(thread.pace.turns, 12.5);
    }
}
