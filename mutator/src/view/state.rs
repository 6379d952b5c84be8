//! What the view shows and what the keys do to it, without any terminal.

use super::Key;
use super::key::{self, Command};
use super::layout::Layout;
use super::line::EditLine;
use super::tree::{NodeId, Row, Sort, Tree};
use crate::profile::{COUNT, Metric, PerCycle, Profile, printable};

/// What happens to the view.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// The terminal has this size now.
    Resize {
        /// In columns.
        width: u16,
        /// In lines.
        height: u16,
    },
    /// A new sample.
    Sample(Box<Profile>),
    /// There is no new sample, or it may be the last, for this reason.
    Failed(String),
    /// This process was stopped for a while.
    Continued,
    /// What became of the last action: a line for the user.
    Answer(Result<String, String>),
}

/// What the view wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// End the view.
    Quit,
    /// Instrument the functions that this pattern matches.
    Add(String),
    /// Have this function of the latest sample measure these metrics.
    Change(usize, String),
    /// Take the probes out of this function of the latest sample.
    Remove(usize),
    /// Stop this process and its job until it is brought back.
    Suspend,
    /// Draw everything again: something else may have written to the terminal.
    Redraw,
}

/// Who gets the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    Help,
    /// Typing a pattern to add.
    Add(EditLine),
    /// Typing what this function is to measure.
    Change(NodeId, EditLine),
    /// Asked whether this function is to be removed.
    Confirm(NodeId),
}

/// One line for the user, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// Everything that the view shows.
pub struct State {
    pub(super) tree: Tree,
    /// The sample that is shown.
    pub(super) profile: Option<Profile>,
    /// While the display is held: the latest sample, once there is one.
    held: Option<Profile>,
    pub(super) paused: bool,
    /// Which of the profile's timers is shown.
    timer: usize,
    sort: Sort,
    pub(super) mode: Mode,
    pub(super) message: Option<Message>,
    pub(super) rows: Vec<Row>,
    /// The selected row.
    pub(super) cursor: usize,
    /// The first row on the screen.
    pub(super) top: usize,
    size: (u16, u16),
}

impl Default for State {
    fn default() -> Self {
        Self {
            tree: Tree::default(),
            profile: None,
            held: None,
            paused: false,
            timer: 0,
            sort: Sort::Total,
            mode: Mode::Browse,
            message: None,
            rows: Vec::new(),
            cursor: 0,
            top: 0,
            size: (80, 24),
        }
    }
}

impl State {
    /// Takes in what happened; gives what is to be done about it outside.
    pub fn update(&mut self, event: Event) -> Option<Action> {
        let action = match event {
            Event::Key(key) => self.press(key),
            Event::Resize { width, height } => {
                self.size = (width, height);
                None
            }
            Event::Sample(profile) => {
                if self.paused {
                    self.held = Some(*profile);
                } else {
                    self.show(*profile);
                }
                None
            }
            Event::Failed(text) => {
                self.say(Err(text));
                None
            }
            Event::Continued => None,
            Event::Answer(result) => {
                self.say(result);
                None
            }
        };
        self.keep_cursor_visible();
        action
    }

    /// The metric that is shown beside the calls.
    pub(super) fn shown(&self) -> Option<&Metric> {
        let metrics = || self.profile.iter().flat_map(|p| p.timers());
        metrics().nth(self.timer).or_else(|| metrics().next())
    }

    /// Its name and unit; `count` where there is none.
    pub(super) fn metric(&self) -> (&str, &str) {
        self.shown()
            .map_or((COUNT, "calls"), |m| (&m.name, &m.unit))
    }

    /// True if a timer is shown, so that totals and means mean something.
    pub(super) fn is_timed(&self) -> bool {
        self.shown().is_some()
    }

    /// True if a metric is shown that has to do with instructions per cycle, and both were counted.
    pub(super) fn has_per_cycle(&self) -> bool {
        let metrics = self.profile.iter().flat_map(|p| p.timers());
        let both = metrics
            .filter(|m| PerCycle::has_to_do_with(&m.name))
            .count()
            == 2;
        both && PerCycle::has_to_do_with(self.metric().0)
    }

    /// The column that rows are sorted by: without a timer calls take the place of totals.
    pub(super) fn sort(&self) -> Sort {
        match self.sort {
            Sort::Total | Sort::Mean | Sort::P99 if !self.is_timed() => Sort::Calls,
            sort => sort,
        }
    }

    /// How the screen is divided.
    pub(super) fn layout(&self) -> Layout {
        let notes = self
            .profile
            .as_ref()
            .is_some_and(|p| !p.session.notes.is_empty());
        Layout::of(self.size.1, 2 + u16::from(notes))
    }

    /// The selected node.
    pub(super) fn selected(&self) -> Option<NodeId> {
        self.rows.get(self.cursor).map(|row| row.node)
    }

    fn say(&mut self, result: Result<String, String>) {
        let is_error = result.is_err();
        let (Ok(text) | Err(text)) = result;
        self.message = Some(Message {
            text: printable(&text).into_owned(),
            is_error,
        });
    }

    fn show(&mut self, profile: Profile) {
        let span = self.profile.as_ref().map(|old| {
            profile
                .session
                .elapsed_ns
                .saturating_sub(old.session.elapsed_ns)
        });
        self.profile = Some(profile);
        self.measure(Some(span));
    }

    /// Reads the numbers of the shown profile; `new` says since when where it is a new sample.
    fn measure(&mut self, new: Option<Option<u64>>) {
        let metric = self.metric().0.to_owned();
        if let Some(profile) = &self.profile {
            match new {
                Some(span) => self.tree.sample(profile, &metric, span),
                None => self.tree.measure(profile, &metric),
            }
        }
        self.arrange();
    }

    /// Lists the rows anew; the cursor stays on its node, or where it is.
    fn arrange(&mut self) {
        let selected = self.selected();
        self.rows = self.tree.rows(self.sort());
        let same = self.rows.iter().position(|row| Some(row.node) == selected);
        self.cursor = same
            .unwrap_or(self.cursor)
            .min(self.rows.len().saturating_sub(1));
    }

    fn keep_cursor_visible(&mut self) {
        let height = usize::from(self.layout().rows).max(1);
        let last_top = self.rows.len().saturating_sub(height);
        let lowest = (self.cursor + 1).saturating_sub(height);
        self.top = self
            .top
            .clamp(lowest, self.cursor)
            .min(last_top.max(lowest));
    }

    fn press(&mut self, key: Key) -> Option<Action> {
        self.message = None;
        match key {
            Key::Ctrl('c') => return Some(Action::Quit),
            Key::Ctrl('z') => return Some(Action::Suspend),
            _ => {}
        }
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse => self.obey(key::command(key)?),
            // Any key leaves the help.
            Mode::Help => None,
            Mode::Add(line) => self.edit(line, key),
            Mode::Change(node, line) => self.edit_metrics(node, line, key),
            Mode::Confirm(node) => self.confirm(node, key),
        }
    }

    fn edit_metrics(&mut self, node: NodeId, mut line: EditLine, key: Key) -> Option<Action> {
        match key {
            Key::Esc => None,
            Key::Enter => {
                let metrics = line.text().trim().to_owned();
                let (index, name) = self.still_there(node)?;
                self.say(Ok(format!("changing {name} ...")));
                Some(Action::Change(index, metrics))
            }
            key => {
                line.press(key);
                self.mode = Mode::Change(node, line);
                None
            }
        }
    }

    /// The index of a function in the latest sample, and its name. The source knows its latest sample, which is not the shown
    /// one while the display is held.
    fn still_there(&mut self, node: NodeId) -> Option<(usize, String)> {
        let latest = self.held.as_ref().or(self.profile.as_ref())?;
        let name = self.tree.node(node).label.name.clone();
        let index = self.tree.function_index(node, latest);
        if index.is_none() {
            self.say(Err(format!("{name} is no longer instrumented")));
        }
        Some((index?, name))
    }

    /// A line with the metrics that a function has in the latest sample, or why they cannot be others.
    fn metrics_of(&self, node: NodeId) -> Option<Result<EditLine, String>> {
        let latest = self.held.as_ref().or(self.profile.as_ref())?;
        let index = self.tree.function_index(node, latest)?;
        let function = latest.functions.get(index)?;
        if function.point {
            let why = "points are counted, and nothing else is measured at them";
            return Some(Err(why.to_owned()));
        }
        let measured = function.measured.clone();
        let all = || latest.metrics.iter().map(|m| m.name.clone()).collect();
        let names: Vec<String> = measured.unwrap_or_else(all);
        Some(Ok(EditLine::of(&names.join(","))))
    }

    fn edit(&mut self, mut line: EditLine, key: Key) -> Option<Action> {
        match key {
            Key::Esc => None,
            Key::Enter => {
                let pattern = line.text().trim().to_owned();
                if pattern.is_empty() {
                    return None;
                }
                self.say(Ok(format!("adding {pattern} ...")));
                Some(Action::Add(pattern))
            }
            key => {
                line.press(key);
                self.mode = Mode::Add(line);
                None
            }
        }
    }

    fn confirm(&mut self, node: NodeId, key: Key) -> Option<Action> {
        if !matches!(key, Key::Char('y' | 'Y')) {
            return None;
        }
        let (index, name) = self.still_there(node)?;
        self.say(Ok(format!("removing {name} ...")));
        Some(Action::Remove(index))
    }

    fn obey(&mut self, command: Command) -> Option<Action> {
        let page = usize::from(self.layout().rows).saturating_sub(1).max(1);
        match command {
            Command::Quit => return Some(Action::Quit),
            Command::Suspend => return Some(Action::Suspend),
            Command::Redraw => return Some(Action::Redraw),
            Command::Up => self.go_to(self.cursor.saturating_sub(1)),
            Command::Down => self.go_to(self.cursor + 1),
            Command::PageUp => self.go_to(self.cursor.saturating_sub(page)),
            Command::PageDown => self.go_to(self.cursor + page),
            Command::First => self.go_to(0),
            Command::Last => self.go_to(usize::MAX),
            Command::Toggle => self.toggle(),
            Command::Expand => self.expand(),
            Command::Collapse => self.collapse(),
            Command::Sort => {
                self.sort = self.sort().next();
                // Columns that are not there without a timer are passed over.
                while self.sort != self.sort() {
                    self.sort = self.sort.next();
                }
                self.arrange();
            }
            Command::Metric => self.next_metric(),
            Command::Add => self.mode = Mode::Add(EditLine::default()),
            Command::Change => {
                let node = self.selected().map(|node| self.tree.function_of(node));
                let line = node.and_then(|node| Some((node, self.metrics_of(node)?)));
                match line {
                    Some((node, Ok(line))) => self.mode = Mode::Change(node, line),
                    Some((_, Err(why))) => self.say(Err(why)),
                    None => {}
                }
            }
            Command::Remove => {
                if let Some(node) = self.selected() {
                    self.mode = Mode::Confirm(self.tree.function_of(node));
                }
            }
            Command::Pause => {
                self.paused = !self.paused;
                if let Some(latest) = self.held.take() {
                    self.show(latest);
                }
            }
            Command::Help => self.mode = Mode::Help,
        }
        None
    }

    fn go_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
    }

    fn toggle(&mut self) {
        match self.selected() {
            Some(node) if self.tree.is_expanded(node) => {
                self.tree.collapse(node);
                self.arrange();
            }
            _ => self.expand(),
        }
    }

    fn expand(&mut self) {
        if let Some(node) = self.selected() {
            self.tree.expand(node);
            self.arrange();
        }
    }

    fn collapse(&mut self) {
        let Some(node) = self.selected() else { return };
        if self.tree.is_expanded(node) {
            self.tree.collapse(node);
            self.arrange();
        } else if let Some(parent) = self.tree.node(node).parent {
            let row = self.rows.iter().position(|row| row.node == parent);
            self.go_to(row.unwrap_or(self.cursor));
        }
    }

    fn next_metric(&mut self) {
        let timers = self.profile.as_ref().map_or(0, |p| p.timers().count());
        if timers < 2 {
            self.say(Ok(format!("{} is the only metric", self.metric().0)));
            return;
        }
        self.timer = (self.timer + 1) % timers;
        self.measure(None);
    }
}
