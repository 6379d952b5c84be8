//! The contents of the columns, the choice of columns, and sorting by them.

use std::cmp::Ordering;

use super::column::{
    ALL, Column, LEAST_NEEDED, NAMES, NAMES_AT_LEAST, NAMES_BESIDE_ALL, Sort, WIDTH,
};
use super::state::State;
use super::tree::{NodeId, ROOT, Shape, Span, Total};
use ipath_profile::report::human;
use ipath_profile::{Function, PerCycle, Presence, off_cpu};
use unicode_width::UnicodeWidthStr;

/// The name of a metric in a column's heading: in capitals, and cut to the column's width.
fn in_heading(metric: &str) -> String {
    let metric = off_cpu::heading(metric);
    let short: String = metric.chars().take(WIDTH - 1).collect();
    short.to_uppercase()
}

impl Column {
    /// The heading of the column.
    pub(super) fn title(self, state: &State) -> String {
        let all = || match state.tree.shape() {
            Shape::Callers | Shape::Threads => "OF FUNC",
            Shape::FromRoot | Shape::Flat => "OF ALL",
        };
        let name = match self {
            Self::Calls => "CALLS",
            Self::Rate => "CALLS/S",
            Self::Trend => "TREND",
            Self::Total => "TOTAL",
            Self::Own => "SELF",
            Self::Mean => "MEAN",
            Self::Min => "MIN",
            Self::P50 => "P50",
            Self::P90 => "P90",
            Self::P99 => "P99",
            Self::P999 => "P99.9",
            Self::Max => "MAX",
            Self::Ipc => "IPC",
            Self::Waiting => "WAITING",
            Self::OfRun => "OF RUN",
            Self::OfFunction => all(),
            Self::OfParent => "OF ABOVE",
            Self::Bar => "",
            Self::Other(metric) => {
                let name = state.metrics.get(metric).map_or("", |m| &m.name);
                return in_heading(name);
            }
        };
        if self.is_of_metric() {
            format!("{} {name}", in_heading(state.metric().0))
        } else {
            name.to_owned()
        }
    }

    /// The column's width in terminal columns, including the gap before it.
    pub(super) fn width(self, state: &State) -> usize {
        WIDTH.max(1 + self.title(state).width())
    }

    /// The description in the list of columns.
    pub(super) fn describe(self, state: &State) -> String {
        let metric = off_cpu::heading(state.metric().0);
        match self {
            Self::Calls => "calls".to_owned(),
            Self::Rate => "calls a second".to_owned(),
            Self::Trend => "calls a second in the last minute, while the row is shown".to_owned(),
            Self::Total => format!("total {metric}"),
            Self::Own => format!("{metric} without that of measured callees"),
            Self::Mean => format!("mean {metric} of a call"),
            Self::Min => format!("smallest {metric}"),
            Self::Max => format!("largest {metric}"),
            Self::P50 => format!("median {metric}"),
            Self::P90 => format!("90 of 100 calls have at most this much {metric}"),
            Self::P99 => format!("99 of 100 calls have at most this much {metric}"),
            Self::P999 => format!("999 of 1000 calls have at most this much {metric}"),
            Self::Ipc => "instructions a cycle".to_owned(),
            Self::Waiting => "off-cpu without run-delay, the wait for a processor".to_owned(),
            Self::OfRun => "share of the elapsed time, of all threads together".to_owned(),
            Self::OfFunction => "share of its function, or of all functions".to_owned(),
            Self::OfParent => "share of the row that it is below".to_owned(),
            Self::Bar => "share of its function, or of all functions, as a bar".to_owned(),
            Self::Other(n) => {
                let name = state.metrics.get(n).map_or("", |m| &m.name);
                format!("total {}", off_cpu::heading(name))
            }
        }
    }

    /// The value of a node by which rows are sorted: in the unit of the metric, or a share as a
    /// fraction. `None` if the row has no such value.
    pub(super) fn value(self, state: &State, node: NodeId) -> Option<f64> {
        let tree = &state.tree;
        let total = || state.total(node);
        match self {
            Self::Calls if state.has_only_edges(node) => state.entries(node).0,
            Self::Rate if state.has_only_edges(node) => state.entries(node).1,
            Self::Calls => Some(tree.counted(node).calls as f64),
            Self::Rate | Self::Trend => tree.rate(node),
            Self::Total => Some(total().sum() as f64),
            Self::Own => total().exclusive().map(|own| own as f64),
            Self::Mean => total().mean(),
            Self::Min => total().ends().map(|ends| ends.0 as f64),
            Self::Max => total().ends().map(|ends| ends.1 as f64),
            Self::P50 | Self::P90 | Self::P99 | Self::P999 => {
                let metric = state.metric_place()?;
                let values = tree.distribution(node, metric);
                values.quantile(self.per_mille()?).map(|q| q as f64)
            }
            Self::Other(metric) => {
                let total = tree.total(node, metric);
                (total.values > 0).then_some(total.sum() as f64)
            }
            Self::Ipc => per_cycle(state, node),
            Self::Waiting => off_cpu::waiting_by(sums(state, node)).map(|(sum, _)| sum as f64),
            Self::OfRun => of_run(state, node),
            Self::OfFunction | Self::Bar => of(state, node, whole(state, node)),
            Self::OfParent => of(state, node, tree.parent(node).unwrap_or(ROOT)),
        }
    }

    /// The text of a cell. It is empty or `-` if the row has no value.
    pub(super) fn cell(self, state: &State, node: NodeId) -> String {
        let none = || "-".to_owned();
        if state.has_only_edges(node) {
            let value = self.value(state, node);
            return match self {
                Self::Calls | Self::Rate => value.map_or_else(none, human::number),
                _ => String::new(),
            };
        }
        let (_, unit) = state.metric();
        let share = |share: Option<f64>| share.map_or_else(String::new, human::percent);
        let values = || state.total(node).values;
        let tail = state.tree.counted(node).tail;
        let marked = |text: String, unit: &str| human::at_least(text, unit, tail);
        let value = self.value(state, node);
        let as_quantity =
            |value: f64, unit: &str| fitting(human::quantity(value as i128, unit), value);
        match self {
            Self::Calls => human::number(value.unwrap_or(0.0)),
            Self::Rate => value.map_or_else(none, human::number),
            Self::Trend => spark(state.tree.trend(node)),
            Self::Total | Self::Own if values() == 0 => none(),
            Self::Total => human::at_least(
                fitting(
                    human::quantity(state.total(node).sum(), unit),
                    value.unwrap_or(0.0),
                ),
                unit,
                tail.max(u64::from(is_throttled(state, node))),
            ),
            Self::Mean => match value {
                Some(mean) => marked(fitting(human::average(Some(mean), unit), mean), unit),
                None => none(),
            },
            Self::Own => value.map_or_else(none, |own| marked(as_quantity(own, unit), unit)),
            Self::Min | Self::Max | Self::P50 | Self::P90 | Self::P99 | Self::P999 => {
                value.map_or_else(none, |value| as_quantity(value, unit))
            }
            Self::Other(metric) => {
                let unit = state.metrics.get(metric).map_or("", |m| &m.unit);
                value.map_or_else(none, |value| marked(as_quantity(value, unit), unit))
            }
            Self::Ipc => value.map_or_else(none, human::ratio),
            Self::Waiting => value.map_or_else(none, |value| as_quantity(value, "ns")),
            // A function is all of itself.
            Self::OfFunction if whole(state, node) == node => String::new(),
            Self::OfRun => human::at_least(
                value.map_or_else(String::new, human::run_share),
                unit,
                tail.max(u64::from(is_throttled(state, node))),
            ),
            // Nested calls of a recursion.
            Self::OfFunction | Self::OfParent
                if value.is_none() && state.total(node).outermost() == 0 && values() > 0 =>
            {
                none()
            }
            Self::OfFunction | Self::OfParent => share(value),
            Self::Bar => bar(value.unwrap_or(0.0), WIDTH - 1),
        }
    }
}

impl State {
    /// The available columns, the chosen ones first.
    pub(super) fn all_columns(&self) -> Vec<Column> {
        let others = (0..self.metrics.len()).filter(|&n| Some(n) != self.metric_place());
        let others = others.map(Column::Other);
        let mut all: Vec<Column> = self.columns.chosen.clone().unwrap_or_default();
        let share = ALL.len() - 4;
        for column in ALL[..share]
            .iter()
            .copied()
            .chain(others)
            .chain(ALL[share..].iter().copied())
        {
            if !all.contains(&column) {
                all.push(column);
            }
        }
        all.retain(|&column| self.makes_sense(column));
        all
    }

    /// True if the column is available: its metrics are measured or shown.
    fn makes_sense(&self, column: Column) -> bool {
        match column {
            Column::Ipc => self.has_per_cycle(),
            Column::Waiting => {
                let is_measured = |name: &str| self.metrics.iter().any(|m| m.name == name);
                off_cpu::waiting_by(|name| is_measured(name).then_some((0, 1))).is_some()
            }
            Column::Other(metric) => {
                metric < self.metrics.len() && Some(metric) != self.metric_place()
            }
            column => !column.needs_metric() || self.is_timed(),
        }
    }

    /// The width of the column for the change since the mark, in terminal columns, including the
    /// gap before it. 0 unless the span shown is the time since the mark.
    pub(super) fn change_width(&self) -> usize {
        match self.tree.span() {
            Span::Mark => WIDTH,
            _ => 0,
        }
    }

    fn width_of(&self, columns: &[Column]) -> usize {
        columns.iter().map(|column| column.width(self)).sum()
    }

    /// The figure columns that fit into `width` terminal columns, in order. May be empty.
    pub(super) fn columns_in(&self, width: usize) -> Vec<Column> {
        let width = width.saturating_sub(self.change_width());
        let mut shown = match &self.columns.chosen {
            Some(chosen) => {
                let mut chosen = chosen.clone();
                chosen.retain(|&column| self.makes_sense(column));
                chosen
            }
            None => self.all_columns(),
        };
        if self.columns.chosen.is_none() {
            let is_first = LEAST_NEEDED.iter().take(10);
            let mut least = is_first.copied();
            let names = NAMES_BESIDE_ALL.max(width * 2 / 5);
            while self.width_of(&shown) + names > width {
                match least.next() {
                    Some(least) => shown.retain(|&c| c != least),
                    None => break,
                }
            }
        }
        // Other metrics are dropped before columns of the selected one, the last ones first.
        while self.width_of(&shown) + NAMES > width {
            let other = shown.iter().rposition(|c| matches!(c, Column::Other(_)));
            let Some(other) = other else { break };
            shown.remove(other);
        }
        for least in LEAST_NEEDED {
            if shown.len() > 1 && self.width_of(&shown) + NAMES > width {
                shown.retain(|&c| c != least);
            }
        }
        if self.width_of(&shown) + NAMES_AT_LEAST > width {
            shown.clear();
        }
        shown
    }

    /// The effective sort key. Calls replace a column that is not available.
    pub(super) fn sort(&self) -> Sort {
        match self.columns.sort {
            Sort::By(column) if !self.makes_sense(column) => Sort::By(Column::Calls),
            sort => sort,
        }
    }

    /// The name of the effective sort key for the user.
    pub(super) fn sort_name(&self) -> String {
        let name = match self.sort() {
            Sort::By(Column::Bar) => "share".to_owned(),
            Sort::By(column) => column.title(self).to_lowercase(),
            Sort::Name => "name".to_owned(),
        };
        if self.columns.is_reversed {
            format!("{name}, reversed")
        } else {
            name
        }
    }

    /// The possible sort keys, in the order in which the key steps through them.
    pub(super) fn sorts(&self) -> Vec<Sort> {
        let shown = self.columns_in(self.size.0.into()).into_iter();
        let is_number = |c: &Column| !matches!(c, Column::Trend | Column::Bar);
        let sorts = shown.filter(is_number).map(Sort::By);
        sorts.chain([Sort::Name]).collect()
    }

    /// The order of two nodes by the effective sort key: larger values first, names alphabetically.
    pub(super) fn compare(&self, a: NodeId, b: NodeId) -> Ordering {
        let tree = &self.tree;
        let key = |node: NodeId| super::tree::RowKey::of(node);
        let name = |node: NodeId| tree.line(key(node)).map(|line| (&line.name, &line.place));
        let by_name = || name(a).cmp(&name(b));
        let order = match self.sort() {
            Sort::Name => by_name(),
            Sort::By(column) => {
                let value = |node| column.value(self, node).unwrap_or(f64::NEG_INFINITY);
                let order = value(b).total_cmp(&value(a));
                order.then_with(|| tree.counted(b).calls.cmp(&tree.counted(a).calls))
            }
        };
        let order = if self.columns.is_reversed {
            order.reverse()
        } else {
            order
        };
        // Equal rows must not change places between samples.
        order.then_with(by_name).then(a.cmp(&b))
    }

    /// The totals of the shown metric at a node. Empty if there is no metric.
    pub(super) fn total(&self, node: NodeId) -> Total {
        let metric = self.metric_place();
        metric.map_or_else(Total::default, |metric| self.tree.total(node, metric))
    }
}

/// The node to which another one's share refers: its function, or the root.
pub(super) fn whole(state: &State, node: NodeId) -> NodeId {
    let tree = &state.tree;
    match tree.shape() {
        Shape::Callers => tree.top_of(node),
        Shape::FromRoot | Shape::Flat => ROOT,
        Shape::Threads => {
            let up = |&node: &NodeId| tree.parent(node);
            let branch: Vec<NodeId> = std::iter::successors(Some(node), up).collect();
            // The function is below the thread.
            let below = branch.len().checked_sub(2).and_then(|n| branch.get(n));
            below.copied().unwrap_or(ROOT)
        }
    }
}

/// The share of a node in `whole`, by the shown metric, or by calls without one. `None` if `whole`
/// is 0, if some of its values are negative, or if the node consists of nested calls that together
/// last longer than `whole`.
fn of(state: &State, node: NodeId, whole: NodeId) -> Option<f64> {
    let tree = &state.tree;
    if state.metric_place().is_none() {
        let (part, whole) = (tree.counted(node).calls, tree.counted(whole).calls);
        return (whole > 0).then(|| part as f64 / whole as f64);
    }
    let (part, whole) = (state.total(node), state.total(whole));
    // If the terms of a sum cancel out, shares of it mean nothing.
    let is_signed = whole.ends().is_some_and(|(min, _)| min < 0);
    if whole.sum() <= 0 || is_signed {
        return None;
    }
    Some(once(&part, whole.sum())? as f64 / whole.sum() as f64)
}

/// The sum of a part of `whole`. The times of a recursion, whose calls run within each other, may
/// exceed `whole`, which counts each moment once: then the sum over its outermost calls. `None` if
/// there are none.
fn once(part: &Total, whole: i128) -> Option<i128> {
    let outermost = i128::from(part.outermost());
    if part.sum() <= whole || outermost >= part.sum() {
        return Some(part.sum());
    }
    (outermost > 0).then_some(outermost)
}

/// True if the node belongs to a throttled function, whose times are not those of all calls.
fn is_throttled(state: &State, node: NodeId) -> bool {
    let functions = state
        .profile()
        .map_or(&[][..], |profile| &profile.functions);
    // Finding the function may require a search below the node.
    if functions
        .iter()
        .all(|function| function.throttled.is_none())
    {
        return false;
    }
    let index = state.tree.function_at(node);
    let index = index.and_then(|site| state.tree.function_index(site));
    let function = index.and_then(|index| functions.get(index));
    function.is_some_and(|function| function.throttled.is_some())
}

/// The share of the run that the node's outermost calls take. `None` for metrics that have no total
/// of the run, such as cycles and arguments.
fn of_run(state: &State, node: NodeId) -> Option<f64> {
    let run = match state.tree.span() {
        super::tree::Span::Total => {
            let profile = state.profile()?;
            // Finding the function may require a search below the node.
            let some_are_later = profile
                .functions
                .iter()
                .any(|f| f.presence() != Presence::default());
            let function = some_are_later
                .then(|| state.tree.function_at(node))
                .flatten();
            let function = function.and_then(|site| state.tree.function_index(site));
            let function = function.and_then(|index| profile.functions.get(index));
            let presence = function.map(Function::presence).unwrap_or_default();
            profile.run_of(state.shown()?, presence)?
        }
        _ if state.metric() == ("cpu", "ns") => return None,
        _ if state.metric().1 != "ns" => return None,
        _ => {
            let processes = state.profile()?.processes.len() as u64;
            state.tree.lasted().saturating_mul(processes.max(1))
        }
    };
    (run > 0).then(|| state.total(node).outermost() as f64 / run as f64)
}

/// Instructions per cycle. `None` if they are not measured.
fn per_cycle(state: &State, node: NodeId) -> Option<f64> {
    PerCycle::by(sums(state, node)).ratio()
}

/// Returns the sum of a metric by its name, with the number of calls that measured it.
fn sums(state: &State, node: NodeId) -> impl Fn(&str) -> Option<(i128, u64)> {
    move |name| {
        let metric = state.metrics.iter().position(|m| m.name == name)?;
        let total = state.tree.total(node, metric);
        Some((total.sum(), total.values))
    }
}

/// All digits of a value, if the column has room for them.
fn fitting(text: String, value: f64) -> String {
    if text.chars().count() < WIDTH {
        text
    } else {
        human::number(value)
    }
}

/// A share as a bar of a column's width.
pub(super) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (8 * width) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(EIGHTHS[eighths % 8]);
    let gap = width.saturating_sub(bar.chars().count());
    bar + &" ".repeat(gap)
}

/// Rates as a row of bars, the latest on the right. Each bar is the maximum of its interval.
fn spark(rates: &[f32]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.iter().copied().fold(0.0, f32::max);
    if most <= 0.0 {
        return String::new();
    }
    let part = rates.len().div_ceil(WIDTH - 1).max(1);
    let parts = rates
        .rchunks(part)
        .map(|part| part.iter().copied().fold(0.0, f32::max));
    let height = |rate: f32| {
        if rate > 0.0 {
            BARS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1]
        } else {
            ' '
        }
    };
    let bars: Vec<char> = parts.map(height).collect();
    bars.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_can_be_left_out() {
        for column in ALL {
            assert_eq!(LEAST_NEEDED.iter().filter(|&&c| c == column).count(), 1);
        }
    }

    #[test]
    fn bars_are_as_long_as_shares_are_large() {
        assert_eq!(bar(0.0, 8), "        ");
        assert_eq!(bar(0.5, 8), "████    ");
        assert_eq!(bar(1.0, 8), "████████");
        assert_eq!(bar(7.0, 8), "████████");
        assert_eq!(bar(0.07, 8), "▌       ");
    }

    #[test]
    fn trends_have_the_last_rate_on_the_right() {
        assert_eq!(spark(&[]), "");
        assert_eq!(spark(&[0.0, 0.0]), "");
        assert_eq!(spark(&[1.0, 2.0, 0.0, 8.0]), "▁▂ █");
        let minute: Vec<f32> = (0..60).map(|n| n as f32).collect();
        assert_eq!(spark(&minute).chars().count(), 8);
        assert!(spark(&minute).ends_with('█'));
    }
}
