//! The rows of processes below a function.

use super::Report;
use super::processes;
use super::rows::Rows;
use super::table::Table;
use crate::profile::{COUNT, InProcess, Spreads};

impl Report<'_> {
    /// The spread of the sort key over the processes. `None` if there is only one process.
    pub(super) fn spread(&self, spreads: Option<&Spreads>) -> Option<String> {
        let metric = self.metrics.first().filter(|_| self.sorted_by().is_some());
        let metric = metric.map_or((COUNT, "calls"), |m| (&m.name, &m.unit));
        super::spread(self.profile, metric, spreads)
    }

    /// Adds a row for each of the costliest processes of a function, if there are several
    /// processes.
    pub(super) fn processes(&self, rows: &Rows<'_>, table: &mut Table, parts: &[InProcess]) {
        let by = self.sorted_by().unwrap_or(COUNT);
        let groups = processes::groups(self.profile, parts, by);
        let most = self.options.processes.unwrap_or(usize::MAX);
        for group in groups.iter().take(most) {
            let title = group.title(&self.titles);
            rows.add_sums(table, (group.count, &group.sums), &title);
        }
        if let Some(hidden) = groups.len().checked_sub(most).filter(|&n| n > 0) {
            table.text(format!("{hidden} more, not shown"));
        }
    }
}
