//! The counts inside the selected function: showing them, and scrolling.

use super::{Action, Mode, State};
use crate::Key;
use crate::inside::{Counts, HEAD, List, Panel};
use crate::key::{self, Command};
use crate::tree::{NodeId, SiteId, Span};
use ipath_profile::Function;
use ipath_profile::printable;
use std::rc::Rc;

impl State {
    /// The start of a function, and the counts inside it. `None` if they are not known.
    pub(crate) fn counts_inside(&self, site: SiteId) -> Option<(u64, Counts<'_>)> {
        let index = self.tree.function_index(site)?;
        let function = self.profile()?.functions.get(index)?;
        Some((function.address, self.insides.of(index)?))
    }

    /// The action that counts the edges of a function or stops that. Their counts are shown.
    /// `None`, with a message to the user, if the sample does not have the function.
    pub(super) fn toggle_edges(&mut self, site: SiteId) -> Option<Action> {
        let (index, name) = self.still_there(site)?;
        self.say(Ok(format!("changing the counters of {name} ...")));
        self.has_changed = true;
        if !matches!(self.mode, Mode::Inside(..)) {
            self.enter_inside(site);
        }
        Some(Action::Edges(index))
    }

    /// Shows the counts inside a function, or a message that there are none.
    pub(super) fn show_inside(&mut self, site: SiteId) {
        if self.counts_inside(site).is_some() {
            self.enter_inside(site);
        } else {
            let name = self.tree.site(site).lines[0].name.clone();
            self.say(Err(format!("no edges are counted, e counts them: {name}")));
        }
    }

    fn enter_inside(&mut self, site: SiteId) {
        self.inside_sources.clear();
        self.mode = Mode::Inside(Panel {
            site,
            list: List::default(),
            top: 0,
            along: 0,
        });
    }

    /// Leaves the counts inside a function if there are none.
    pub(super) fn leave_empty_inside(&mut self) {
        if let Mode::Inside(Panel { site, .. }) = self.mode
            && self.counts_inside(site).is_none()
        {
            self.mode = Mode::Browse;
        }
    }

    /// Handles a key while the counts inside a function are shown. Returns the action to perform,
    /// if there is one.
    pub(super) fn scroll_inside(&mut self, panel: Panel, key: Key) -> Option<Action> {
        /// The places by which a key moves along paths.
        const PLACES: usize = 4;
        let page = self.inside_page();
        let top = panel.top;
        let top = match key::command(key) {
            Some(Command::Up) => top.saturating_sub(1),
            Some(Command::Down) => top + 1,
            Some(Command::PageUp) => top.saturating_sub(page),
            Some(Command::PageDown) => top + page,
            Some(Command::First) => 0,
            Some(Command::Last) => usize::MAX,
            Some(Command::Redraw) => {
                self.mode = Mode::Inside(panel);
                return Some(Action::Redraw);
            }
            Some(Command::Edges) => {
                self.mode = Mode::Inside(panel);
                return self.toggle_edges(panel.site);
            }
            Some(Command::NextView) => {
                self.show_other_list(panel);
                return None;
            }
            Some(Command::Expand) if panel.list == List::Paths => {
                self.move_along(panel, panel.along + PLACES);
                return None;
            }
            Some(Command::Collapse) if panel.list == List::Paths => {
                self.move_along(panel, panel.along.saturating_sub(PLACES));
                return None;
            }
            // Any other key goes back.
            _ => return None,
        };
        self.show_panel(Panel { top, ..panel });
        None
    }

    /// Shows the counts inside a function, no further than to the last page.
    pub(super) fn show_panel(&mut self, panel: Panel) {
        let counts = self.counts_inside(panel.site);
        let length = counts.map_or(0, |(_, counts)| counts.length(panel.list));
        let last = length.saturating_sub(self.inside_page());
        let top = panel.top.min(last);
        self.mode = Mode::Inside(Panel { top, ..panel });
    }

    /// Leaves out this number of places at the start of long paths, but not all of any path.
    fn move_along(&mut self, panel: Panel, along: usize) {
        let counts = self.counts_inside(panel.site);
        let longest = counts.map_or(0, |(_, counts)| counts.longest_path());
        let along = along.min(longest.saturating_sub(1));
        self.mode = Mode::Inside(Panel { along, ..panel });
    }

    /// Shows the paths instead of the blocks, or the blocks again. A message says that no paths are
    /// counted.
    fn show_other_list(&mut self, panel: Panel) {
        let list = match panel.list {
            List::Blocks if self.has_paths(panel.site) => List::Paths,
            List::Blocks => {
                self.say(Err("no paths are counted: --paths counts them".to_owned()));
                List::Blocks
            }
            List::Paths => List::Blocks,
        };
        let top = if list == panel.list { panel.top } else { 0 };
        self.mode = Mode::Inside(Panel { list, top, ..panel });
    }

    /// True if the paths of a function are counted.
    pub(crate) fn has_paths(&self, site: SiteId) -> bool {
        let counts = self.counts_inside(site);
        counts.is_some_and(|(_, counts)| counts.has_paths())
    }

    /// The number of lines for the counts inside a function, at least 1.
    fn inside_page(&self) -> usize {
        let layout = self.layout();
        let height = usize::from(layout.table_head + layout.rows + layout.detail);
        height.saturating_sub(HEAD.min(height / 2)).max(1)
    }

    /// The next source file to read for the counts inside a function. `None` if all have been read.
    pub(crate) fn wanted_inside_source(&self) -> Option<Rc<str>> {
        /// More files than a function usually has code from.
        const MOST: usize = 16;
        let Mode::Inside(Panel { site, .. }) = self.mode else {
            return None;
        };
        let (_, counts) = self.counts_inside(site)?;
        let known = |file: &str| self.inside_sources.iter().any(|s| *s.file == *file);
        let blocks = counts.inside.blocks.iter();
        let mut files = blocks.filter_map(|block| Some(block.source()?.0));
        let wanted = files.find(|file| !known(file))?;
        (self.inside_sources.len() < MOST).then(|| wanted.into())
    }

    /// A line of a source file, without the space around it. `None` if it cannot be read.
    pub(crate) fn source_line(&self, file: &str, line: u32) -> Option<String> {
        let mut sources = self.inside_sources.iter();
        let source = sources.find(|source| *source.file == *file)?;
        let text = source.lines.as_ref()?.get(line.checked_sub(1)? as usize)?;
        Some(printable(text.trim()).into_owned())
    }

    /// The function of a top row, if its edges are counted and its calls are not.
    fn only_edges(&self, node: NodeId) -> Option<(usize, &Function)> {
        if self.tree.parent(node).is_some() || self.tree.counted(node).calls > 0 {
            return None;
        }
        let [site] = self.tree.sites(node) else {
            return None;
        };
        let index = self.tree.function_index(*site)?;
        let function = self.profile()?.functions.get(index)?;
        function.only_edges.then_some((index, function))
    }

    /// True for the row of a function whose edges are counted, and whose calls are not.
    pub(crate) fn has_only_edges(&self, node: NodeId) -> bool {
        self.only_edges(node).is_some()
    }

    /// The activations of a function whose edges alone are counted, and those per second. `None` if
    /// they are not known, as in a span other than the total.
    pub(crate) fn entries(&self, node: NodeId) -> (Option<f64>, Option<f64>) {
        let counted = self
            .only_edges(node)
            .and_then(|(index, function)| Some((self.insides.of(index)?, function.address)));
        let Some((counts, address)) = counted else {
            return (None, None);
        };
        let is_total = self.tree.span() == Span::Total;
        let all = is_total.then(|| counts.inside.activations(address) as f64);
        (all, counts.activation_rate(address))
    }
}
