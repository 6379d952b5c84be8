//! The common properties of several sessions, and their sums.

use super::error::MergeError;
use crate::profile::{Losses, Phase, Process, Profile, Session, Stop, Target, add_unseen};
use rustc_hash::{FxHashMap, FxHashSet};

/// The sessions so far: host, process id, and start in nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(FxHashSet<(String, u32, u64)>);

impl Sessions {
    /// Adds the sessions of a profile. Leaves out those whose start is not known.
    ///
    /// # Errors
    /// One of the sessions was added before. None is added then.
    pub(super) fn enter(&mut self, processes: &[Process]) -> Result<(), MergeError> {
        // Sessions without a known start cannot be compared.
        let told = || processes.iter().filter(|p| p.started_unix_ns != 0);
        let key = |p: &Process| (p.host.clone(), p.pid, p.started_unix_ns);
        if let Some(twice) = told().find(|&p| self.0.contains(&key(p))) {
            return Err(MergeError::Twice {
                pid: twice.pid,
                host: twice.host.clone(),
            });
        }
        self.0.extend(told().map(key));
        Ok(())
    }
}

/// Adds the target, session and losses of another profile. The sum starts as a copy of the first
/// profile.
pub(super) fn add(sum: &mut Profile, profile: &Profile, is_first: bool) {
    if is_first {
        sum.losses.clone_from(&profile.losses);
        sum.exactness = profile.exactness;
        for stop in std::mem::take(&mut sum.session.stops) {
            add_stop(&mut sum.session.stops, &stop);
        }
    } else {
        add_target(&mut sum.target, &profile.target);
        add_session(&mut sum.session, &profile.session);
        add_losses(&mut sum.losses, &profile.losses);
        // A profile without this field has no verdicts on its calls.
        match (&mut sum.exactness, &profile.exactness) {
            (Some(sum), Some(exactness)) => sum.add(exactness),
            (sum, _) => *sum = None,
        }
    }
    if !profile.threads.is_empty() {
        let note = "threads are not kept apart: their calls are added up";
        if sum.session.notes.iter().all(|known| known != note) {
            sum.session.notes.push(note.to_owned());
        }
    }
}

/// Adds the phases of another profile to those of the sum. Phases with the same name are one.
/// Returns the index in the sum for each phase of the profile.
pub(super) fn add_phases(sum: &mut Vec<Phase>, phases: &[Phase]) -> Vec<usize> {
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for (place, phase) in sum.iter().enumerate() {
        places.entry(phase.name.clone()).or_insert(place);
    }
    let mut place_of = |phase: &Phase| match places.get(&phase.name) {
        Some(&place) => {
            let known = &mut sum[place];
            known.start_ns = known.start_ns.min(phase.start_ns);
            known.end_ns = known.end_ns.zip(phase.end_ns).map(|(a, b)| a.max(b));
            place
        }
        None => {
            sum.push(phase.clone());
            places.insert(phase.name.clone(), sum.len() - 1);
            sum.len() - 1
        }
    };
    phases.iter().map(&mut place_of).collect()
}

/// Keeps the properties that are equal in all targets. An executable or a host that differs becomes
/// `several`.
fn add_target(sum: &mut Target, other: &Target) {
    if sum.exe != other.exe {
        // A name set by one process does not apply to all.
        sum.args.clear();
    }
    for (sum, other) in [(&mut sum.exe, &other.exe), (&mut sum.host, &other.host)] {
        if sum != other {
            *sum = "several".to_owned();
        }
    }
    if sum.args != other.args {
        sum.args.truncate(1);
    }
    sum.labels
        .retain(|name, value| other.labels.get(name) == Some(value));
    if sum.state != other.state {
        sum.state = None;
    }
}

fn add_session(sum: &mut Session, other: &Session) {
    let (elapsed, elapsed_other) = (sum.elapsed_ns, other.elapsed_ns);
    let clocks = sum.clock.zip(other.clock);
    let note =
        "exits read the clock in different ways (--clock): times per call are not comparable";
    if clocks.is_some_and(|(a, b)| a != b) && sum.notes.iter().all(|known| known != note) {
        sum.notes.push(note.to_owned());
    }
    // `None` if they differ.
    sum.clock = sum.clock.filter(|_| sum.clock == other.clock);
    sum.started_unix_ns = sum.started_unix_ns.min(other.started_unix_ns);
    sum.elapsed_ns = elapsed.max(elapsed_other);
    sum.cpu_ns = sum
        .cpu_ns
        .zip(other.cpu_ns)
        .map(|(a, b)| a.saturating_add(b));
    // A pattern that one session has resolved is not pending.
    sum.pending
        .retain(|pattern| other.pending.contains(pattern));
    sum.collapsed |= other.collapsed;
    sum.slowest = sum.slowest.max(other.slowest);
    sum.trace = sum.trace.max(other.trace);
    sum.monotonic_ns = None;
    for stop in &other.stops {
        add_stop(&mut sum.stops, stop);
    }
    for note in &other.notes {
        if !sum.notes.contains(note) {
            sum.notes.push(note.clone());
        }
    }
}

/// Keeps the longest stop of each reason. A list of all stops would grow with the number of files.
fn add_stop(sum: &mut Vec<Stop>, stop: &Stop) {
    match sum.iter_mut().find(|known| known.why == stop.why) {
        Some(known) => known.ns = known.ns.max(stop.ns),
        None => sum.push(stop.clone()),
    }
}

fn add_losses(sum: &mut Losses, other: &Losses) {
    for (sum, n) in [
        (&mut sum.missed, other.missed),
        (&mut sum.overflow, other.overflow),
        (&mut sum.incomplete, other.incomplete),
    ] {
        *sum = sum.saturating_add(n);
    }
    for (sum, n) in [
        (&mut sum.unwound, other.unwound),
        (&mut sum.open, other.open),
    ] {
        *sum = n.map(|n| sum.unwrap_or(0).saturating_add(n)).or(*sum);
    }
    sum.overflow_by.extend(other.overflow_by.iter().cloned());
    add_unseen(&mut sum.unseen, &other.unseen);
    for (cause, n) in &other.causes {
        let known = sum.causes.entry(cause.clone()).or_default();
        *known = known.saturating_add(*n);
    }
}
