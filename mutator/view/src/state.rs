//! What the view shows and what the keys do to it, without any terminal.

mod obey;
mod question;

use regex::Regex;

use super::Key;
use super::callees::Callees;
use super::column::Columns;
use super::key;
use super::layout::Layout;
use super::line::EditLine;
use super::names::{Finder, Names};
use super::tree::{self, NodeId, Row, SiteId, Tree};
use ipath_profile::{COUNT, Changed, Function, Metric, PerCycle, Profile, printable};
use std::rc::Rc;
use std::sync::Arc;

/// What happens to the view.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// Something was done with the mouse.
    Mouse(Mouse),
    /// The terminal has this size now.
    Resize {
        /// In columns.
        width: u16,
        /// In lines.
        height: u16,
    },
    /// There is no new sample, or it may be the last, for this reason.
    Failed(String),
    /// This process was stopped for a while.
    Continued,
    /// What a function calls, for the user to say whether that is to be added.
    Callees(Callees),
    /// What became of the last action: a line for the user.
    Answer(Result<String, String>),
}

/// What was done with the mouse, and where: column and line of the screen from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mouse {
    /// The first button was pressed.
    Press(u16, u16),
    /// The wheel was turned away from the user.
    WheelUp,
    /// The wheel was turned towards the user.
    WheelDown,
}

/// What the view wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// End the view.
    Quit,
    /// Take a sample at once.
    Look,
    /// Instrument the functions that this pattern matches.
    Add(String),
    /// Find out what this function of the latest sample calls.
    Callees(usize),
    /// Instrument these.
    AddCallees(Callees),
    /// Have this function of the latest sample measure these metrics.
    Change(usize, String),
    /// Take the probes out of this function of the latest sample.
    Remove(usize),
    /// Let the user choose functions from where the time goes by sampling.
    Estimate,
    /// Have the terminal keep this text in its clipboard.
    Copy(String),
    /// Write the profile to this file.
    Write(String),
    /// Show this line of a file in the user's editor.
    Edit(String, u32),
    /// Stop this process and its job until it is brought back.
    Suspend,
    /// Draw everything again: something else may have written to the terminal.
    Redraw,
}

/// Who gets the keys.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    Browse,
    /// The first line of the help that is shown.
    Help(usize),
    /// Looking for a function to add.
    Add(Finder),
    /// Typing what this function is to measure.
    Change(SiteId, EditLine),
    /// Asked whether this function is to be removed.
    Confirm(SiteId),
    /// Asked whether these functions are to be added.
    AddCallees(Callees),
    /// Typing what to look for.
    Search(EditLine),
    /// Typing what is to be shown.
    Filter(EditLine),
    /// Typing the name of a file for the profile.
    Write(EditLine),
    /// Choosing columns, at this one.
    Columns(usize),
}

/// One line for the user, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// A piece of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) file: Rc<str>,
    /// Its lines; none where it cannot be read.
    pub(super) lines: Option<Vec<String>>,
}

/// Everything that the view shows.
pub struct State {
    pub(super) tree: Tree,
    /// The sample that is shown, without its paths.
    head: Option<Profile>,
    /// While the display is held: the same of the latest sample, once there is one.
    held: Option<Profile>,
    pub(super) paused: bool,
    /// The profile's metrics but the count.
    pub(super) metrics: Vec<Metric>,
    /// Which of them is shown.
    timer: usize,
    pub(super) columns: Columns,
    pub(super) mode: Mode,
    pub(super) message: Option<Message>,
    /// How the target stands, where it does not run.
    pub(super) stands: Option<String>,
    pub(super) rows: Vec<Row>,
    /// The selected row.
    pub(super) cursor: usize,
    /// The first row on the screen.
    pub(super) top: usize,
    pub(super) size: (u16, u16),
    /// What is looked for.
    pub(super) sought: Option<Regex>,
    /// What other rows are compared with.
    pub(super) compared: Option<tree::Key>,
    /// True if there is to be more about the selected row; none where that depends on the screen.
    is_detailed: Option<bool>,
    /// The source that was shown last.
    pub(super) source: Option<Source>,
    /// The functions of the process, once they have been asked for.
    pub(super) names: Option<Arc<Names>>,
    /// True if functions have come or gone because of a key here.
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
            names: None,
            has_changed: false,
        }
    }
}

impl State {
    /// Takes in what happened; gives what is to be done about it outside.
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
                self.say(result);
                None
            }
        };
        self.keep_cursor_visible();
        self.watch_trends();
        action
    }

    /// Takes in a sample, or where the display is held what is needed of it.
    pub fn sample(&mut self, profile: &Profile, changed: &Changed) {
        self.tell_of_others(profile);
        if self.paused {
            self.held = Some(head_of(profile, self.held.take(), changed));
            return;
        }
        self.head = Some(head_of(profile, self.head.take(), changed));
        self.metrics = profile.timers().cloned().collect();
        self.tree.sample(profile, changed);
        self.arrange();
        self.keep_cursor_visible();
        self.watch_trends();
    }

    /// Says how the target stands, where it does not run.
    pub fn stand(&mut self, stands: Option<String>) {
        self.stands = stands;
    }

    /// Reports functions that another command, a new program or a library has added, and functions that
    /// another command has removed. Removed functions keep their counts.
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

    /// The sample that is shown, without its paths.
    pub(super) fn profile(&self) -> Option<&Profile> {
        self.head.as_ref()
    }

    /// The same of the latest one.
    fn latest(&self) -> Option<&Profile> {
        self.held.as_ref().or(self.head.as_ref())
    }

    /// The metric that is shown beside the calls.
    pub(super) fn shown(&self) -> Option<&Metric> {
        self.metrics.get(self.metric_place()?)
    }

    /// Its place among the profile's metrics, which is that among the tree's.
    pub(super) fn metric_place(&self) -> Option<usize> {
        match self.metrics.len() {
            0 => None,
            n if self.timer < n => Some(self.timer),
            _ => Some(0),
        }
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
        let has_to_do = |m: &&Metric| PerCycle::has_to_do_with(&m.name);
        let both = self.metrics.iter().filter(has_to_do).count() == 2;
        both && PerCycle::has_to_do_with(self.metric().0)
    }

    /// How the screen is divided.
    pub(super) fn layout(&self) -> Layout {
        let notes = self
            .head
            .as_ref()
            .is_some_and(|p| p.session.said().next().is_some());
        let height = self.size.1;
        let lines = 2 + u16::from(notes) + u16::from(!self.tree.filters().is_empty());
        // One line for the name, three for the comparison with the time before the mark.
        let brief = match self.tree.span() {
            tree::Span::Mark => 4,
            _ => 1,
        };
        Layout::of(height, lines, self.is_detailed(), brief)
    }

    /// True if there is more about the selected row than its name.
    pub(super) fn is_detailed(&self) -> bool {
        /// Where the rows are more than half of the screen all the same.
        const ENOUGH: u16 = 36;
        self.is_detailed.unwrap_or(self.size.1 >= ENOUGH)
    }

    /// The selected row.
    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// The selected node.
    pub(super) fn selected(&self) -> Option<NodeId> {
        self.selected_row().map(|row| row.key.node)
    }

    /// The site that the selected row is about: the last one that it names of those that the user asks for.
    pub(super) fn selected_line(&self) -> Option<&tree::Line> {
        self.tree.line(self.selected_row()?.key)
    }

    /// The source position that is to be shown, where it is not there yet.
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

    /// True if the functions of the process are waited for.
    pub(super) fn wants_names(&self) -> bool {
        matches!(self.mode, Mode::Add(_)) && self.names.is_none()
    }

    /// Takes the functions of the process.
    pub(super) fn give_names(&mut self, names: Arc<Names>) {
        self.names = Some(names);
    }

    /// Looks for what has been typed of a name, once all keys that are there have been taken in.
    pub(super) fn find_names(&mut self) {
        if let Mode::Add(finder) = &mut self.mode {
            finder.find(self.names.as_deref());
        }
    }

    fn say(&mut self, result: Result<String, String>) {
        let is_error = result.is_err();
        let (Ok(text) | Err(text)) = result;
        self.message = Some(Message {
            text: printable(&text).into_owned(),
            is_error,
        });
    }

    /// Lists the rows anew; the cursor stays on its row, or where it is.
    fn arrange(&mut self) {
        let mut selected = self.selected_row().map(|row| row.key);
        for split in self.tree.take_splits() {
            selected = selected.map(|key| key.after(split));
            self.compared = self.compared.map(|key| key.after(split));
        }
        self.rows = self.tree.rows(|a, b| self.compare(a, b));
        let place = |key: tree::Key| {
            let same = self.rows.iter().position(|row| row.key == key);
            // What was in a row of its own may be in that of its node now.
            same.or_else(|| self.rows.iter().position(|row| row.key.node == key.node))
        };
        let cursor = selected.and_then(place).unwrap_or(self.cursor);
        self.cursor = cursor.min(self.rows.len().saturating_sub(1));
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

    /// Has the rates of what is on the screen remembered.
    fn watch_trends(&mut self) {
        let height = usize::from(self.layout().rows);
        let shown = self.rows.iter().skip(self.top).take(height);
        let nodes: Vec<NodeId> = shown.map(|row| row.key.node).collect();
        self.tree.look_at(nodes.into_iter());
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
            asked => self.answer(asked, key),
        }
    }
}

/// A profile without its paths. Where functions, frames and modules have kept their places, what is known of them is taken
/// over.
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
        processes: processes.clone(),
        search: None,
        losses: losses.clone(),
        exactness: profile.exactness,
    }
}
