//! The paths inside a function, as text: the lines or blocks of each, the hottest path first.

use unicode_width::UnicodeWidthStr;

use super::inside::WIDTH;
use super::places::{Places, hottest_paths, paths_not_counted, paths_taken, shortened};
use super::table::Table;
use super::{Report, human};
use crate::profile::{Inside, TakenPath};

impl Report<'_> {
    /// The table of the paths, the hottest first. `None` if paths were not counted.
    pub(super) fn routes(&self, inside: &Inside) -> Option<Table> {
        let totals = inside.path_totals?;
        let is_timed = inside.paths.iter().any(|path| path.wall().is_some());
        let times = ["wall total", "wall mean"].into_iter().filter(|_| is_timed);
        let headings: Vec<&str> = ["count", "share"].into_iter().chain(times).collect();
        let mut table = Table::new(&headings);
        let counts = inside.paths.iter().map(|path| i128::from(path.count));
        let sum = counts.sum::<i128>();
        let hottest = hottest_paths(inside);
        let shown = &hottest[..hottest.len().min(self.limit())];
        let places = Places::of(self.profile, inside);
        let names = places.distinct(shown);
        for (path, name) in shown.iter().zip(names) {
            let mut cells = vec![path.count.to_string(), human::share(path.count.into(), sum)];
            cells.extend(times_of(path).into_iter().filter(|_| is_timed));
            let widths = cells.iter().zip(&headings);
            let taken: usize = widths
                .map(|(cell, of)| cell.width().max(of.width()) + 2)
                .sum();
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

/// The time of a path, and its mean. `-` if they were not measured.
pub fn times_of(path: &TakenPath) -> [String; 2] {
    let wall = path.wall();
    let sum = wall.map_or("-".to_owned(), |(sum, _)| human::quantity(sum, "ns"));
    [sum, human::average(wall.map(|(_, mean)| mean), "ns")]
}
