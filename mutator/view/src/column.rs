//! Which columns there are.

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Calls,
    Rate,
    /// The calls a second of the last minute.
    Trend,
    Total,
    /// What was not spent in other measured calls.
    Own,
    Mean,
    Min,
    P50,
    P90,
    P99,
    P999,
    Max,
    /// The total of another metric, by its place among those of the profile.
    Other(usize),
    Ipc,
    /// Time off the processor without the wait for one.
    Waiting,
    OfRun,
    OfFunction,
    OfParent,
    /// The share of the function as a bar.
    Bar,
}

/// Of the shown metric, in the order in which they stand at first.
pub(super) const ALL: [Column; 18] = [
    Column::Calls,
    Column::Rate,
    Column::Trend,
    Column::Total,
    Column::Own,
    Column::Mean,
    Column::Min,
    Column::P50,
    Column::P90,
    Column::P99,
    Column::P999,
    Column::Max,
    Column::Ipc,
    Column::Waiting,
    Column::OfRun,
    Column::OfFunction,
    Column::OfParent,
    Column::Bar,
];

/// What is left out first where there is no room for all.
pub(super) const LEAST_NEEDED: [Column; 18] = [
    Column::OfParent,
    Column::Min,
    Column::P90,
    Column::P999,
    Column::Max,
    Column::Bar,
    Column::Trend,
    Column::Own,
    Column::P50,
    Column::P99,
    Column::OfRun,
    Column::Rate,
    Column::Waiting,
    Column::Ipc,
    Column::Mean,
    Column::OfFunction,
    Column::Calls,
    Column::Total,
];

/// The width of a column with the gap before it, unless its heading needs more.
pub(super) const WIDTH: usize = 9;
/// Names get at least as much room before a column that is needed less is shown, and before one that is needed more.
pub(super) const NAMES_BESIDE_ALL: usize = 48;
pub(super) const NAMES: usize = 32;
/// On the smallest screens one column is kept as long as names have this.
pub(super) const NAMES_AT_LEAST: usize = 10;

impl Column {
    /// True if it shows values of the metric that is shown.
    pub(super) fn needs_metric(self) -> bool {
        use Column::*;
        matches!(
            self,
            Total | Own | Mean | Min | P50 | P90 | P99 | P999 | Max | OfRun
        )
    }

    /// True if its heading names the metric.
    pub(super) fn is_of_metric(self) -> bool {
        self.needs_metric() && self != Self::OfRun
    }

    pub(super) fn is_percentile(self) -> bool {
        self.per_mille().is_some()
    }

    pub(super) fn per_mille(self) -> Option<u32> {
        match self {
            Self::P50 => Some(500),
            Self::P90 => Some(900),
            Self::P99 => Some(990),
            Self::P999 => Some(999),
            _ => None,
        }
    }
}

/// The columns of a view.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Those that the user wants, in this order; none where that is left to the view.
    pub(super) chosen: Option<Vec<Column>>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    By(Column),
    Name,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            chosen: None,
            sort: Sort::By(Column::Total),
            is_reversed: false,
        }
    }
}
