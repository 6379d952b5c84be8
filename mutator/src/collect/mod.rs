//! From the counters in the segment to a profile, while the target writes on.

mod counters;
mod frames;
mod overhead;
mod places;
mod records;
mod threads;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use abi::cause::Cause;
use abi::segment::{FIRST_NODE, NODE_IS_PATH, ROOT_COMPLETE, ROOT_CUT, ROOT_OVERFLOW};
use patcher::Avma;

use crate::clock;
use crate::process::{Presence, Process};
use crate::profile;
use crate::profile::{
    Counts, Function, FunctionTotals, Losses, Metric, PathEntry, Profile, Refused, Stop, Target,
    TimerStats,
};
use crate::segment::{Document, FunctionDoc, MetricDoc, ModuleDoc, Segment};
use crate::session::Session;

use frames::{Frames, Key};
use records::{Raw, RawColumn, RawMetric};
use threads::Names;

/// What a profile is made of.
#[derive(Clone, Copy)]
pub struct Measured<'s> {
    /// The counters.
    pub segment: &'s Segment,
    /// What they are about.
    pub document: &'s Document,
    /// The target; it may have ended.
    pub process: &'s Process,
    /// True if the target still is the program that the session was made in.
    pub is_in_target: bool,
}

/// Turns a session's counters into profiles; keeps what it has found out about addresses from one
/// to the next.
pub struct Collector {
    frames: Frames,
    names: Names,
}

impl Collector {
    /// For profiles of this process, which lives.
    pub fn of(process: &Process) -> Self {
        Self {
            frames: Frames::of(process),
            names: Names::default(),
        }
    }

    /// The profile of a session as it is now.
    pub fn profile(&mut self, session: &Session) -> Profile {
        self.profile_of(Measured {
            segment: session.segment(),
            document: session.document(),
            process: session.process(),
            is_in_target: session.presence() == Presence::Here,
        })
    }

    /// The profile of what was measured so far. Nothing in segment and document is trusted.
    pub fn profile_of(&mut self, measured: Measured<'_>) -> Profile {
        let Measured {
            segment,
            document,
            process,
            is_in_target,
        } = measured;
        self.frames.renew();
        if is_in_target {
            self.frames.learn_maps(process);
        }
        self.frames.learn_published(segment, document, process);
        let mut profile = head(measured);
        for module in &document.modules {
            self.frames
                .module(&mut profile, key(Some(module)), module.build_id.as_deref());
        }
        for refused in &document.refused {
            let key = key(document.modules.get(refused.module));
            let module = self.frames.module(&mut profile, key, None);
            profile.refused.push(Refused {
                name: refused.name.clone(),
                module,
                address: refused.address.0,
                reason: refused.reason.clone(),
            });
        }
        self.add_functions(&mut profile, document);
        self.add_paths(&mut profile, segment, document);
        add_losses(&mut profile, segment);
        self.frames.end(&mut profile);
        if document.per_thread {
            if is_in_target {
                self.names.learn(process);
            }
            let tids = profile.paths.iter().filter_map(|path| path.thread);
            profile.threads = self.names.of(tids);
        }
        let until = match is_in_target {
            true => process.cpu_time(),
            false => document.cpu_ended_ns,
        };
        let times = until.zip(document.cpu_begun_ns);
        profile.session.cpu_ns = times.map(|(until, from)| until.saturating_sub(from));
        profile.session.overhead = overhead::of(&profile, segment, document);
        profile
    }

    fn add_functions(&mut self, profile: &mut Profile, document: &Document) {
        for (_, function) in document.measured() {
            let key = key(document.modules.get(function.module));
            let module = self.frames.module(profile, key, None);
            let ends = function.has_exits().then_some(0);
            let exits = match function.has_exits() {
                true => function.exits.clone(),
                false => Vec::new(),
            };
            let measured = document.measured_of(function);
            let is_all = measured.iter().eq(profile.metrics.iter().map(|m| &m.name));
            let is_told = !function.is_point && (function.remeasured || !is_all);
            let measured = is_told.then(|| measured.into_iter().map(str::to_owned).collect());
            profile.functions.push(Function {
                name: function.name.clone(),
                linkage: function.linkage.clone(),
                module,
                address: function.address.0,
                size: function.size,
                entry: function.entry.clone(),
                exits,
                measured,
                clones: function.clones.clone(),
                inlined: function.inlined,
                point: function.is_point,
                tail: 0,
                totals: FunctionTotals {
                    counts: counts(
                        document,
                        &Raw::empty(document.metrics.len().saturating_sub(1)),
                    ),
                    unwound: ends,
                    open: ends,
                },
            });
        }
    }

    fn add_paths(&mut self, profile: &mut Profile, segment: &Segment, document: &Document) {
        let merged = records::merged(segment, document, &heirs(document));
        // Ids count functions that are not measured too.
        let indexes: BTreeMap<usize, usize> = document
            .measured()
            .enumerate()
            .map(|(index, (id, _))| (id, index))
            .collect();
        // How many values of each metric the totals of each function have.
        let mut values = vec![BTreeMap::new(); profile.functions.len()];
        for (key, raw) in records::within_reason(segment, merged) {
            let (function, path, thread) = key;
            let Some(in_document) = document.functions.get(function as usize) else {
                continue;
            };
            let Some(&index) = indexes.get(&(function as usize)) else {
                continue;
            };
            let Some((stack, root)) = stack_of(segment, path) else {
                continue;
            };
            let has_exits =
                in_document.has_exits() || raw.sees_ends && !in_document.exits.is_empty();
            let entry = PathEntry {
                function: index,
                stack: stack
                    .iter()
                    .map(|&ra| self.frames.frame(profile, ra))
                    .collect(),
                complete: root == ROOT_COMPLETE || root == ROOT_CUT,
                thread,
                unwound: has_exits.then_some(raw.unwound),
                open: has_exits.then_some(raw.open()),
                tail: raw.tail,
                metrics: counts(document, &raw),
            };
            if !entry.complete {
                add_incomplete(&mut profile.losses, root, raw.entered);
            }
            let function = &mut profile.functions[index];
            function.tail = function.tail.saturating_add(entry.tail);
            add_to_totals(&mut function.totals, &entry, &mut values[index]);
            profile.paths.push(entry);
        }
    }
}

/// The ids of functions that could not stay with the row that they had, with those of the rows that they have now.
fn heirs(document: &Document) -> BTreeMap<u32, u32> {
    let is_meant = |f: &FunctionDoc| !f.is_point;
    let ids = document.functions.iter().enumerate();
    let retired = ids.filter(|(_, f)| f.retired && f.reaper.is_none() && is_meant(f));
    let heir = |(id, f): (usize, &FunctionDoc)| {
        let place = document.place_of(f);
        let mut now = document.measured().filter(|(_, g)| is_meant(g));
        let (heir, _) = now.find(|(_, g)| document.place_of(g) == place)?;
        Some((u32::try_from(id).ok()?, u32::try_from(heir).ok()?))
    };
    retired.filter_map(heir).collect()
}

fn key(module: Option<&ModuleDoc>) -> Key {
    module.map_or_else(Key::default, |m| (m.path.clone(), Some(m.bias.0)))
}

fn head(measured: Measured<'_>) -> Profile {
    let Measured {
        segment, document, ..
    } = measured;
    let header = segment.header();
    let hz = header.clock_hz.load(Relaxed).max(1);
    let ended = header.ended_tsc.load(Relaxed);
    let now = if ended == 0 { clock::tsc() } else { ended };
    let ticks = now.saturating_sub(header.started_tsc.load(Relaxed));
    let target = Target {
        pid: measured.process.pid.0 as u32,
        exe: document.exe.clone(),
        args: document.args.clone(),
        host: document.host.clone(),
        labels: labels(),
        state: None,
    };
    let during = profile::Session {
        started_unix_ns: header.started_unix_ns.load(Relaxed),
        elapsed_ns: u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(hz))
            .unwrap_or(u64::MAX),
        clock_hz: hz,
        stops: document
            .stops
            .iter()
            .map(|s| Stop {
                why: s.why.clone(),
                ns: s.ns,
            })
            .collect(),
        notes: document
            .notes
            .iter()
            .cloned()
            .chain(counters::notes(segment, document))
            .collect(),
        collapsed: document.collapsed,
        ..profile::Session::default()
    };
    let count = Metric {
        name: profile::COUNT.to_owned(),
        unit: "calls".to_owned(),
        since_ns: None,
    };
    let timers = timers(document).map(|(_, m)| Metric {
        name: m.name.clone(),
        unit: m.unit.clone(),
        since_ns: m.since_ns,
    });
    Profile::empty(
        target,
        during,
        std::iter::once(count).chain(timers).collect(),
    )
}

/// What a launcher of parallel programs says of this process.
fn labels() -> BTreeMap<String, String> {
    const RANKS: [&str; 4] = [
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "PMIX_RANK",
        "SLURM_PROCID",
    ];
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
    rank.into_iter()
        .map(|rank| ("rank".to_owned(), rank))
        .collect()
}

/// Return addresses from the caller outwards, and the root they end in. `None` for a node that is
/// not the end of a path.
fn stack_of(segment: &Segment, path: u32) -> Option<(Vec<Avma>, u32)> {
    if path == records::SHARED {
        return Some((Vec::new(), ROOT_OVERFLOW));
    }
    let leaf = segment.node(path)?;
    if leaf.key.load(Relaxed) & NODE_IS_PATH == 0 {
        return None;
    }
    let mut at = leaf.parent.load(Relaxed);
    // A corrupt tree may have circles; a true one is no deeper than this.
    let most = leaf.depth.load(Relaxed);
    let mut stack = Vec::new();
    while at >= FIRST_NODE {
        let node = segment.node(at)?;
        if stack.len() > most as usize {
            return None;
        }
        stack.push(Avma(node.key.load(Relaxed)));
        at = node.parent.load(Relaxed);
    }
    Some((stack, at))
}

/// The metrics that have timers, with the number of each one's. The first metric is the count, whatever a
/// document calls it, and there is no other.
fn timers(document: &Document) -> impl Iterator<Item = (usize, &MetricDoc)> {
    let timers = document.metrics.iter().skip(1).enumerate();
    timers.filter(|(_, metric)| metric.name != profile::COUNT)
}

fn counts(document: &Document, raw: &Raw) -> Counts {
    // Document and records may disagree: every metric has its numbers, be they zeroes.
    let none = RawMetric::default();
    let timers = timers(document).map(|(n, metric)| (metric, raw.metrics.get(n).unwrap_or(&none)));
    let scaled = timers.map(|(metric, numbers)| {
        let scale = |ticks: u64| {
            let scaled = (u128::from(ticks) * u128::from(metric.mult)) >> (metric.shift & 127);
            i128::try_from(scaled).unwrap_or(i128::MAX)
        };
        let stats = match metric.is_value {
            true => value_stats(numbers),
            false => stats(&numbers.positive, scale),
        };
        (metric.name.clone(), stats)
    });
    Counts {
        count: raw.entered,
        timers: scaled.collect(),
    }
}

/// Of a value: what is 0 or more and what is less, together.
fn value_stats(numbers: &RawMetric) -> TimerStats {
    let RawMetric { positive, negative } = numbers;
    let some = |column: &RawColumn| (column.held() > 0).then_some((column.min, column.max));
    let number = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
    let opposite = |magnitude: u64| i64::try_from(-i128::from(magnitude)).unwrap_or(i64::MIN);
    let (above, below) = (some(positive), some(negative));
    let least = below.map(|(_, max)| opposite(max));
    let most = above.map(|(_, max)| number(max));
    TimerStats {
        sum: i128::from(positive.sum) - i128::from(negative.sum),
        min: least
            .or_else(|| above.map(|(min, _)| number(min)))
            .unwrap_or(0),
        max: most
            .or_else(|| below.map(|(min, _)| opposite(min)))
            .unwrap_or(0),
        outermost: None,
        exclusive: None,
        hist: positive.histogram.iter().map(|(&k, &n)| (k, n)).collect(),
        hist_negative: negative.histogram.iter().map(|(&k, &n)| (k, n)).collect(),
    }
}

fn stats(timer: &RawColumn, scale: impl Fn(u64) -> i128) -> TimerStats {
    TimerStats {
        sum: scale(timer.sum),
        min: i64::try_from(scale(timer.min)).unwrap_or(i64::MAX),
        max: i64::try_from(scale(timer.max)).unwrap_or(i64::MAX),
        outermost: Some(scale(timer.outermost)),
        exclusive: Some(scale(timer.exclusive.max(0) as u64)),
        hist: timer.histogram.iter().map(|(&k, &n)| (k, n)).collect(),
        hist_negative: Vec::new(),
    }
}

/// Adds a path, so that the totals are the sum of the paths as they are shown.
fn add_to_totals(
    totals: &mut FunctionTotals,
    path: &PathEntry,
    values: &mut BTreeMap<String, u64>,
) {
    {
        let sums = totals.counts.timers.iter().map(|(name, stats)| {
            let mut sum = stats.clone();
            let more = path.metrics.timers.get(name);
            if let Some(more) = more.filter(|more| more.values() > 0) {
                let known = values.entry(name.to_owned()).or_default();
                let first = *known == 0;
                *known = known.saturating_add(more.values());
                sum.absorb(
                    &TimerStats {
                        hist: Vec::new(),
                        hist_negative: Vec::new(),
                        ..more.clone()
                    },
                    first,
                );
            }
            (name.to_owned(), sum)
        });
        totals.counts.timers = sums.collect::<Vec<_>>().into_iter().collect();
    }
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    totals.counts.count = totals.counts.count.saturating_add(path.metrics.count);
    totals.unwound = sum(totals.unwound, path.unwound);
    totals.open = sum(totals.open, path.open);
}

/// Adds calls on a path that ends in this node.
fn add_incomplete(losses: &mut Losses, root: u32, calls: u64) {
    let add = |count: &mut u64| *count = count.saturating_add(calls);
    if root == ROOT_OVERFLOW {
        return add(&mut losses.overflow);
    }
    add(&mut losses.incomplete);
    let cause = Cause::of_node(root).map_or("unknown", Cause::name);
    add(losses.causes.entry(cause.to_owned()).or_default());
}

fn add_losses(profile: &mut Profile, segment: &Segment) {
    let threads = segment
        .header()
        .threads_used
        .load(Relaxed)
        .min(abi::MAX_THREADS as u64) as u32;
    let on_threads = (0..threads)
        .filter_map(|i| segment.thread(i))
        .map(|t| t.missed.load(Relaxed));
    let missed = on_threads.fold(segment.header().missed.load(Relaxed), u64::saturating_add);
    let sum = |of: fn(&FunctionTotals) -> Option<u64>| {
        profile
            .functions
            .iter()
            .filter_map(|f| of(&f.totals))
            .reduce(u64::saturating_add)
    };
    let (unwound, open) = (sum(|t| t.unwound), sum(|t| t.open));
    profile.losses = Losses {
        missed,
        unwound,
        open,
        ..profile.losses.clone()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_an_absurd_unit_stay_at_the_limit() {
        let metric = |name: &str| MetricDoc {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            since_ns: None,
            mult: u64::MAX,
            shift: 0,
            is_value: false,
        };
        let document = Document {
            metrics: vec![metric(profile::COUNT), metric("wall")],
            ..Document::default()
        };
        let mut raw = Raw::empty(1);
        raw.metrics[0].positive.sum = u64::MAX;
        raw.metrics[0].positive.max = u64::MAX;
        let counts = counts(&document, &raw);
        let wall = counts.timers.get("wall").expect("measured");
        assert_eq!((wall.sum, wall.max), (i128::MAX, i64::MAX));
    }
}
