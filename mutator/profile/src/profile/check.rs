//! Consistency checks of a profile.

mod flow;
mod single;

use super::counts::{WALL, closed, is_argument};
use super::unmeasured::Ends;
use super::{
    COUNT, Counts, FunctionTotals, Metric, PathEntry, Profile, RETURN, SCHEMA, SearchResult,
    Spreads, TimerStats, Total,
};
use std::fmt;

impl SearchResult {
    /// Checks the indexes in the result of a search.
    fn check(&self, profile: &Profile) -> Result<(), Inconsistent> {
        for (i, path) in self.paths.iter().enumerate() {
            index(
                || format!("search.paths[{i}].function"),
                "functions",
                path.function,
                profile.functions.len(),
            )?;
            for (k, &frame) in path.stack.iter().enumerate() {
                index(
                    || format!("search.paths[{i}].stack[{k}]"),
                    "frames",
                    frame,
                    profile.frames.len(),
                )?;
            }
        }
        Ok(())
    }
}

/// The first inconsistency found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inconsistent {
    /// The schema is that of another format or version.
    Schema(String),
    /// An index is beyond the end of its list.
    Index {
        /// The place of the index (`paths[3].stack[1]`).
        at: String,
        /// The list into which the index points (`frames`).
        list: &'static str,
        /// The index.
        index: usize,
        /// The length of the list.
        len: usize,
    },
    /// A metric is not listed in `metrics`, or a listed metric is missing.
    Metric {
        /// The place (`paths[3]`).
        at: String,
        /// The metric's name.
        metric: String,
    },
    /// Two numbers contradict each other: they must be equal, or the first exceeds its bound.
    Sum {
        /// The number (`functions[0].totals.wall.sum`).
        what: String,
        /// The number in the profile.
        stated: i128,
        /// The number, or the bound, that follows from the rest of the profile.
        computed: i128,
    },
    /// An edge has an end too few or too many for its kind.
    Ends {
        /// The place of the edge (`inside[0].edges[3]`).
        at: String,
    },
    /// A loop is around itself.
    Nesting {
        /// The place of the loop (`inside[0].loops[1]`).
        at: String,
    },
    /// The edges of a block do not add up to its count.
    Flow {
        /// The place of the block (`inside[0].blocks[2]`).
        at: String,
        /// The block's count.
        count: u64,
        /// The edges that were added up: `incoming` or `outgoing`.
        side: &'static str,
        /// Their sum.
        edges: u64,
        /// The largest difference that is allowed.
        uncertain: u64,
    },
}

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(schema) => write!(f, "schema is {schema}, not {SCHEMA}"),
            Self::Index {
                at,
                list,
                index,
                len,
            } => {
                write!(f, "{at} is {index}, but there are {len} {list}")
            }
            Self::Metric { at, metric } => {
                write!(f, "{at} and the list of metrics disagree about `{metric}`")
            }
            Self::Sum {
                what,
                stated,
                computed,
            } => {
                write!(f, "{what} is {stated}, but the paths give {computed}")
            }
            Self::Ends { at } => write!(f, "the kind of {at} does not fit its `from` and `to`"),
            Self::Nesting { at } => write!(f, "{at} is around itself"),
            Self::Flow {
                at,
                count,
                side,
                edges,
                uncertain,
            } => {
                write!(
                    f,
                    "{at}.count is {count}, but its {side} edges give {edges}"
                )?;
                match uncertain {
                    0 => Ok(()),
                    n => write!(f, ", and `uncertain` is {n}"),
                }
            }
        }
    }
}

impl std::error::Error for Inconsistent {}

impl Profile {
    /// Checks that all indexes are in range and all numbers agree: the paths of a function add up
    /// to its totals, the histograms hold every activation that closed and was measured, and the
    /// edges of a block add up to its count.
    ///
    /// # Errors
    /// Returns the first inconsistency.
    pub fn check(&self) -> Result<(), Inconsistent> {
        self.check_structure()?;
        let mut totals: Vec<Total> = vec![Total::default(); self.functions.len()];
        for (i, path) in self.paths.iter().enumerate() {
            let closed = closed(path.metrics.count, path.unwound, path.open).ok_or_else(|| {
                sum(
                    format!("paths[{i}].metrics.count"),
                    path.metrics.count,
                    ends(path.unwound, path.open),
                )
            })?;
            for metric in self.timers() {
                if let Some(stats) = path.metrics.timers.get(&metric.name) {
                    let at = || format!("paths[{i}].metrics.{}", metric.name);
                    let function = self.functions.get(path.function);
                    let is_of_all = function.is_some_and(|f| f.measured.is_none());
                    check_values(at, (metric, is_of_all), path, closed, stats)?;
                }
            }
            if path.tail > closed {
                return Err(sum(format!("paths[{i}].tail"), path.tail, closed));
            }
            totals[path.function].add(path);
        }
        for (i, function) in self.functions.iter().enumerate() {
            compare(
                &format!("functions[{i}].totals"),
                &function.totals,
                &totals[i],
            )?;
            let in_all = function.processes.iter().map(|of| of.count);
            let in_all = in_all.fold(0, u64::saturating_add);
            if !function.processes.is_empty() && in_all != totals[i].counts.count {
                let what = format!("functions[{i}].processes");
                return Err(sum(what, in_all, totals[i].counts.count));
            }
            if function.tail != totals[i].tail {
                let what = format!("functions[{i}].tail");
                return Err(sum(what, function.tail, totals[i].tail));
            }
        }
        for (what, stated, of) in [
            (
                "losses.unwound",
                self.losses.unwound,
                (|t: &Total| t.unwound) as fn(&Total) -> Option<u64>,
            ),
            ("losses.open", self.losses.open, |t: &Total| t.open),
        ] {
            let computed = totals.iter().filter_map(of).fold(0, u64::saturating_add);
            if stated.unwrap_or(0) != computed {
                return Err(sum(what.to_owned(), stated.unwrap_or(0), computed));
            }
        }
        let causes = &self.losses.causes;
        let computed = causes
            .values()
            .fold(0, |sum: u64, &n| sum.saturating_add(n));
        if !causes.is_empty() && computed != self.losses.incomplete {
            let what = "losses.causes".to_owned();
            return Err(sum(what, computed, self.losses.incomplete));
        }
        let mut inside = self.inside.iter().enumerate();
        inside.try_for_each(|(i, inside)| inside.check_counts(&format!("inside[{i}]")))
    }

    /// Checks only the structure on which readers rely: the schema, the indexes and the metrics.
    ///
    /// # Errors
    /// Returns the first inconsistency.
    pub fn check_structure(&self) -> Result<(), Inconsistent> {
        if self.schema != SCHEMA {
            return Err(Inconsistent::Schema(self.schema.clone()));
        }
        let modules = self.modules.len();
        for (i, f) in self.functions.iter().enumerate() {
            index(
                || format!("functions[{i}].module"),
                "modules",
                f.module,
                modules,
            )?;
            self.check_metrics(|| format!("functions[{i}]"), &f.totals.counts)?;
            self.check_spread(|| format!("functions[{i}]"), f.spread.as_deref())?;
            f.check_single(self, i)?;
            for (k, of) in f.processes.iter().enumerate() {
                let at = || format!("functions[{i}].processes[{k}].process");
                index(at, "processes", of.process, self.processes.len())?;
            }
        }
        for (i, r) in self.refused.iter().enumerate() {
            index(
                || format!("refused[{i}].module"),
                "modules",
                r.module,
                modules,
            )?;
        }
        for (i, f) in self.frames.iter().enumerate() {
            if let Some(module) = f.module {
                index(|| format!("frames[{i}].module"), "modules", module, modules)?;
            }
        }
        for (i, p) in self.paths.iter().enumerate() {
            index(
                || format!("paths[{i}].function"),
                "functions",
                p.function,
                self.functions.len(),
            )?;
            if let Some(at) = p.contradicted {
                let stack = p.stack.len();
                index(|| format!("paths[{i}].contradicted"), "stack", at, stack)?;
            }
            for (k, &frame) in p.stack.iter().enumerate() {
                index(
                    || format!("paths[{i}].stack[{k}]"),
                    "frames",
                    frame,
                    self.frames.len(),
                )?;
            }
            self.check_metrics(|| format!("paths[{i}]"), &p.metrics)?;
            self.check_spread(|| format!("paths[{i}]"), p.spread.as_deref())?;
            if let Some(process) = p.process {
                let at = || format!("paths[{i}].process");
                index(at, "processes", process, self.processes.len())?;
            }
        }
        for (i, inside) in self.inside.iter().enumerate() {
            let lengths = (self.functions.len(), self.paths.len());
            inside.check_structure(&format!("inside[{i}]"), lengths)?;
        }
        self.search
            .as_ref()
            .map_or(Ok(()), |search| search.check(self))
    }

    /// Checks the indexes in `spreads`, which is at the place `at`.
    fn check_spread(
        &self,
        at: impl Fn() -> String,
        spreads: Option<&Spreads>,
    ) -> Result<(), Inconsistent> {
        for (name, spread) in spreads.into_iter().flatten() {
            let at = || format!("{}.spread.{name}.max_process", at());
            index(at, "processes", spread.max_process, self.processes.len())?;
        }
        Ok(())
    }

    /// Checks that `counts`, at the place `at`, has exactly the metrics of the profile.
    fn check_metrics(&self, at: impl Fn() -> String, counts: &Counts) -> Result<(), Inconsistent> {
        let unknown = |name: &str| Inconsistent::Metric {
            at: at(),
            metric: name.to_owned(),
        };
        for metric in self.timers() {
            counts
                .timers
                .get(&metric.name)
                .ok_or_else(|| unknown(&metric.name))?;
        }
        match counts
            .timers
            .iter()
            .find(|(name, _)| self.metrics.iter().all(|m| m.name != *name))
        {
            Some((name, _)) => Err(unknown(name)),
            None => Ok(()),
        }
    }
}

fn index(
    at: impl Fn() -> String,
    list: &'static str,
    index: usize,
    len: usize,
) -> Result<(), Inconsistent> {
    if index < len {
        Ok(())
    } else {
        Err(Inconsistent::Index {
            at: at(),
            list,
            index,
            len,
        })
    }
}

fn sum(what: String, stated: impl Into<i128>, computed: impl Into<i128>) -> Inconsistent {
    Inconsistent::Sum {
        what,
        stated: stated.into(),
        computed: computed.into(),
    }
}

/// The number of calls that did not close: unwound ones and open ones.
fn ends(unwound: Option<u64>, open: Option<u64>) -> u64 {
    unwound.unwrap_or(0).saturating_add(open.unwrap_or(0))
}

/// Checks that the number of values of a metric on `path` is possible, and that the minimum does
/// not exceed the maximum. `closed` is the number of calls that closed. The flag beside the metric
/// is true if the function has measured all metrics from the start.
fn check_values(
    at: impl Fn() -> String,
    (metric, is_of_all): (&Metric, bool),
    path: &PathEntry,
    closed: u64,
    stats: &TimerStats,
) -> Result<(), Inconsistent> {
    let most = if is_argument(&metric.name) {
        path.metrics.count
    } else {
        closed
    };
    // Calls before the metric was added have no value, nor do calls of functions that do not
    // measure it. The kernel may not give a value.
    let is_from_kernel = metric.name != WALL && metric.name != RETURN && !is_argument(&metric.name);
    let least = if metric.since_ns.is_some() || !is_of_all || is_from_kernel {
        0
    } else {
        Ends::of(path).with_value(&metric.name)
    };
    let held = stats.values();
    if !(least..=most).contains(&held) {
        return Err(sum(format!("{}.hist", at()), held, most));
    }
    if stats.min > stats.max {
        return Err(sum(format!("{}.min", at()), stats.min, stats.max));
    }
    Ok(())
}

fn compare(at: &str, stated: &FunctionTotals, computed: &Total) -> Result<(), Inconsistent> {
    let equal = |what: String, stated: i128, computed: i128| {
        if stated == computed {
            Ok(())
        } else {
            Err(sum(what, stated, computed))
        }
    };
    equal(
        format!("{at}.{COUNT}"),
        stated.counts.count.into(),
        computed.counts.count.into(),
    )?;
    for (what, stated, computed) in [
        ("unwound", stated.unwound, computed.unwound),
        ("open", stated.open, computed.open),
    ] {
        equal(
            format!("{at}.{what}"),
            stated.unwrap_or(0).into(),
            computed.unwrap_or(0).into(),
        )?;
    }
    let none = TimerStats::default();
    for (name, stated) in stated.counts.timers.iter() {
        let computed = computed.counts.timers.get(name).unwrap_or(&none);
        for (what, stated, computed) in [
            ("sum", stated.sum, computed.sum),
            ("min", stated.min.into(), computed.min.into()),
            ("max", stated.max.into(), computed.max.into()),
            (
                "outermost",
                stated.outermost.unwrap_or(0),
                computed.outermost.unwrap_or(0),
            ),
            (
                "exclusive",
                stated.exclusive.unwrap_or(0),
                computed.exclusive.unwrap_or(0),
            ),
        ] {
            equal(format!("{at}.{name}.{what}"), stated, computed)?;
        }
        let histograms = |stats: &TimerStats| (stats.hist.clone(), stats.hist_negative.clone());
        if stated.values() != 0 && histograms(stated) != histograms(computed) {
            let (stated, computed) = (stated.values(), computed.values());
            return Err(sum(format!("{at}.{name}.hist"), stated, computed));
        }
    }
    Ok(())
}
