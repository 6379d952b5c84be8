//! The screen for choosing the functions to measure, with estimates that are updated continuously.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::time::{Duration, Instant};

use ratatui::backend::Backend;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::{Frame, Terminal};
use unicode_width::UnicodeWidthStr;

use super::draw::{BOLD, DIM, SELECTED, WARN, disarm, fit};
use super::inputs::{Input, Inputs, wipe};
use super::line::EditLine;
use super::{Key, Mouse};
use ipath_profile::display_name::{Chain, Link, fit_chains, fit_each};
use ipath_profile::report::wrapped;

/// A function that can be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choosable {
    /// A key that identifies it between updates.
    pub key: u64,
    /// The function's numbers, in columns as wide as those of the head.
    pub figures: Vec<String>,
    /// The function's name.
    pub name: String,
    /// The name of the function's module.
    pub module: String,
    /// The reason why the function cannot be chosen. `None` if it can be.
    pub refused: Option<String>,
}

/// The functions to choose from at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The subject of the measurement, in one line.
    pub about: String,
    /// The headings of the columns, from left to right.
    pub head: Vec<String>,
    /// A remark on the list, in one line.
    pub note: Option<String>,
    /// The functions, costliest first.
    pub rows: Vec<Choosable>,
}

/// The source of the choices.
pub trait Finder {
    /// Takes in new samples. It is called often and returns quickly. Returns the reason if no more
    /// samples will come.
    fn look(&mut self) -> Option<String>;

    /// The current functions to choose from.
    fn choices(&mut self) -> Choices;

    /// The callers of the function with this key, innermost first. Empty if none are known.
    fn callers(&mut self, key: u64) -> Vec<Link>;

    /// Returns patterns for the chosen functions.
    ///
    /// # Errors
    /// The process has ended, or has executed another program.
    fn patterns(&self, keys: &[u64]) -> Result<Vec<String>, String>;

    /// Pauses sampling. The choices stay.
    fn pause(&mut self);

    /// Resumes sampling after a pause.
    fn resume(&mut self);
}

/// The outcome of choosing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The functions with these keys, which the user chose.
    Functions(Vec<u64>),
    /// The functions that match a pattern, which the user typed.
    Named(String),
    /// No function: the user left the screen.
    Nothing,
    /// The measurement is over, for this reason.
    Over(String),
}

/// The time between two updates.
const A_LOOK: Duration = Duration::from_millis(30);
/// The maximum number of keys that are handled in between.
const MOST_INPUTS: usize = 64;
/// The time between two redraws without a key.
const A_PICTURE: Duration = Duration::from_millis(500);
/// Sampling stops after this time, because it has a cost and estimates improve little after it.
const ENOUGH: Duration = Duration::from_secs(60);

/// Explains the order, the columns and the keys.
const HELP: [&str; 18] = [
    "Each line is a function with estimates from samples, in order of the larger of two times:",
    "the time on a processor in the function itself, and the time in which it waited.",
    "",
    "  self       its own share of the CPU time",
    "  callee     its share with all its callees",
    "  waiting    its share of the time off a processor in system calls and locks",
    "  w/s        waits per second",
    "",
    "  Space      chooses a function, or undoes that",
    "  Enter      measures the chosen ones, or the one at the cursor: each call, with its callers",
    "  /          shows functions with a text in their name; Esc shows all",
    "  a          measures functions by name, glob or /regex/, sampled or not",
    "  s          sorts again, and resumes sampling if it has ended",
    "  Esc        undoes the choice, then leaves; q leaves",
    "",
    "Sampling ends after a minute. A line with - cannot be measured, or only at a high cost;",
    "Enter on it says why. `a` measures it by name anyway.",
    "Any key goes back.",
];

/// The part of the screen that gets the keys.
#[derive(Clone, Debug, Default)]
enum Mode {
    #[default]
    Browse,
    Help,
    /// Editing the text that names must contain.
    Filter(EditLine),
    /// Editing a pattern.
    Name(EditLine),
}

/// The state of the screen, which keys change.
#[derive(Default)]
pub(super) struct Choice {
    /// True if leaving returns to another screen.
    goes_back: bool,
    mode: Mode,
    /// True if sampling is paused.
    is_paused: bool,
    /// The text that names must contain.
    filter: String,
    choices: Choices,
    /// The key of the row at the cursor. `None` until the cursor has been moved.
    at: Option<u64>,
    /// The index of the row at the cursor.
    index: usize,
    /// The keys of the functions chosen so far.
    chosen: BTreeSet<u64>,
    /// The callers of the row at the cursor, if they have been requested.
    callers: Option<(u64, Vec<Link>)>,
    /// The index of the first row on the screen.
    top: usize,
    /// The text on the last line until the next key. May be empty.
    message: String,
}

impl Choice {
    /// Takes in new numbers. The cursor stays on its function. After it has been moved, rows keep
    /// their places and new ones are appended, so that the row to be chosen does not move away.
    pub(super) fn update(&mut self, mut choices: Choices) {
        let text = self.filter.to_lowercase();
        choices
            .rows
            .retain(|row| row.name.to_lowercase().contains(&text));
        if self.at.is_some() {
            let places = self.choices.rows.iter().enumerate();
            let places: HashMap<u64, usize> = places.map(|(place, row)| (row.key, place)).collect();
            let place = |row: &Choosable| places.get(&row.key).copied().unwrap_or(usize::MAX);
            choices.rows.sort_by_key(place);
        }
        self.choices = choices;
        self.callers = None;
        let rows = &self.choices.rows;
        let same = self.at.and_then(|at| rows.iter().position(|r| r.key == at));
        self.index = same.unwrap_or(self.index).min(rows.len().saturating_sub(1));
        // Until it is moved, the cursor stays on the first row that can be chosen.
        if self.at.is_none() {
            let first = rows.iter().position(|row| row.refused.is_none());
            self.index = first.unwrap_or(0);
        }
    }

    /// Requests the callers of the row at the cursor, if they are not known.
    pub(super) fn ask(&mut self, callers: impl FnOnce(u64) -> Vec<Link>) {
        let Some(key) = self.choices.rows.get(self.index).map(|row| row.key) else {
            return;
        };
        if self.callers.as_ref().is_none_or(|(known, _)| *known != key) {
            self.callers = Some((key, callers(key)));
        }
    }

    fn go(&mut self, to: usize) {
        self.index = to.min(self.choices.rows.len().saturating_sub(1));
        self.at = self.choices.rows.get(self.index).map(|r| r.key);
    }

    /// Handles a key. Returns the outcome if the key ends the choice. `page` is the number of rows
    /// on the screen.
    pub(super) fn press(&mut self, key: Key, page: usize) -> Option<Chosen> {
        self.message.clear();
        if key == Key::Ctrl('c') {
            return Some(Chosen::Nothing);
        }
        match std::mem::take(&mut self.mode) {
            Mode::Browse => {}
            Mode::Help => return None,
            Mode::Filter(line) => {
                self.type_filter(line, key);
                return None;
            }
            Mode::Name(line) => return self.type_name(line, key),
        }
        match key {
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter(EditLine::of(&self.filter)),
            Key::Char('a') => self.mode = Mode::Name(EditLine::default()),
            Key::Char('q') => return Some(Chosen::Nothing),
            Key::Up | Key::Char('k') => self.go(self.index.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(self.index + 1),
            Key::PageUp | Key::Ctrl('b') => self.go(self.index.saturating_sub(page)),
            Key::PageDown | Key::Ctrl('f') => self.go(self.index + page),
            Key::Home | Key::Char('g') => self.go(0),
            Key::End | Key::Char('G') => self.go(usize::MAX),
            Key::Esc if !self.filter.is_empty() => self.filter.clear(),
            Key::Esc if self.chosen.is_empty() => return Some(Chosen::Nothing),
            Key::Esc => self.chosen.clear(),
            Key::Char(' ') => self.toggle(),
            // The next update sorts the costliest first again.
            Key::Char('s') => self.at = None,
            Key::Enter => return self.take(),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, mut line: EditLine, key: Key) {
        match key {
            Key::Esc => self.filter.clear(),
            Key::Enter => {}
            key => {
                line.press(key);
                self.filter = line.text();
                self.mode = Mode::Filter(line);
                self.at = None;
            }
        }
    }

    fn type_name(&mut self, mut line: EditLine, key: Key) -> Option<Chosen> {
        let text = line.text().trim().to_owned();
        match key {
            Key::Esc => None,
            Key::Enter if text.is_empty() => None,
            Key::Enter => Some(Chosen::Named(text)),
            key => {
                line.press(key);
                self.mode = Mode::Name(line);
                None
            }
        }
    }

    /// Handles the mouse: a press moves the cursor to a row. On the row at the cursor it chooses
    /// the function, or undoes that. The wheel moves the cursor.
    pub(super) fn point(&mut self, mouse: Mouse) {
        const HEAD: usize = 2;
        const A_TURN: usize = 3;
        match mouse {
            Mouse::WheelUp => self.go(self.index.saturating_sub(A_TURN)),
            Mouse::WheelDown => self.go(self.index + A_TURN),
            Mouse::Press(_, line) => {
                let place = usize::from(line)
                    .checked_sub(HEAD)
                    .map(|row| self.top + row);
                match place.filter(|&place| place < self.choices.rows.len()) {
                    Some(place) if place == self.index => self.toggle(),
                    Some(place) => self.go(place),
                    None => {}
                }
            }
        }
    }

    fn toggle(&mut self) {
        let Some(row) = self.choices.rows.get(self.index) else {
            return;
        };
        let key = row.key;
        if let Some(reason) = &row.refused {
            self.message = format!("cannot be measured: {reason}");
        } else if !self.chosen.remove(&key) {
            self.chosen.insert(key);
            self.go(self.index + 1);
        } else {
            self.go(self.index);
        }
    }

    /// The chosen functions, or the function at the cursor if none is chosen. `None` if there is no
    /// function, or if it cannot be measured, which is then the message.
    fn take(&mut self) -> Option<Chosen> {
        if !self.chosen.is_empty() {
            return Some(Chosen::Functions(self.chosen.iter().copied().collect()));
        }
        let row = self.choices.rows.get(self.index)?;
        match &row.refused {
            None => Some(Chosen::Functions(vec![row.key])),
            Some(reason) => {
                self.message = format!("cannot be measured: {reason}");
                None
            }
        }
    }

    /// Draws the screen. Returns the number of rows that fit.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) -> usize {
        let screen = frame.area();
        let line = |y: u16| {
            let area = Rect {
                y: screen.y.saturating_add(y),
                height: 1,
                ..screen
            };
            area.intersection(screen)
        };
        if matches!(self.mode, Mode::Help) {
            for (place, text) in HELP.iter().enumerate().take(screen.height.into()) {
                frame.render_widget(Line::raw(*text), line(place as u16));
            }
            return 1;
        }
        let width = usize::from(screen.width);
        let note = self.choices.note.iter();
        let notes = note.flat_map(|note| wrapped(note.split(' '), " ", width));
        // On a small screen, rows are more useful than a remark.
        let notes: Vec<String> = notes.take(usize::from(screen.height / 8)).collect();
        // Head, titles, callers and hints.
        let page = usize::from(screen.height.saturating_sub(4)).saturating_sub(notes.len());
        let page = page.max(1);
        self.top = self.top.min(self.index);
        self.top = self.top.max((self.index + 1).saturating_sub(page));
        let about = fit(&self.choices.about, width);
        frame.render_widget(Line::styled(about, BOLD), line(0));
        let columns = columns(&self.choices.head, screen.width.into());
        let joined = |all: &[String]| {
            let shown = all.iter().zip(&columns).filter(|(_, is_shown)| **is_shown);
            shown
                .map(|(text, _)| text.as_str().to_owned() + " ")
                .collect::<String>()
        };
        if screen.height > 1 {
            let head = format!("    {} FUNCTION", joined(&self.choices.head));
            let order = ", most CPU or waiting first";
            let order = Some(order).filter(|order| head.width() + order.width() <= width);
            let head = head + order.unwrap_or_default();
            frame.render_widget(Line::styled(head, BOLD), line(1));
        }
        let rows = self.choices.rows.iter().enumerate();
        let rows: Vec<(usize, &Choosable)> = rows.skip(self.top).take(page).collect();
        let names = names(&rows, &columns, &self.choices.head, width);
        for (place, ((index, row), name)) in rows.into_iter().zip(names).enumerate() {
            let mark = if self.chosen.contains(&row.key) {
                "[x]"
            } else {
                "[ ]"
            };
            let mark = if row.refused.is_some() { " - " } else { mark };
            let text = format!("{mark} {} {name}", joined(&row.figures));
            let text = fit(&text, usize::from(screen.width));
            let mut style = if row.refused.is_some() {
                DIM
            } else {
                Default::default()
            };
            if index == self.index {
                style = style.patch(SELECTED);
            }
            frame.render_widget(Line::styled(text, style), line(2 + place as u16));
        }
        if screen.height > 3 {
            const ARROW: &str = " < ";
            let links = self.callers.iter().flat_map(|(_, callers)| callers);
            let chain = Chain {
                links: links.cloned().collect(),
                room: width.saturating_sub("< ".len()),
            };
            let callers = fit_chains(&[chain], ARROW).concat();
            if !callers.is_empty() {
                let callers = Line::styled(format!("< {callers}"), DIM);
                frame.render_widget(callers, line(screen.height - 2));
            }
            for (place, note) in notes.iter().rev().enumerate() {
                let area = line((screen.height - 2).saturating_sub(1 + place as u16));
                frame.render_widget(Line::styled(note.as_str(), WARN), area);
            }
        }
        if screen.height > 2 {
            let last = self.last_line();
            let counted = match self.chosen.len() {
                0 => String::new(),
                n => format!("  {n} chosen"),
            };
            let room = usize::from(screen.width).saturating_sub(last.width());
            frame.render_widget(last, line(screen.height - 1));
            if counted.width() <= room && !counted.is_empty() {
                let at = line(screen.height - 1);
                let area = Rect {
                    x: at.x + (screen.width - counted.width() as u16),
                    width: counted.width() as u16,
                    ..at
                };
                frame.render_widget(Line::styled(counted, BOLD), area);
            }
        }
        disarm(frame.buffer_mut());
        page
    }
}

impl Choice {
    /// The message, the text being edited, or a hint on keys.
    fn last_line(&self) -> Line<'static> {
        let typed = |what: &str, line: &EditLine| format!("{what}: {}_", line.text());
        match &self.mode {
            Mode::Filter(line) => {
                return Line::styled(typed("names with", line), BOLD);
            }
            Mode::Name(line) => {
                let what = "measure (name, glob or /regex/)";
                return Line::styled(typed(what, line), BOLD);
            }
            Mode::Browse | Mode::Help => {}
        }
        let keys = match (self.goes_back, self.is_paused) {
            _ if !self.message.is_empty() => return Line::styled(self.message.clone(), WARN),
            (_, true) => "sampling has ended: s resumes it  Enter measure  Space choose  ? help",
            (true, false) => {
                "Enter measure exactly  Space choose  / find  a by name  ? help  Esc goes back"
            }
            (false, false) => {
                "Enter measure exactly  Space choose  / find  a by name  ? help  Esc leaves"
            }
        };
        Line::styled(keys, DIM)
    }
}

/// The names of the rows, each with its module if there is room. The method stays whole.
fn names(
    rows: &[(usize, &Choosable)],
    columns: &[bool],
    head: &[String],
    width: usize,
) -> Vec<String> {
    /// The mark and the spaces around the figures.
    const MARK: usize = 5;
    /// The terminal columns below which a name is not cut to make room for its module.
    const LEAST: usize = 24;
    let figures = head.iter().zip(columns).filter(|(_, is_shown)| **is_shown);
    let figures: usize = figures.map(|(text, _)| text.width() + 1).sum();
    let room = width.saturating_sub(MARK + figures);
    let module = |row: &Choosable| format!("  {}", row.module);
    let beside = |row: &Choosable| {
        let left = room.checked_sub(module(row).width());
        left.filter(|&left| left >= LEAST.min(row.name.width()))
    };
    let each: Vec<(&str, usize)> = rows
        .iter()
        .map(|(_, row)| (row.name.as_str(), beside(row).unwrap_or(room)))
        .collect();
    let with_module = |(name, (_, row)): (String, &(usize, &Choosable))| match beside(row) {
        Some(_) => name + &module(row),
        None => name,
    };
    fit_each(&each)
        .into_iter()
        .zip(rows)
        .map(with_module)
        .collect()
}

/// For each column of `head`, true if it has room beside the names on a screen of this width. The
/// third column and the first are dropped last.
fn columns(head: &[String], width: usize) -> Vec<bool> {
    /// The terminal columns for the mark, and the least for names.
    const BESIDE: usize = 5 + 24;
    const LEAST_NEEDED: [usize; 4] = [3, 1, 2, 0];
    let mut shown = vec![true; head.len()];
    let needed = |shown: &[bool]| {
        let widths = head.iter().zip(shown).filter(|(_, is_shown)| **is_shown);
        BESIDE + widths.map(|(text, _)| text.width() + 1).sum::<usize>()
    };
    for place in LEAST_NEEDED {
        if place < shown.len() && needed(&shown) > width {
            shown[place] = false;
        }
    }
    shown
}

/// Lets the user choose. At `deadline` nothing is chosen. `goes_back` is true if leaving returns to
/// another screen.
///
/// # Errors
/// The terminal fails.
pub(super) fn choose<B: Backend>(
    terminal: &mut Terminal<B>,
    inputs: &mut dyn Inputs,
    finder: &mut dyn Finder,
    goes_back: bool,
    deadline: Option<Instant>,
) -> io::Result<Chosen>
where
    B::Error: Send + Sync + 'static,
{
    let mut choice = Choice {
        goes_back,
        ..Choice::default()
    };
    let mut due = Instant::now();
    let mut begun = Instant::now();
    let mut page = 1;
    let mut is_drawn = false;
    loop {
        if let Some(why) = finder.look() {
            return Ok(Chosen::Over(why));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Chosen::Nothing);
        }
        if !choice.is_paused && begun.elapsed() >= ENOUGH {
            finder.pause();
            choice.is_paused = true;
        }
        if Instant::now() >= due {
            choice.update(finder.choices());
            due = Instant::now() + A_PICTURE;
            is_drawn = false;
        }
        if !is_drawn {
            choice.ask(|key| finder.callers(key));
            terminal
                .draw(|frame| page = choice.draw(frame))
                .map_err(io::Error::other)?;
            is_drawn = true;
        }
        let mut timeout = A_LOOK;
        // At most this many keys at a time, so that samples are taken in meanwhile.
        for _ in 0..MOST_INPUTS {
            let Some(input) = inputs.next(timeout)? else {
                break;
            };
            timeout = Duration::ZERO;
            is_drawn = false;
            match input {
                Input::Key(Key::Ctrl('z')) => inputs.suspend(),
                Input::Key(Key::Ctrl('l')) | Input::Continued | Input::Resize(..) => {
                    wipe(terminal)?;
                }
                Input::Key(key) => {
                    if let Some(chosen) = choice.press(key, page) {
                        return Ok(chosen);
                    }
                    let is_browsing = matches!(choice.mode, Mode::Browse);
                    if choice.is_paused && is_browsing && key == Key::Char('s') {
                        finder.resume();
                        choice.is_paused = false;
                        begun = Instant::now();
                    }
                    // A filter applies at once.
                    due = Instant::now();
                }
                Input::Mouse(mouse) => choice.point(mouse),
                Input::Child => {}
                Input::Stop => return Ok(Chosen::Nothing),
            }
        }
    }
}
