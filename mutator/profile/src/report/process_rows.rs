//! The rows of processes below a function.

use super::Report;
use super::processes;
use super::rows::Rows;
use super::table::Table;
use crate::profile::{COUNT, InProcess};

impl Report<'_> {
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
