//! The columns of the table.

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Calls,
    /// The calls per second between the last two samples.
    Rate,
    /// The calls per second of the last minute.
    Trend,
    /// The sum of the shown metric over all calls.
    Total,
    /// The part of the total that was not spent in other measured calls.
    Own,
    Mean,
    Min,
    P50,
    P90,
    P99,
    P999,
    Max,
    /// The total of another metric, by its index in the metrics of the profile.
    Other(usize),
    /// Instructions per cycle.
    Ipc,
    /// Time off the processor without the time spent waiting for one.
    Waiting,
    /// The share of the total in the elapsed time, or of CPU time in the CPU time of the process.
    OfRun,
    /// The share in the row's function, or in all functions, depending on the view.
    OfFunction,
    /// The share in the row that this one is below.
    OfParent,
    /// The share of [`Column::OfFunction`] as a bar.
    Bar,
}

/// The columns of the shown metric, in their default order.
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

/// The order in which columns are dropped if there is too little room.
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

/// The terminal columns of a column of figures with the gap before it, unless its heading needs
/// more.
pub(super) const WIDTH: usize = 9;
/// The terminal columns that names keep beside columns that are dropped early ([`LEAST_NEEDED`]).
pub(super) const NAMES_BESIDE_ALL: usize = 48;
/// The terminal columns that names keep beside the other columns.
pub(super) const NAMES: usize = 32;
/// On the smallest screens, one column is kept as long as names have this many terminal columns.
pub(super) const NAMES_AT_LEAST: usize = 10;

impl Column {
    /// True if the column shows values of the selected metric.
    pub(super) fn needs_metric(self) -> bool {
        use Column::*;
        matches!(
            self,
            Total | Own | Mean | Min | P50 | P90 | P99 | P999 | Max | OfRun
        )
    }

    /// True if the column's heading names the metric.
    pub(super) fn is_of_metric(self) -> bool {
        self.needs_metric() && self != Self::OfRun
    }

    /// True for percentiles, such as the median.
    pub(super) fn is_percentile(self) -> bool {
        self.per_mille().is_some()
    }

    /// The percentile that the column shows, in thousandths. `None` for other columns.
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
    /// The columns chosen by the user, in order. `None` leaves the choice to the view.
    pub(super) chosen: Option<Vec<Column>>,
    /// The sort key chosen by the user, which may be unavailable.
    pub(super) sort: Sort,
    /// True if the order is reversed.
    pub(super) is_reversed: bool,
}

/// The sort key of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// By a column, the largest value first.
    By(Column),
    /// By the name, in alphabetical order.
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
