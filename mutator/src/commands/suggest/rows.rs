//! The functions worth measuring, and the figures of their lines.

use std::fmt::Write;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use ipath_base::printable::printable;
use ipath_profile::display_name::{self, Link};
use ipath_profile::folding::{self, Fold, Item};
use ipath_profile::report::human;
use ipath_sampling::sampling::{Function, Seeing, Share, Shares};
use ipath_target::process::Pid;

/// Figures are out of date if a running process yields no samples for this long.
const STALE: Duration = Duration::from_secs(2);

/// The most terminal columns of a name within a sentence.
const SHORT: usize = 40;

/// The samples and the suggested functions. The order of the fields is that of the JSON.
#[derive(Default, serde::Serialize)]
pub(super) struct Suggestion {
    /// The number of samples.
    pub(super) samples: u64,
    pub(super) candidates: Vec<Candidate>,
    /// The number of sampled processes.
    pub(super) processes: usize,
    /// The duration of sampling.
    pub(super) observed_ns: u64,
    /// The CPU time of all threads.
    pub(super) cpu_ns: u64,
    /// The time in which threads waited, without waiting for work.
    pub(super) waited_ns: u64,
    /// The time in which threads waited for work.
    pub(super) waited_for_work_ns: u64,
    /// The number of sampled waits.
    pub(super) waits: u64,
    /// The number of samples that were dropped because the buffer was full.
    pub(super) lost: u64,
    /// The number of threads that did not run.
    pub(super) idle_threads: usize,
    /// The number of threads that were not sampled.
    pub(super) unseen_threads: usize,
}

/// A function worth measuring.
pub(in crate::commands) struct Candidate {
    pub(in crate::commands) function: Function,
    /// The reason why the function cannot be measured. `None` if it can be.
    pub(in crate::commands) reason: Option<String>,
    /// The names of its most common callers, the nearest first.
    pub(super) stack: Vec<String>,
}

impl Candidate {
    /// The reason not to measure the function. `None` if it can be measured at a reasonable cost.
    pub(in crate::commands) fn refused(&self) -> Option<String> {
        /// The reason for [`Function::is_built_in`].
        const BUILT_IN: &str = "generated code calls it too often: a caller of it costs less";
        let built_in = self.function.is_built_in.then(|| BUILT_IN.to_owned());
        self.reason.clone().or(built_in)
    }
}

/// A line about generated code that takes much of the CPU time: its share, the tool that shows its
/// functions, and the nearest function that can be measured. `None` if it takes less than a tenth.
pub(in crate::commands) fn generated(
    candidates: &[Candidate],
    tool: Option<&str>,
) -> Option<String> {
    /// The smallest share of the CPU time that is worth a line.
    const LEAST: f64 = 0.1;
    let functions = || candidates.iter().map(|candidate| &candidate.function);
    let is_generated = |f: &&Function| f.module.is_none() && !f.is_own || f.is_built_in;
    let share: f64 = functions().filter(is_generated).map(|f| f.own.value).sum();
    if share < LEAST {
        return None;
    }
    let can_be_measured = |candidate: &&Candidate| candidate.refused().is_none();
    let nearest = candidates.iter().filter(can_be_measured);
    let nearest = nearest.max_by(|a, b| a.function.generated.total_cmp(&b.function.generated));
    let nearest = nearest.filter(|nearest| nearest.function.generated > 0.0);
    let nearest = nearest.map_or_else(String::new, |nearest| {
        let name = display_name::fit(&printable(&nearest.function.name), SHORT);
        format!("; the nearest function to measure is {name}")
    });
    let tool = tool.unwrap_or("a profiler of its language shows its functions");
    Some(format!(
        "{:.0} % of the CPU time is in generated code, which is not patched: {tool}{nearest}",
        100.0 * share.min(1.0)
    ))
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let f = &self.function;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("name", &f.name)?;
        fields.serialize_entry("linkage", &f.linkage)?;
        fields.serialize_entry("module", &f.path)?;
        fields.serialize_entry("address", &f.address.0)?;
        for (name, error, share) in [
            ("self", "self_error", f.own),
            ("total", "total_error", f.total),
            ("waiting", "waiting_error", f.waiting),
        ] {
            fields.serialize_entry(name, &share.value)?;
            fields.serialize_entry(error, &share.error)?;
        }
        fields.serialize_entry("waiting_for_work", &f.for_work)?;
        fields.serialize_entry("waits_per_second", &f.waits_per_second)?;
        fields.serialize_entry("built_in", &f.is_built_in)?;
        fields.serialize_entry("patchable", &self.reason.is_none())?;
        fields.serialize_entry("reason", &self.reason)?;
        fields.serialize_entry("stack", &self.stack)?;
        fields.end()
    }
}

/// The labels above [`figures`].
pub(in crate::commands) fn head() -> [String; 4] {
    in_columns(["self", "with callees", "waiting", "waits/s"].map(String::from))
}

fn in_columns([own, total, waiting, waits]: [String; 4]) -> [String; 4] {
    [
        format!("{own:>12}"),
        format!("{total:>12}"),
        format!("{waiting:>12}"),
        format!("{waits:>9}"),
    ]
}

/// A line about the sampled times, the duration and the limitations.
pub(in crate::commands) fn about(pid: Pid, shares: &Shares) -> String {
    let seconds = |d: Duration| format!("{:.2} s", d.as_secs_f64());
    let mut text = format!(
        "{pid}: {} on a processor ({} samples) and {} waiting ({} waits sampled) in {}",
        seconds(shares.cpu),
        shares.on,
        seconds(shares.waited),
        shares.off,
        seconds(shares.observed),
    );
    if !shares.for_work.is_zero() {
        let _ = write!(text, ", {} waiting for work", seconds(shares.for_work));
    }
    // Writing to a string does not fail.
    match shares.seeing {
        Seeing::Whole => {}
        Seeing::UserMode => text += "; waiting is not seen",
        Seeing::Stops => text += "; by stops, because there are no perf events",
    }
    if shares.unseen > 0 {
        let _ = write!(text, "; {} threads not sampled", shares.unseen);
    }
    if shares.lost > 0 {
        let lost = human::count(shares.lost, "sample");
        let _ = write!(text, "; {lost} dropped: the buffer was full");
    }
    if shares.stale >= STALE {
        let seconds = shares.stale.as_secs();
        let _ = write!(text, "; nothing was sampled in the last {seconds} s");
    }
    text + "; estimates ± their margin of error"
}

/// The callers of a candidate, with the frames of runtimes folded.
pub(in crate::commands) fn callers(stack: &[String]) -> Vec<Link> {
    let items = folding::fold(stack.iter().map(|name| Fold::of(name)));
    let link = |item| match item {
        Item::Frame(index) => Some(Link::of(printable(&stack[index]))),
        Item::Runtime(text) => Some(Link::fold(text)),
        Item::Wrappers(_) => None,
    };
    items.into_iter().filter_map(link).collect()
}

/// A share with its error. Empty for 0. Never more than 100 %.
fn share(Share { value, error }: Share) -> String {
    let percent = |share: f64| 100.0 * share;
    if value <= 0.0 {
        String::new()
    } else if error >= value {
        // With so few samples only an upper bound is meaningful.
        format!("up to {:.0} %", percent(value + error).min(100.0))
    } else if value + error > 1.0 {
        format!("over {:.0} %", percent(value - error).floor())
    } else {
        format!("{:.1}±{:.1} %", percent(value), percent(error))
    }
}

/// The shares with their errors, and the waits, as wide as [`head`].
pub(in crate::commands) fn figures(function: &Function) -> [String; 4] {
    let waits = match function.waits_per_second {
        n if n < 0.05 => String::new(),
        n if n < 10.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    };
    in_columns([
        share(function.own),
        share(function.total),
        share(function.waiting),
        waits,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_exceeds_the_whole() {
        for (value, error, text) in [
            (1.0, 0.026, "over 97 %"),
            (0.99, 0.02, "over 97 %"),
            (1.0, 0.0, "100.0±0.0 %"),
            (0.5, 0.026, "50.0±2.6 %"),
            (0.01, 0.02, "up to 3 %"),
            (0.8, 0.9, "up to 100 %"),
            (0.0, 0.1, ""),
        ] {
            assert_eq!(share(Share { value, error }), text);
        }
    }
}
