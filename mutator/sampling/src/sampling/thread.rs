//! The time of a thread, from its records.

use std::collections::{HashMap, HashSet};

use super::paths::PathId;
use super::record::Way;

/// The samples at one path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Samples on a processor.
    pub(super) on: u64,
    /// The CPU time that these samples stand for, in nanoseconds.
    pub(super) cpu: f64,
    /// The sum of the squares of each sample's CPU time: the variance of `cpu`.
    pub(super) cpu_squares: f64,
    /// The number of sampled waits.
    pub(super) off: u64,
    /// The number of waits that the sampled waits stand for. Only waits that began in a window
    /// count.
    pub(super) waits: f64,
    /// The time that the sampled waits stand for, in nanoseconds.
    pub(super) waited: f64,
    /// The sum of the squares of each sampled wait's time: the variance of `waited`.
    pub(super) squares: f64,
    /// Time in which the thread waited for work, ns. It is 0 until [`Tally::absorb`] separates it
    /// from `waited`.
    pub(super) for_work: f64,
}

impl Seen {
    /// The total time, in nanoseconds.
    pub(super) fn time(&self) -> f64 {
        self.cpu + self.waited + self.for_work
    }

    /// Adds other samples, each scaled by these factors.
    pub(super) fn add(&mut self, other: &Self, Factors { on, off }: Factors) {
        self.on += other.on;
        self.cpu += other.cpu * on;
        self.cpu_squares += other.cpu_squares * on * on;
        self.off += other.off;
        self.waits += other.waits * off;
        self.waited += other.waited * off;
        self.squares += other.squares * off * off;
        self.for_work += other.for_work * off;
    }
}

/// The number of samples that one sample stands for, on a processor and off it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    pub(super) on: f64,
    pub(super) off: f64,
}

impl Factors {
    /// Samples are not scaled.
    pub(super) const ONE: Self = Self { on: 1.0, off: 1.0 };
}

/// The whole time of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) cpu: f64,
    pub(super) waited: f64,
}

/// The samples of several threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// The samples by path.
    pub(super) paths: HashMap<PathId, Seen>,
    /// The whole CPU time, in nanoseconds.
    pub(super) cpu: f64,
    /// The whole waiting time, in nanoseconds.
    pub(super) waited: f64,
    /// The time since each thread was first seen, in nanoseconds.
    pub(super) lived: f64,
    /// The part of `lived` in which they waited for a processor, in nanoseconds.
    pub(super) delayed: f64,
}

impl Tally {
    /// Adds the samples of a thread, scaled to the time that it has spent. The thread waits for
    /// work at the paths in `for_work`.
    pub(super) fn absorb(&mut self, time: &ThreadTime, spent: Spent, for_work: &HashSet<PathId>) {
        let part = |all: f64, seen: f64| if seen > 0.0 { all / seen } else { 0.0 };
        let factors = Factors {
            on: part(spent.cpu, time.cpu()),
            off: part(spent.waited, time.waited as f64),
        };
        for (&path, seen) in &time.paths {
            let mut seen = *seen;
            if for_work.contains(&path) {
                seen.for_work = std::mem::take(&mut seen.waited);
                seen.squares = 0.0;
            }
            self.paths.entry(path).or_default().add(&seen, factors);
        }
        self.cpu += spent.cpu;
        self.waited += spent.waited;
    }

    /// Replaces the numbers of paths.
    pub(super) fn renumber(&mut self, new: &[PathId]) {
        self.paths = renumbered(std::mem::take(&mut self.paths), new);
    }
}

/// The samples by the new numbers of their paths.
fn renumbered(paths: HashMap<PathId, Seen>, new: &[PathId]) -> HashMap<PathId, Seen> {
    let mut all: HashMap<PathId, Seen> = HashMap::new();
    for (path, seen) in paths {
        all.entry(new[path as usize])
            .or_default()
            .add(&seen, Factors::ONE);
    }
    all
}

/// The state of a thread at the start of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It waited, at this path if known.
    Waiting(Option<PathId>),
    /// It was runnable.
    Running,
}

/// A wait that has not ended.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Its start: CLOCK_MONOTONIC, in nanoseconds.
    since: u64,
    /// Its path, and the number of waits that it stands for. `None` if it was not sampled.
    place: Option<(PathId, u64)>,
    /// True if it began in this window.
    is_new: bool,
}

/// The time of a thread, in windows in which it is sampled.
#[derive(Clone, Debug)]
pub(super) struct ThreadTime {
    /// The state at the start of the window.
    met: Met,
    /// The start of the window: CLOCK_MONOTONIC, in nanoseconds.
    begun: u64,
    /// The wait under way. `None` if the thread does not wait or its state is unknown.
    wait: Option<Wait>,
    /// The path of the sample taken just before the record of a switch, and the number of switches
    /// that it stands for.
    about: Option<(PathId, u64)>,
    /// True until the first record of this window.
    is_fresh: bool,
    /// The samples by path.
    pub(super) paths: HashMap<PathId, Seen>,
    /// The whole waiting time in the windows, in nanoseconds.
    pub(super) waited: u64,
}

impl ThreadTime {
    /// A thread without samples.
    pub(super) fn new() -> Self {
        Self {
            met: Met::Running,
            begun: 0,
            wait: None,
            about: None,
            is_fresh: false,
            paths: HashMap::new(),
            waited: 0,
        }
    }

    /// The CPU time that its samples stand for, in nanoseconds.
    pub(super) fn cpu(&self) -> f64 {
        self.paths.values().map(|seen| seen.cpu).sum()
    }

    /// Begins a window of a thread in this state.
    pub(super) fn begin(&mut self, met: Met, now: u64) {
        (self.met, self.begun) = (met, now);
        (self.wait, self.about) = (None, None);
        self.is_fresh = true;
    }

    /// Adds a sample on a processor, which stands for `period` nanoseconds.
    pub(super) fn on_processor(&mut self, path: PathId, period: u64) {
        self.is_fresh = false;
        let seen = self.paths.entry(path).or_default();
        seen.on += 1;
        seen.cpu += period as f64;
        seen.cpu_squares += period as f64 * period as f64;
    }

    /// Adds `waited` nanoseconds of waiting at a path. They count as one sampled wait, and not in
    /// [`Seen::waits`].
    pub(super) fn off_processor(&mut self, path: Option<PathId>, waited: u64) {
        self.waited_at(path.map(|path| (path, 1)), waited, false);
    }

    /// Adds a sample of a switch, which stands for `period` switches.
    pub(super) fn about_to_leave(&mut self, path: PathId, period: u64) {
        self.about = Some((path, period));
    }

    /// Adds a switch at a time (CLOCK_MONOTONIC, in nanoseconds). A switch onto a processor ends
    /// the wait.
    pub(super) fn switched(&mut self, time: u64, way: Way) {
        let is_first = std::mem::replace(&mut self.is_fresh, false);
        let about = self.about.take();
        match way {
            Way::Waits => {
                self.wait = Some(Wait {
                    since: time,
                    place: about,
                    is_new: true,
                });
            }
            Way::Preempted => self.wait = None,
            Way::In => {
                if is_first {
                    self.wait = self.wait_met();
                }
                self.back(time);
            }
        }
    }

    /// The wait that was under way at the start of the window. `None` if the thread was runnable.
    fn wait_met(&self) -> Option<Wait> {
        let Met::Waiting(path) = self.met else {
            return None;
        };
        Some(Wait {
            since: self.begun,
            place: path.map(|path| (path, 1)),
            is_new: false,
        })
    }

    /// Handles lost records: the current state is unknown.
    pub(super) fn lost(&mut self) {
        (self.wait, self.about) = (None, None);
        self.is_fresh = false;
    }

    fn back(&mut self, time: u64) {
        if let Some(wait) = self.wait.take() {
            self.waited_at(wait.place, time.saturating_sub(wait.since), wait.is_new);
        }
    }

    fn waited_at(&mut self, place: Option<(PathId, u64)>, waited: u64, is_new: bool) {
        self.waited += waited;
        if let Some((path, period)) = place {
            let seen = self.paths.entry(path).or_default();
            let stands_for = waited as f64 * period as f64;
            seen.off += 1;
            seen.waits += if is_new { period as f64 } else { 0.0 };
            seen.waited += stands_for;
            seen.squares += stands_for * stands_for;
        }
    }

    /// Ends the window.
    pub(super) fn end(&mut self, now: u64) {
        if std::mem::replace(&mut self.is_fresh, false) {
            self.wait = self.wait_met();
        }
        self.back(now);
        self.about = None;
    }

    /// Replaces the numbers of paths.
    pub(super) fn renumber(&mut self, new: &[PathId]) {
        self.paths = renumbered(std::mem::take(&mut self.paths), new);
        let renumber = |path: &mut PathId| *path = new[*path as usize];
        if let Met::Waiting(Some(path)) = &mut self.met {
            renumber(path);
        }
        let places = [
            self.wait.as_mut().and_then(|wait| wait.place.as_mut()),
            self.about.as_mut(),
        ];
        for (path, _) in places.into_iter().flatten() {
            renumber(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(met: Met, now: u64) -> ThreadTime {
        let mut thread = ThreadTime::new();
        thread.begin(met, now);
        thread
    }

    #[test]
    fn waits_stand_for_those_that_were_not_sampled() {
        let mut thread = met(Met::Running, 0);
        thread.about_to_leave(1, 3);
        thread.switched(100, Way::Waits);
        thread.switched(150, Way::In);
        // This switch is not sampled.
        thread.switched(200, Way::Waits);
        thread.switched(300, Way::In);
        // This one is sampled, and is not a wait.
        thread.about_to_leave(2, 3);
        thread.switched(400, Way::Preempted);
        thread.switched(500, Way::In);
        thread.end(600);
        assert_eq!(thread.waited, 150);
        assert_eq!(thread.paths.len(), 1);
        let seen = thread.paths[&1];
        assert_eq!((seen.off, seen.waits, seen.waited), (1, 3.0, 150.0));
        assert_eq!(seen.squares, 150.0 * 150.0);
    }

    #[test]
    fn what_waited_before_and_what_waits_still_counts() {
        let mut thread = met(Met::Waiting(Some(4)), 1000);
        thread.switched(1400, Way::In);
        thread.on_processor(5, 20);
        thread.about_to_leave(6, 1);
        thread.switched(1500, Way::Waits);
        thread.end(1600);
        assert_eq!(thread.paths[&4].waited, 400.0);
        assert_eq!(thread.paths[&5].cpu, 20.0);
        assert_eq!(thread.paths[&6].waited, 100.0);
        assert_eq!(thread.waited, 500);
        // A wait that began before the window does not count as one that began in it.
        assert_eq!((thread.paths[&4].waits, thread.paths[&6].waits), (0.0, 1.0));
    }

    #[test]
    fn who_is_stopped_by_ipath_does_not_wait() {
        let mut thread = met(Met::Running, 0);
        thread.about_to_leave(9, 1);
        thread.switched(100, Way::Waits.unless_stopped(true));
        thread.switched(900, Way::In.unless_stopped(true));
        thread.about_to_leave(4, 1);
        thread.switched(1000, Way::Waits.unless_stopped(false));
        thread.end(1200);
        assert_eq!((thread.waited, thread.paths.len()), (200, 1));
        assert_eq!(thread.paths[&4].waited, 200.0);
    }

    #[test]
    fn who_waits_all_the_time_is_seen_to() {
        let mut thread = met(Met::Waiting(Some(4)), 1000);
        thread.end(2000);
        assert_eq!(thread.paths[&4].waited, 1000.0);
        thread.begin(Met::Running, 5000);
        thread.end(6000);
        assert_eq!(thread.waited, 1000);
    }

    #[test]
    fn after_a_loss_no_wait_is_as_long_as_it_seems() {
        let mut thread = met(Met::Running, 0);
        thread.about_to_leave(1, 1);
        thread.switched(100, Way::Waits);
        thread.lost();
        thread.switched(900, Way::In);
        thread.end(1000);
        assert_eq!((thread.waited, thread.paths.len()), (0, 0));
    }

    #[test]
    fn what_was_seen_in_a_part_of_the_time_stands_for_all_of_it() {
        let mut thread = met(Met::Running, 0);
        thread.on_processor(1, 10);
        thread.about_to_leave(2, 1);
        thread.switched(100, Way::Waits);
        thread.end(120);
        let mut all = Tally::default();
        let spent = Spent {
            cpu: 30.0,
            waited: 60.0,
        };
        all.absorb(&thread, spent, &HashSet::new());
        let (on, off) = (all.paths[&1], all.paths[&2]);
        assert_eq!((on.on, on.cpu, on.cpu_squares), (1, 30.0, 900.0));
        assert_eq!((off.waited, off.waits, all.waited), (60.0, 3.0, 60.0));
        // Merged paths have the sum of their samples.
        all.renumber(&[9, 0, 0]);
        assert_eq!((all.paths[&0].cpu, all.paths[&0].waited), (30.0, 60.0));
    }
}
