//! One profile of many processes, such as the ranks of a parallel program.
//!
//! Code is identified by the build id of its file and the address in the file. A file without a
//! build id is identified by its path. Merging needs memory for the result and for the one profile
//! that is being added.

mod code;
mod cost;
mod error;
mod inside;
mod over;
mod session;
#[cfg(test)]
mod tests;

use crate::profile::{
    Apart, COUNT, Counts, Function, Metric, PathEntry, Presence, Process, Profile, SingleCall,
    TimerStats, Total, keep_slowest, order_in_time,
};
pub use error::MergeError;

use code::Code;
use over::{Over, Part};
use rustc_hash::FxHashMap;

/// The key of a path: its function, true if it is complete, its frames, the process if processes
/// are kept apart, and what keeps it apart else. Functions, frames, processes and phases are
/// indexes in the sum.
type PathKey = (usize, bool, Vec<usize>, Option<usize>, Apart);

/// The treatment of equal paths of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathsOf {
    /// Equal paths of several processes become one path of the sum.
    #[default]
    All,
    /// The paths of each process are kept apart.
    Each,
}

/// The sum of the profiles so far.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    paths_of: PathsOf,
    /// `None` before the first profile.
    sum: Option<Profile>,
    code: Code,
    /// The index of each path in the sum.
    paths: FxHashMap<PathKey, usize>,
    /// The spread over the processes, for each function of the sum.
    over_functions: Vec<Over>,
    /// The spread over the processes, for each path of the sum.
    over_paths: Vec<Over>,
    /// For each function of the sum: its presence in each profile that has it, with the number of
    /// processes of that profile.
    presences: Vec<Vec<(Presence, u64)>>,
    inside: inside::Graphs,
    sessions: session::Sessions,
    costs: cost::Costs,
    /// True if not all profiles measure the same metrics.
    is_uneven: bool,
}

impl Merger {
    /// Creates an empty sum.
    pub fn new(paths_of: PathsOf) -> Self {
        Self {
            paths_of,
            ..Self::default()
        }
    }

    /// Adds a profile that has passed [`Profile::check_structure`].
    ///
    /// # Errors
    /// The profile uses another unit for a metric of the sum, or a session of the profile was added
    /// before. The sum is then unchanged.
    pub fn add(&mut self, profile: &Profile) -> Result<(), MergeError> {
        let processes = processes_of(profile);
        if let Some(sum) = &self.sum {
            check_units(&sum.metrics, &profile.metrics)?;
        }
        self.sessions.enter(&processes)?;
        let sum = self.sum.get_or_insert_with(|| {
            let metrics = profile.metrics.clone();
            Profile::empty(profile.target.clone(), profile.session.clone(), metrics)
        });
        let is_first = sum.processes.is_empty();
        session::add(sum, profile, is_first);
        self.costs.add(profile);
        self.is_uneven |= add_metrics(&mut sum.metrics, &profile.metrics, is_first);
        let of = Part {
            first_process: sum.processes.len(),
            number: processes.len() as u64,
        };
        sum.processes.extend(processes);
        let phases = session::add_phases(&mut sum.session.phases, &profile.session.phases);
        let code = self.code.take(sum, profile);
        for (function, &at) in profile.functions.iter().zip(&code.functions) {
            if at >= self.over_functions.len() {
                self.over_functions.resize_with(at + 1, Over::with_each);
            }
            if at >= self.presences.len() {
                self.presences.resize_with(at + 1, Vec::new);
            }
            self.presences[at].push((function.presence(), of.number));
            let (totals, spread) = (&function.totals.counts, function.spread.as_deref());
            let over = &mut self.over_functions[at];
            over.add(&of, &sum.metrics, totals, spread);
            over.add_each(&of, &sum.metrics, &function.processes);
            merge_function(&mut sum.functions[at], function);
        }
        self.inside
            .add(&mut sum.inside, &profile.inside, &code.functions);
        let mut places = Vec::with_capacity(profile.paths.len());
        for path in &profile.paths {
            let stack: Vec<usize> = path.stack.iter().map(|&f| code.frames[f]).collect();
            // A sum whose processes are not kept apart covers all of them.
            let process = match (path.process, of.number) {
                (Some(process), _) => Some(of.first_process + process),
                (None, 1) => Some(of.first_process),
                (None, _) => None,
            };
            let apart = process.filter(|_| self.paths_of == PathsOf::Each);
            let function = code.functions[path.function];
            let mut of_path = path.apart();
            of_path.phase = of_path.phase.and_then(|index| phases.get(index).copied());
            let key = (function, path.complete, stack, apart, of_path);
            let at = match self.paths.get(&key) {
                Some(&at) => at,
                None => {
                    let at = sum.paths.len();
                    sum.paths.push(empty_path(&key));
                    self.over_paths.push(Over::default());
                    self.paths.insert(key, at);
                    at
                }
            };
            places.push(at);
            add_path(&mut sum.paths[at], path);
            let of = match process {
                Some(process) => Part::one(process),
                None => of,
            };
            self.over_paths[at].add(&of, &sum.metrics, &path.metrics, path.spread.as_deref());
        }
        for (function, &at) in profile.functions.iter().zip(&code.functions) {
            let into = &mut sum.functions[at];
            let in_sum =
                |call: &SingleCall| call.in_sum(&places, &code.functions, of.first_process);
            into.slowest.extend(function.slowest.iter().map(in_sum));
            keep_slowest(&mut into.slowest, sum.session.slowest);
            into.trace.extend(function.trace.iter().map(in_sum));
        }
        Ok(())
    }

    /// Returns the sum. `None` if no profile was added.
    pub fn finish(self) -> Option<Profile> {
        let mut sum = self.sum?;
        let names: Vec<String> = sum.timers().map(|m| m.name.clone()).collect();
        let mut totals = vec![Total::default(); sum.functions.len()];
        for path in &mut sum.paths {
            complete(&mut path.metrics, &names);
            totals[path.function].add(path);
        }
        for (function, presences) in sum.functions.iter_mut().zip(&self.presences) {
            let presence = presence_in_all(presences);
            (function.since_ns, function.away_ns) = (presence.since_ns, presence.away_ns);
        }
        let processes = sum.processes.len();
        for ((function, total), mut over) in sum
            .functions
            .iter_mut()
            .zip(totals)
            .zip(self.over_functions)
        {
            let mut counts = total.counts;
            complete(&mut counts, &names);
            for stats in counts.timers.stats_mut() {
                stats.hist.clear();
                stats.hist_negative.clear();
            }
            let totals = &mut function.totals;
            totals.counts = counts;
            totals.unwound = total.unwound.or(totals.unwound);
            totals.open = total.open.or(totals.open);
            function.tail = total.tail;
            if processes > 1 {
                function.processes = over.take_each(&sum.metrics, function.totals.counts.count);
            }
            function.spread = over.spreads(processes, &sum.metrics);
            order_in_time(&mut function.trace);
            if self.is_uneven {
                let all = || sum.metrics.iter().map(|m| m.name.clone()).collect();
                function.measured.get_or_insert_with(all);
            }
        }
        for (path, over) in sum.paths.iter_mut().zip(self.over_paths) {
            if path.process.is_none() {
                path.spread = over.spreads(processes, &sum.metrics);
            }
        }
        sum.session.overhead = self.costs.sum();
        let note = "the cost of measuring is not known for all processes";
        if self.costs.is_partial() && sum.session.notes.iter().all(|known| known != note) {
            sum.session.notes.push(note.to_owned());
        }
        sum.time_inside();
        Some(sum)
    }
}

/// The presence of a function over all processes, given its presence in each profile and the number
/// of processes of that profile. It begins with the earliest one. Its time away is the sum over all
/// processes, including the times by which the function was instrumented later in them.
fn presence_in_all(presences: &[(Presence, u64)]) -> Presence {
    let since = |(presence, _): &(Presence, u64)| presence.since_ns;
    let since_ns = presences.iter().map(since).min().flatten();
    let away = |(presence, number): &(Presence, u64)| {
        let since = presence.since_ns.unwrap_or(0);
        let later = since.saturating_sub(since_ns.unwrap_or(0));
        later
            .saturating_mul(*number)
            .saturating_add(presence.away_ns)
    };
    let away_ns = presences.iter().map(away).fold(0, u64::saturating_add);
    Presence { since_ns, away_ns }
}

/// The processes of a profile, as parts of a sum: for a profile of one process, its target.
fn processes_of(profile: &Profile) -> Vec<Process> {
    if !profile.processes.is_empty() {
        return profile.processes.clone();
    }
    let target = &profile.target;
    vec![Process {
        pid: target.pid,
        exe: target.exe.clone(),
        args: target.args.clone(),
        parent: target.parent,
        host: target.host.clone(),
        labels: target.labels.clone(),
        started_unix_ns: profile.session.started_unix_ns,
        elapsed_ns: profile.session.elapsed_ns,
        monotonic_ns: profile.session.monotonic_ns,
    }]
}

fn check_units(known: &[Metric], others: &[Metric]) -> Result<(), MergeError> {
    for other in others {
        let same = known.iter().find(|metric| metric.name == other.name);
        if let Some(metric) = same.filter(|metric| metric.unit != other.unit) {
            return Err(MergeError::Units {
                metric: metric.name.clone(),
                known: metric.unit.clone(),
                other: other.unit.clone(),
            });
        }
    }
    Ok(())
}

/// Adds the metrics that the sum lacks. Returns true if the two lists have different metrics.
fn add_metrics(sum: &mut Vec<Metric>, others: &[Metric], is_first: bool) -> bool {
    let mut is_uneven = !is_first && sum.len() != others.len();
    for other in others {
        match sum.iter_mut().find(|metric| metric.name == other.name) {
            Some(metric) => metric.since_ns = metric.since_ns.max(other.since_ns),
            None => {
                is_uneven = true;
                sum.push(other.clone());
            }
        }
    }
    is_uneven
}

/// Updates the measured metrics and the exits of a function with those of another profile. If the
/// metrics differ, or exits are patched in only one of the two, not every call is measured.
fn merge_function(sum: &mut Function, function: &Function) {
    let measures_else = sum.measured != function.measured;
    let ends_else = sum.exits.is_empty() != function.exits.is_empty();
    if measures_else || ends_else {
        let measured = sum.measured.get_or_insert_with(|| vec![COUNT.to_owned()]);
        for metric in function.measured.iter().flatten() {
            if !measured.contains(metric) {
                measured.push(metric.clone());
            }
        }
    }
    match (&mut sum.throttled, function.throttled) {
        (Some(sum), Some(throttled)) => sum.add(throttled),
        (none, throttled) => *none = none.or(throttled),
    }
    if sum.exits.is_empty() {
        sum.exits.clone_from(&function.exits);
    }
}

fn empty_path((function, complete, stack, process, apart): &PathKey) -> PathEntry {
    PathEntry {
        function: *function,
        stack: stack.clone(),
        complete: *complete,
        contradicted: None,
        thread: None,
        process: *process,
        phase: apart.phase,
        by: apart.by.clone(),
        slower: apart.slower,
        unwound: None,
        open: None,
        tail: 0,
        metrics: Counts::default(),
        spread: None,
    }
}

fn add_path(sum: &mut PathEntry, path: &PathEntry) {
    let counts = &mut sum.metrics;
    counts.count = counts.count.saturating_add(path.metrics.count);
    for (name, stats) in path.metrics.timers.iter() {
        let of_all = counts.timers.entry(name);
        if stats.values() > 0 {
            of_all.absorb(stats, of_all.values() == 0);
        }
    }
    for (sum, n) in [(&mut sum.unwound, path.unwound), (&mut sum.open, path.open)] {
        *sum = n.map(|n| sum.unwrap_or(0).saturating_add(n)).or(*sum);
    }
    sum.tail = sum.tail.saturating_add(path.tail);
    sum.contradicted = sum.contradicted.or(path.contradicted);
}

/// Sets the metrics of `counts` to these, in this order. A missing one gets no values.
fn complete(counts: &mut Counts, metrics: &[String]) {
    let stats = |name: &String| {
        let stats: TimerStats = counts.timers.get(name).cloned().unwrap_or_default();
        (name.clone(), stats)
    };
    counts.timers = metrics.iter().map(stats).collect();
}
