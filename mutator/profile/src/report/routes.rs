//! The paths inside a function, as text: the lines or blocks of each, the hottest path first.

use unicode_width::UnicodeWidthStr;

use super::inside::WIDTH;
use super::places::{Places, hottest_paths, paths_not_counted, paths_taken, shortened};
use super::table::Table;
use super::{Report, human};
use crate::profile::Inside;

impl Report<'_> {
    /// The table of the paths, the hottest first. `None` if paths were not counted.
    pub(super) fn routes(&self, inside: &Inside) -> Option<Table> {
        let totals = inside.path_totals?;
        let mut table = Table::new(&["count", "share"]);
        let counts = inside.paths.iter().map(|path| i128::from(path.count));
        let sum = counts.sum::<i128>();
        let hottest = hottest_paths(inside);
        let shown = &hottest[..hottest.len().min(self.limit())];
        let places = Places::of(self.profile, inside);
        let names = places.distinct(shown);
        for (path, name) in shown.iter().zip(names) {
            let cells = vec![path.count.to_string(), human::share(path.count.into(), sum)];
            let taken: usize = cells.iter().map(|cell| cell.width().max(5) + 2).sum();
            let room = WIDTH.saturating_sub(taken + 2);
            let name = if self.options.verbose {
                name.join(" ")
            } else {
                shortened(&name, room)
            };
            table.row(cells, name);
        }
        self.rest(&mut table, hottest.len() - shown.len(), "path");
        table.text(paths_taken(inside, totals.possible));
        for remark in paths_not_counted(inside) {
            table.text(remark);
        }
        Some(table)
    }
}
