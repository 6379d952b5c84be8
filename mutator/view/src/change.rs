//! The differences of rows before and after the mark, and their significance.

use super::State;
use super::tree::NodeId;
use ipath_profile::Distribution;
use ipath_profile::diff::SIGNIFICANT;
use ipath_profile::diff::statistics::{adjusted, p_of_means, p_of_rates};
use ipath_profile::report::human;

/// A row on one side of the mark.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// The number of calls on this side.
    pub(super) calls: u64,
    /// The duration of this side, in nanoseconds.
    pub(super) ns: u64,
    /// The values of the shown metric. Empty without one.
    pub(super) values: Distribution,
}

/// A row on both sides.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) before: Side,
    pub(super) after: Side,
    /// True if the difference of the means is significant among all compared rows.
    pub(super) is_mean_significant: bool,
    /// True if the difference of the calls per second is significant.
    pub(super) is_rate_significant: bool,
}

impl Side {
    /// The calls per second. 0 if this side has no duration.
    pub(super) fn rate(&self) -> f64 {
        match self.ns {
            0 => 0.0,
            ns => self.calls as f64 * 1e9 / ns as f64,
        }
    }

    /// The 99th percentile of the values. `None` without values.
    pub(super) fn p99(&self) -> Option<f64> {
        self.values.quantile(990).map(|value| value as f64)
    }
}

impl Change {
    /// The means of the values before and after the mark. `None` if a side has no values.
    pub(super) fn means(&self) -> Option<(f64, f64)> {
        self.before.values.mean().zip(self.after.values.mean())
    }

    /// The text for the column: the change of the mean, or of the calls per second if there is no
    /// metric.
    pub(super) fn cell(&self, has_metric: bool) -> String {
        let (pair, is_significant) = if has_metric {
            (self.means(), self.is_mean_significant)
        } else {
            let rates = (self.before.rate(), self.after.rate());
            (Some(rates), self.is_rate_significant)
        };
        let text = pair.and_then(|(before, after)| difference(before, after));
        let mark = if is_significant { "*" } else { " " };
        text.map_or_else(|| "- ".to_owned(), |text| text + mark)
    }
}

/// `+92 %`, `-4.0 %`, `12.3x`. `None` if there is nothing to compare.
pub(super) fn difference(before: f64, after: f64) -> Option<String> {
    if before <= 0.0 {
        return None;
    }
    let ratio = after / before;
    Some(match 100.0 * (ratio - 1.0) {
        _ if ratio >= 10.0 => human::times(ratio),
        change if change.abs() < 9.95 => format!("{change:+.1} %"),
        change => format!("{change:+.0} %"),
    })
}

impl State {
    /// The differences of these rows before and after the mark. Empty unless the span shown is the
    /// time since the mark.
    pub(super) fn changes(&self, nodes: &[NodeId]) -> Vec<Change> {
        let metric = self.metric_place();
        let lasted = (self.tree.lasted_before(), self.tree.lasted());
        let of = |&node: &NodeId| {
            let before = self.tree.before(node, metric)?;
            let values = metric.map(|metric| self.tree.distribution(node, metric));
            Some(Change {
                before: Side {
                    calls: before.calls,
                    ns: lasted.0,
                    values: before.values,
                },
                after: Side {
                    calls: self.tree.counted(node).calls,
                    ns: lasted.1,
                    values: values.unwrap_or_default(),
                },
                ..Change::default()
            })
        };
        let Some(mut changes) = nodes.iter().map(of).collect::<Option<Vec<Change>>>() else {
            return Vec::new();
        };
        let of_means = |c: &Change| p_of_means(&c.before.values, &c.after.values);
        let of_rates = |c: &Change| {
            let (before, after) = (&c.before, &c.after);
            p_of_rates((before.calls, before.ns), (after.calls, after.ns))
        };
        let means: Vec<Option<f64>> = changes.iter().map(of_means).collect();
        let rates: Vec<Option<f64>> = changes.iter().map(of_rates).collect();
        let is_significant = |p: Option<f64>| p.is_some_and(|p| p <= SIGNIFICANT);
        let both = adjusted(&means).into_iter().zip(adjusted(&rates));
        for (change, (mean, rate)) in changes.iter_mut().zip(both) {
            change.is_mean_significant = is_significant(mean);
            change.is_rate_significant = is_significant(rate);
        }
        changes
    }

    /// The nodes of the rows on the screen, without duplicates.
    pub(super) fn nodes_on_screen(&self) -> Vec<NodeId> {
        let rows = self.rows.iter().skip(self.top);
        let rows = rows.take(self.layout().rows.into());
        let rows = rows.filter(|row| !row.is_repeated);
        rows.map(|row| row.key.node).collect()
    }

    /// The difference of the selected row, tested among all rows on the screen. `None` if no row on
    /// the screen is selected.
    pub(super) fn selected_change(&self) -> Option<Change> {
        let node = self.selected_row()?.key.node;
        let nodes = self.nodes_on_screen();
        let place = nodes.iter().position(|&shown| shown == node)?;
        self.changes(&nodes).into_iter().nth(place)
    }
}
