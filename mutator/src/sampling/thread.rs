//! What the records of a thread say of where its time goes.

use std::collections::HashMap;

use super::record::Way;

/// A path that has been seen, by number.
pub(super) type PathId = u32;

/// What has been seen at one path of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Samples on a processor.
    pub(super) on: u64,
    /// CPU time they stand for, ns.
    pub(super) cpu: f64,
    /// Waits that were sampled.
    pub(super) off: u64,
    /// Waits that those stand for.
    pub(super) waits: f64,
    /// Time that those stand for, ns.
    pub(super) waited: f64,
    /// Sum of the squares of what each of those stands for: the variance of `waited`.
    pub(super) squares: f64,
}

impl Seen {
    /// Takes in what has been seen of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.on += other.on;
        self.cpu += other.cpu;
        self.off += other.off;
        self.waits += other.waits;
        self.waited += other.waited;
        self.squares += other.squares;
    }
}

/// How a thread stood when it was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It waited, at this path as far as that could be told.
    Waiting(Option<PathId>),
    /// It could run.
    Running,
}

/// The time of a thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadTime {
    met: Met,
    begun: u64,
    /// When it began to wait, and where, with how many waits that stands for.
    since: Option<(u64, Option<(PathId, u64)>)>,
    /// Where it was sampled just before it is said to be switched out.
    about: Option<(PathId, u64)>,
    has_records: bool,
    /// By path.
    pub(super) paths: HashMap<PathId, Seen>,
    /// All of its waiting, ns, sampled or not.
    pub(super) waited: u64,
    /// How often it has waited.
    pub(super) waits: u64,
    /// For how long it was looked at, ns, once that has ended.
    pub(super) lived: u64,
}

impl ThreadTime {
    /// A thread that is met at a time.
    pub(super) fn met(met: Met, now: u64) -> Self {
        Self {
            met,
            begun: now,
            since: None,
            about: None,
            has_records: false,
            paths: HashMap::new(),
            waited: 0,
            waits: 0,
            lived: 0,
        }
    }

    /// It was at a path with its clock.
    pub(super) fn on_processor(&mut self, path: PathId, period: u64) {
        self.has_records = true;
        let seen = self.paths.entry(path).or_default();
        seen.on += 1;
        seen.cpu += period as f64;
    }

    /// It is about to be switched out at a path, which stands for so many times.
    pub(super) fn about_to_leave(&mut self, path: PathId, period: u64) {
        self.about = Some((path, period));
    }

    /// It was switched.
    pub(super) fn switched(&mut self, time: u64, way: Way) {
        let is_first = !std::mem::replace(&mut self.has_records, true);
        let about = self.about.take();
        match way {
            Way::Waits => self.since = Some((time, about)),
            Way::Preempted => self.since = None,
            Way::In => {
                if is_first && let Met::Waiting(path) = self.met {
                    self.since = Some((self.begun, path.map(|path| (path, 1))));
                }
                self.back(time);
            }
        }
    }

    /// Records may be missing: what is under way is not known any more.
    pub(super) fn lost(&mut self) {
        self.since = None;
        self.about = None;
        self.has_records = true;
    }

    fn back(&mut self, time: u64) {
        let Some((since, place)) = self.since.take() else {
            return;
        };
        let waited = time.saturating_sub(since);
        self.waited += waited;
        self.waits += 1;
        if let Some((path, period)) = place {
            let seen = self.paths.entry(path).or_default();
            let stands_for = waited as f64 * period as f64;
            seen.off += 1;
            seen.waits += period as f64;
            seen.waited += stands_for;
            seen.squares += stands_for * stands_for;
        }
    }

    /// Takes in what has been seen of a thread whose observation has ended.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (&path, seen) in &other.paths {
            self.paths.entry(path).or_default().add(seen);
        }
        self.waited += other.waited;
        self.waits += other.waits;
        self.lived += other.lived;
    }

    /// The observation ends. Whether it has run at all: who has not is none of those whose time was looked at.
    pub(super) fn end(&mut self, now: u64) -> bool {
        self.back(now);
        self.lived = now.saturating_sub(self.begun);
        self.has_records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stand_for_those_that_were_not_sampled() {
        let mut thread = ThreadTime::met(Met::Running, 0);
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
        assert!(thread.end(600));
        assert_eq!((thread.waited, thread.waits), (150, 2));
        assert_eq!(thread.paths.len(), 1);
        let seen = thread.paths[&1];
        assert_eq!((seen.off, seen.waits, seen.waited), (1, 3.0, 150.0));
        assert_eq!(seen.squares, 150.0 * 150.0);
    }

    #[test]
    fn what_waited_before_and_what_waits_still_counts() {
        let mut thread = ThreadTime::met(Met::Waiting(Some(4)), 1000);
        thread.switched(1400, Way::In);
        thread.on_processor(5, 20);
        thread.about_to_leave(6, 1);
        thread.switched(1500, Way::Waits);
        assert!(thread.end(1600));
        assert_eq!(thread.paths[&4].waited, 400.0);
        assert_eq!(thread.paths[&5].cpu, 20.0);
        assert_eq!(thread.paths[&6].waited, 100.0);
        assert_eq!(thread.waited, 500);
    }

    #[test]
    fn who_never_ran_is_not_counted() {
        let mut thread = ThreadTime::met(Met::Waiting(Some(4)), 1000);
        assert!(!thread.end(2000));
        assert_eq!((thread.waited, thread.paths.len()), (0, 0));
    }

    #[test]
    fn after_a_loss_no_wait_is_as_long_as_it_seems() {
        let mut thread = ThreadTime::met(Met::Running, 0);
        thread.about_to_leave(1, 1);
        thread.switched(100, Way::Waits);
        thread.lost();
        thread.switched(900, Way::In);
        assert!(thread.end(1000));
        assert_eq!((thread.waited, thread.paths.len()), (0, 0));
    }
}
