//! What the records of a thread say of where its time goes.

use std::collections::{HashMap, HashSet};

use super::paths::PathId;
use super::record::Way;

/// What has been seen at one path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Samples on a processor.
    pub(super) on: u64,
    /// CPU time they stand for, ns, and the sum of the squares of what each stands for: the variance.
    pub(super) cpu: f64,
    pub(super) cpu_squares: f64,
    /// Waits that were sampled.
    pub(super) off: u64,
    /// Waits that began while the thread was looked at, which those stand for.
    pub(super) waits: f64,
    /// Time that those stand for, ns, and the sum of the squares of what each stands for.
    pub(super) waited: f64,
    pub(super) squares: f64,
    /// Time in which the thread waited for work, ns. It is 0 until [`Tally::absorb`] separates it from
    /// `waited`.
    pub(super) for_work: f64,
}

impl Seen {
    /// The sum of all time, ns.
    pub(super) fn time(&self) -> f64 {
        self.cpu + self.waited + self.for_work
    }

    /// Takes in what has been seen elsewhere, each of which stands for so many as it.
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

/// The time of a thread, sampled or not, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) cpu: f64,
    pub(super) waited: f64,
}

/// What has been seen of several threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// By path.
    pub(super) paths: HashMap<PathId, Seen>,
    /// All CPU time and all waiting, ns, sampled or not.
    pub(super) cpu: f64,
    pub(super) waited: f64,
    /// The time that has passed since each was met, ns.
    pub(super) lived: f64,
    /// The part of `lived` in which they waited for a processor, ns.
    pub(super) delayed: f64,
}

impl Tally {
    /// Adds the samples of a thread, scaled to the time that it has spent. The thread waits for work at the
    /// paths in `for_work`.
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

    /// Has paths by other numbers.
    pub(super) fn renumber(&mut self, new: &[PathId]) {
        self.paths = renumbered(std::mem::take(&mut self.paths), new);
    }
}

/// What has been seen by path, with the new number of each.
fn renumbered(paths: HashMap<PathId, Seen>, new: &[PathId]) -> HashMap<PathId, Seen> {
    let mut all: HashMap<PathId, Seen> = HashMap::new();
    for (path, seen) in paths {
        all.entry(new[path as usize])
            .or_default()
            .add(&seen, Factors::ONE);
    }
    all
}

/// How a thread stood when a window began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It waited, at this path as far as that could be told.
    Waiting(Option<PathId>),
    /// It could run.
    Running,
}

/// A wait that is not over.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: u64,
    /// Where, and how many waits it stands for.
    place: Option<(PathId, u64)>,
    /// True if it began while the thread was looked at.
    is_new: bool,
}

/// The time of a thread, in windows in which it is looked at.
#[derive(Clone, Debug)]
pub(super) struct ThreadTime {
    met: Met,
    begun: u64,
    wait: Option<Wait>,
    /// Where it was sampled just before it is said to be switched out.
    about: Option<(PathId, u64)>,
    /// True while nothing has been seen of it in this window.
    is_fresh: bool,
    /// By path.
    pub(super) paths: HashMap<PathId, Seen>,
    /// All of its waiting, ns, sampled or not.
    pub(super) waited: u64,
}

impl ThreadTime {
    /// A thread of which nothing has been seen.
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

    /// CPU time that its samples stand for, ns.
    pub(super) fn cpu(&self) -> f64 {
        self.paths.values().map(|seen| seen.cpu).sum()
    }

    /// A window begins.
    pub(super) fn begin(&mut self, met: Met, now: u64) {
        (self.met, self.begun) = (met, now);
        (self.wait, self.about) = (None, None);
        self.is_fresh = true;
    }

    /// It was at a path with its clock.
    pub(super) fn on_processor(&mut self, path: PathId, period: u64) {
        self.is_fresh = false;
        let seen = self.paths.entry(path).or_default();
        seen.on += 1;
        seen.cpu += period as f64;
        seen.cpu_squares += period as f64 * period as f64;
    }

    /// It waited at a path for so long; how often is not known.
    pub(super) fn off_processor(&mut self, path: Option<PathId>, waited: u64) {
        self.waited_at(path.map(|path| (path, 1)), waited, false);
    }

    /// It is about to be switched out at a path, which stands for so many times.
    pub(super) fn about_to_leave(&mut self, path: PathId, period: u64) {
        self.about = Some((path, period));
    }

    /// It was switched.
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

    /// The wait in which it was met.
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

    /// Records may be missing: what is under way is not known any more.
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

    /// The window ends.
    pub(super) fn end(&mut self, now: u64) {
        if std::mem::replace(&mut self.is_fresh, false) {
            self.wait = self.wait_met();
        }
        self.back(now);
        self.about = None;
    }

    /// Has paths by other numbers.
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
        // Not sampled.
        thread.switched(200, Way::Waits);
        thread.switched(300, Way::In);
        // Sampled, and no wait.
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
        // That which began before is none of those that began meanwhile.
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
        // Paths that become one have what both had.
        all.renumber(&[9, 0, 0]);
        assert_eq!((all.paths[&0].cpu, all.paths[&0].waited), (30.0, 60.0));
    }
}
