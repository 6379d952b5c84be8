//! The state of the view, and its changes by keys. Knows no terminal.

mod inside;
mod obey;
mod question;

use regex::Regex;

use super::Key;
use super::callees::Callees;
use super::column::Columns;
use super::inside::{Insides, Panel};
use super::key;
use super::layout::Layout;
use super::line::EditLine;
use super::names::{Finder, Names};
use super::tree::{self, NodeId, Row, SiteId, Tree};
use ipath_profile::{COUNT, Changed, Function, Metric, PerCycle, Profile, printable};
use std::rc::Rc;
use std::sync::Arc;

/// An event for the view.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// The mouse was used.
    Mouse(Mouse),
    /// The terminal has changed its size.
    Resize {
        /// The new width in terminal columns.
        width: u16,
        /// The new height in lines.
        height: u16,
    },
    /// There is no new sample, or it may be the last one, for this reason.
    Failed(String),
    /// This process was stopped and continued.
    Continued,
    /// The callees of a function. The user decides whether they are added.
    Callees(Callees),
    /// The result of the last action, as one line.
    Answer(Result<String, String>),
}

/// A mouse event. Positions are column and line of the screen, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mouse {
    /// The first button was pressed.
    Press(u16, u16),
    /// The wheel was turned up, away from the user.
    WheelUp,
    /// The wheel was turned down, towards the user.
    WheelDown,
}

/// A request by the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// End the view.
    Quit,
    /// Take a sample now.
    Look,
    /// Instrument the functions that this pattern matches.
    Add(String),
    /// Determine the callees of the function at this index in the latest sample.
    Callees(usize),
    /// Instrument these functions.
    AddCallees(Callees),
    /// Set the metrics of the function at this index in the latest sample.
    Change(usize, String),
    /// Remove the probes from the function at this index in the latest sample.
    Remove(usize),
    /// Count the edges of the function at this index in the latest sample, or stop that.
    Edges(usize),
    /// Let the user choose functions by the time they take, estimated from samples.
    Estimate,
    /// Copy this text to the terminal's clipboard.
    Copy(String),
    /// Write the profile to this file.
    Write(String),
    /// Show this line of a file in the user's editor.
    Edit(String, u32),
    /// Stop this process and its job until it is continued.
    Suspend,
    /// Redraw everything: another process may have written to the terminal.
    Redraw,
}

/// The receiver of keys.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    Browse,
    /// The help, from this line on.
    Help(usize),
    /// The search for a function to add.
    Add(Finder),
    /// Editing the metrics of this function.
    Change(SiteId, EditLine),
    /// The question about removing this function.
    Confirm(SiteId),
    /// The question about adding these functions.
    AddCallees(Callees),
    /// Editing the text of a search.
    Search(EditLine),
    /// Editing a filter.
    Filter(EditLine),
    /// Editing the file name for a profile.
    Write(EditLine),
    /// The list of columns, with the cursor at this one.
    Columns(usize),
    /// The counts inside a function.
    Inside(Panel),
}

/// A message for the user, shown until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) file: Rc<str>,
    /// The lines of the file. `None` if it cannot be read.
    pub(super) lines: Option<Vec<String>>,
}

/// Everything that the view shows.
pub struct State {
    pub(super) tree: Tree,
    /// The displayed sample, without its paths.
    head: Option<Profile>,
    /// The latest sample without its paths, if the display is paused.
    held: Option<Profile>,
    /// True if the display is paused. Measuring continues.
    pub(super) paused: bool,
    /// The metrics of the profile other than `count`.
    pub(super) metrics: Vec<Metric>,
    /// The index in `metrics` of the selected metric.
    timer: usize,
    pub(super) columns: Columns,
    pub(super) mode: Mode,
    /// The message to show. `None` if there is none.
    pub(super) message: Option<Message>,
    /// The state of the target, if it is not running. `None` if it runs.
    pub(super) stands: Option<String>,
    /// The visible rows, from the top.
    pub(super) rows: Vec<Row>,
    /// The index of the selected row.
    pub(super) cursor: usize,
    /// The index of the first row on the screen.
    pub(super) top: usize,
    /// The columns and lines of the screen.
    pub(super) size: (u16, u16),
    /// The expression of the last search.
    pub(super) sought: Option<Regex>,
    /// The row with which other rows are compared.
    pub(super) compared: Option<tree::RowKey>,
    /// True to show details of the selected row. `None` decides by the size of the screen.
    is_detailed: Option<bool>,
    /// The source file that was shown last.
    pub(super) source: Option<Source>,
    /// The source files of the function whose inside is shown.
    pub(super) inside_sources: Vec<Source>,
    /// The counts inside functions.
    pub(super) insides: Insides,
    /// The functions of the process, if they have been requested.
    pub(super) names: Option<Arc<Names>>,
    /// True if an action of this view has added or removed functions.
    has_changed: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            tree: Tree::default(),
            head: None,
            held: None,
            paused: false,
            metrics: Vec::new(),
            timer: 0,
            columns: Columns::default(),
            mode: Mode::Browse,
            message: None,
            stands: None,
            rows: Vec::new(),
            cursor: 0,
            top: 0,
            size: (80, 24),
            sought: None,
            compared: None,
            is_detailed: None,
            source: None,
            inside_sources: Vec::new(),
            insides: Insides::default(),
            names: None,
            has_changed: false,
        }
    }
}

impl State {
    /// Handles an event. Returns the action to perform, if there is one.
    pub fn update(&mut self, event: Event) -> Option<Action> {
        let action = match event {
            Event::Key(key) => self.press(key),
            Event::Mouse(mouse) => {
                self.point(mouse);
                None
            }
            Event::Resize { width, height } => {
                self.size = (width, height);
                None
            }
            Event::Failed(text) => {
                self.say(Err(text));
                None
            }
            Event::Continued => None,
            Event::Callees(callees) => {
                self.mode = Mode::AddCallees(callees);
                None
            }
            Event::Answer(result) => {
                if result.is_err() {
                    self.leave_empty_inside();
                }
                self.say(result);
                None
            }
        };
        self.keep_cursor_visible();
        self.watch_trends();
        action
    }

    /// Takes in a sample, and reports functions that others have added or removed. If the display
    /// is paused, it keeps only the profile without its paths.
    pub fn sample(&mut self, profile: &Profile, changed: &Changed) {
        self.tell_of_others(profile);
        if self.paused {
            self.held = Some(head_of(profile, self.held.take(), changed));
            return;
        }
        self.head = Some(head_of(profile, self.head.take(), changed));
        self.insides.sample(profile);
        self.metrics = profile.timers().cloned().collect();
        self.tree.sample(profile, changed);
        self.arrange();
        self.keep_cursor_visible();
        self.watch_trends();
    }

    /// Sets the state of the target, if it is not running. `None` means that it runs.
    pub fn stand(&mut self, stands: Option<String>) {
        self.stands = stands;
    }

    /// Reports functions that another command, a new program or a library has added, and functions
    /// that another command has removed. Removed functions keep their counts.
    fn tell_of_others(&mut self, profile: &Profile) {
        let is_own = std::mem::take(&mut self.has_changed);
        let Some(before) = self.latest() else { return };
        let same_as = |f: &Function| {
            let same = |g: &&Function| g.name == f.name && g.address == f.address;
            before.functions.iter().find(same)
        };
        let has_gone = |f: &&Function| f.is_removed && same_as(f).is_some_and(|g| !g.is_removed);
        let gone = profile.functions.iter().filter(has_gone);
        let gone: Vec<&str> = gone.map(|f| f.name.as_str()).collect();
        if !is_own && !gone.is_empty() {
            let told = format!("another command has removed {}", gone.join(", "));
            self.say(Ok(told));
            return;
        }
        if is_own || before.functions.len() >= profile.functions.len() {
            return;
        }
        let is_new = |f: &&Function| same_as(f).is_none();
        let new = profile.functions.iter().filter(is_new);
        let names: Vec<&str> = new.map(|f| f.name.as_str()).collect();
        if !names.is_empty() {
            let have_come = before.processes.len() < profile.processes.len()
                || !before.session.pending.is_empty();
            let how = if have_come {
                "measured from now on:"
            } else {
                "another command has added"
            };
            let told = format!("{how} {}", names.join(", "));
            self.say(Ok(told));
        }
    }

    /// The displayed sample, without its paths. `None` before the first one.
    pub(super) fn profile(&self) -> Option<&Profile> {
        self.head.as_ref()
    }

    /// The latest sample, without its paths. `None` before the first one.
    fn latest(&self) -> Option<&Profile> {
        self.held.as_ref().or(self.head.as_ref())
    }

    /// The metric shown beside the calls. `None` if only calls are measured.
    pub(super) fn shown(&self) -> Option<&Metric> {
        self.metrics.get(self.metric_place()?)
    }

    /// The index of the shown metric in the profile's metrics, which is also its index in the tree.
    /// `None` if only calls are measured.
    pub(super) fn metric_place(&self) -> Option<usize> {
        match self.metrics.len() {
            0 => None,
            n if self.timer < n => Some(self.timer),
            _ => Some(0),
        }
    }

    /// The name and unit of the metric shown. `count` if there is none.
    pub(super) fn metric(&self) -> (&str, &str) {
        self.shown()
            .map_or((COUNT, "calls"), |m| (&m.name, &m.unit))
    }

    /// True if a metric is shown, so that there are totals and means.
    pub(super) fn is_timed(&self) -> bool {
        self.shown().is_some()
    }

    /// True if the shown metric is part of instructions per cycle, and both parts were counted.
    pub(super) fn has_per_cycle(&self) -> bool {
        let has_to_do = |m: &&Metric| PerCycle::has_to_do_with(&m.name);
        let both = self.metrics.iter().filter(has_to_do).count() == 2;
        both && PerCycle::has_to_do_with(self.metric().0)
    }

    /// The division of the screen.
    pub(super) fn layout(&self) -> Layout {
        let notes = self
            .head
            .as_ref()
            .is_some_and(|p| p.said().next().is_some());
        let height = self.size.1;
        let lines = 2 + u16::from(notes) + u16::from(!self.tree.filters().is_empty());
        // One line for the name; three for the comparison with the time before the mark.
        let brief = match self.tree.span() {
            tree::Span::Mark => 4,
            _ => 1,
        };
        Layout::of(height, lines, self.is_detailed(), brief)
    }

    /// True if details of the selected row are shown.
    pub(super) fn is_detailed(&self) -> bool {
        /// From this height on, rows still take more than half of the screen.
        const ENOUGH: u16 = 36;
        self.is_detailed.unwrap_or(self.size.1 >= ENOUGH)
    }

    /// The selected row. `None` if there are no rows.
    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// The selected node. `None` if there are no rows.
    pub(super) fn selected(&self) -> Option<NodeId> {
        self.selected_row().map(|row| row.key.node)
    }

    /// The line of the tree that the selected row shows. `None` if there are no rows.
    pub(super) fn selected_line(&self) -> Option<&tree::Line> {
        self.tree.line(self.selected_row()?.key)
    }

    /// The source file to show. `None` if it has been read, is not known, or no details are shown.
    pub(super) fn wanted_source(&self) -> Option<Rc<str>> {
        if !self.is_detailed() {
            return None;
        }
        let (file, _) = self.selected_line()?.source.clone()?;
        let is_there = self
            .source
            .as_ref()
            .is_some_and(|source| source.file == file);
        (!is_there).then_some(file)
    }

    /// True if the list of functions is needed and missing.
    pub(super) fn wants_names(&self) -> bool {
        matches!(self.mode, Mode::Add(_)) && self.names.is_none()
    }

    /// Sets the functions of the process.
    pub(super) fn give_names(&mut self, names: Arc<Names>) {
        self.names = Some(names);
    }

    /// Searches for the typed name. Called after all pending keys have been handled.
    pub(super) fn find_names(&mut self) {
        if let Mode::Add(finder) = &mut self.mode {
            finder.find(self.names.as_deref());
        }
    }

    /// Shows a message until the next key.
    fn say(&mut self, result: Result<String, String>) {
        let is_error = result.is_err();
        let (Ok(text) | Err(text)) = result;
        self.message = Some(Message {
            text: printable(&text).into_owned(),
            is_error,
        });
    }

    /// Rebuilds the rows. The cursor stays on its row, or at its index if the row is gone.
    fn arrange(&mut self) {
        let mut selected = self.selected_row().map(|row| row.key);
        for split in self.tree.take_splits() {
            selected = selected.map(|key| key.after(split));
            self.compared = self.compared.map(|key| key.after(split));
        }
        self.rows = self.tree.rows(|a, b| self.compare(a, b));
        let place = |key: tree::RowKey| {
            let same = self.rows.iter().position(|row| row.key == key);
            // A line that had its own row may now be in the row of its node.
            same.or_else(|| self.rows.iter().position(|row| row.key.node == key.node))
        };
        let cursor = selected.and_then(place).unwrap_or(self.cursor);
        self.cursor = cursor.min(self.rows.len().saturating_sub(1));
    }

    /// Scrolls so that the selected row is on the screen.
    fn keep_cursor_visible(&mut self) {
        let height = usize::from(self.layout().rows).max(1);
        let last_top = self.rows.len().saturating_sub(height);
        let lowest = (self.cursor + 1).saturating_sub(height);
        self.top = self
            .top
            .clamp(lowest, self.cursor)
            .min(last_top.max(lowest));
    }

    /// Records the rates of the nodes on the screen.
    fn watch_trends(&mut self) {
        let height = usize::from(self.layout().rows);
        let shown = self.rows.iter().skip(self.top).take(height);
        let nodes: Vec<NodeId> = shown.map(|row| row.key.node).collect();
        self.tree.look_at(nodes.into_iter());
    }

    /// Handles a key, and clears the message. Returns the action to perform, if there is one.
    fn press(&mut self, key: Key) -> Option<Action> {
        self.message = None;
        match key {
            Key::Ctrl('c') => return Some(Action::Quit),
            Key::Ctrl('z') => return Some(Action::Suspend),
            _ => {}
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.obey(key::command(key)?),
            asked => self.answer(asked, key),
        }
    }
}

/// A profile without its paths. Reuses the functions, frames and modules of `before` if their
/// indexes have not changed.
fn head_of(profile: &Profile, before: Option<Profile>, changed: &Changed) -> Profile {
    let Profile {
        schema,
        ipath,
        target,
        session,
        metrics,
        losses,
        threads,
        processes,
        ..
    } = profile;
    let (functions, modules, refused) = match (before, changed) {
        (Some(mut before), Changed::Paths(_))
            if before.modules.len() == profile.modules.len()
                && before.functions.len() == profile.functions.len() =>
        {
            for (own, now) in before.functions.iter_mut().zip(&profile.functions) {
                own.totals.clone_from(&now.totals);
                own.tail = now.tail;
            }
            (before.functions, before.modules, before.refused)
        }
        _ => (
            profile.functions.clone(),
            profile.modules.clone(),
            profile.refused.clone(),
        ),
    };
    Profile {
        schema: schema.clone(),
        ipath: ipath.clone(),
        target: target.clone(),
        session: session.clone(),
        metrics: metrics.clone(),
        modules,
        functions,
        refused,
        frames: Vec::new(),
        paths: Vec::new(),
        threads: threads.clone(),
        inside: Vec::new(),
        processes: processes.clone(),
        search: None,
        losses: losses.clone(),
        exactness: profile.exactness,
    }
}
