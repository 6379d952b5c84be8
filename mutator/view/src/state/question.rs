//! The keys while a question is open.

use super::{Action, Mode, State};
use crate::Key;
use crate::column::Column;
use crate::key::{self, Command};
use crate::line::EditLine;
use crate::tree::{Filter, SiteId, expression};
use ipath_profile::FunctionPart;

impl State {
    /// Handles a key. The question stays open until it is answered. Returns the action to perform,
    /// if there is one.
    pub(super) fn answer(&mut self, mode: Mode, key: Key) -> Option<Action> {
        match mode {
            Mode::Browse => None,
            Mode::Help(top) => {
                self.help(top, key);
                None
            }
            Mode::Add(mut finder) => match key {
                Key::Esc => None,
                Key::Enter => {
                    let pattern = finder.pattern(self.names.as_deref())?;
                    self.say(Ok(format!("adding {pattern} ...")));
                    self.has_changed = true;
                    Some(Action::Add(pattern))
                }
                key => {
                    finder.press(key, self.names.as_deref());
                    self.mode = Mode::Add(finder);
                    None
                }
            },
            Mode::Change(site, line) => {
                let typed = self.typed(line, key, |line| Mode::Change(site, line))?;
                let (index, name) = self.still_there(site)?;
                self.say(Ok(format!("changing {name} ...")));
                Some(Action::Change(index, typed))
            }
            Mode::Confirm(site) => {
                if !matches!(key, Key::Char('y' | 'Y')) {
                    return None;
                }
                let (index, name) = self.still_there(site)?;
                self.say(Ok(format!("removing {name} ...")));
                self.has_changed = true;
                Some(Action::Remove(index))
            }
            Mode::AddCallees(callees) => {
                if !matches!(key, Key::Char('y' | 'Y')) {
                    return None;
                }
                self.say(Ok("adding ...".to_owned()));
                self.has_changed = true;
                Some(Action::AddCallees(callees))
            }
            Mode::Search(line) => {
                let typed = self.typed(line, key, Mode::Search)?;
                if typed.is_empty() {
                    self.sought = None;
                    return None;
                }
                match expression(&typed) {
                    Ok(sought) => {
                        self.sought = Some(sought);
                        self.seek(true);
                    }
                    Err(why) => self.say(Err(why)),
                }
                None
            }
            Mode::Filter(line) => {
                let typed = self.typed(line, key, Mode::Filter)?;
                if typed.is_empty() {
                    return None;
                }
                match Filter::parse(&typed) {
                    Ok(filter) => {
                        self.tree.add_filter(filter);
                        self.arrange();
                        if self.rows.is_empty() {
                            self.say(Ok(
                                "nothing is left; Backspace removes the filter".to_owned()
                            ));
                        }
                    }
                    Err(why) => self.say(Err(why)),
                }
                None
            }
            Mode::Write(line) => {
                let file = self.typed(line, key, Mode::Write)?;
                (!file.is_empty()).then_some(Action::Write(file))
            }
            Mode::Columns(at) => {
                self.choose_columns(at, key);
                None
            }
            Mode::Inside(panel) => self.scroll_inside(panel, key),
        }
    }

    /// Handles a key in a line. Returns the text on Enter. Escape closes the line, other keys edit
    /// it: the result is then `None`.
    fn typed(
        &mut self,
        mut line: EditLine,
        key: Key,
        mode: impl FnOnce(EditLine) -> Mode,
    ) -> Option<String> {
        match key {
            Key::Esc => None,
            Key::Enter => Some(line.text().trim().to_owned()),
            key => {
                line.press(key);
                self.mode = mode(line);
                None
            }
        }
    }

    fn help(&mut self, top: usize, key: Key) {
        let page = usize::from(self.layout().rows).max(1);
        let top = match key::command(key) {
            Some(Command::Up) => top.saturating_sub(1),
            Some(Command::Down) => top + 1,
            Some(Command::PageUp) => top.saturating_sub(page),
            Some(Command::PageDown) => top + page,
            // Any other key closes the help.
            _ => return,
        };
        self.mode = Mode::Help(top);
    }

    fn choose_columns(&mut self, at: usize, key: Key) {
        let all = self.all_columns();
        let width = usize::from(self.size.0);
        let mut chosen = match &self.columns.chosen {
            Some(chosen) => chosen.clone(),
            None => self.columns_in(width),
        };
        let last = all.len().saturating_sub(1);
        let at = match key {
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => (at + 1).min(last),
            Key::Char(' ') => {
                let Some(&column) = all.get(at) else { return };
                match chosen.iter().position(|&c| c == column) {
                    Some(place) => drop(chosen.remove(place)),
                    None => chosen.push(column),
                }
                self.columns.chosen = Some(chosen);
                let place = |c: &Column| *c == column;
                self.all_columns().iter().position(place).unwrap_or(at)
            }
            Key::Left | Key::Right => {
                let place = all.get(at).and_then(|c| chosen.iter().position(|d| d == c));
                let to = place.map(|place| match key {
                    Key::Left => place.saturating_sub(1),
                    _ => (place + 1).min(chosen.len() - 1),
                });
                if let (Some(place), Some(to)) = (place, to) {
                    let column = chosen.remove(place);
                    chosen.insert(to, column);
                    self.columns.chosen = Some(chosen);
                    self.mode = Mode::Columns(to);
                    return;
                }
                at
            }
            Key::Char('a') => {
                self.columns.chosen = None;
                at
            }
            Key::Esc | Key::Enter | Key::Char('C' | 'q') => return self.arrange(),
            _ => at,
        };
        self.mode = Mode::Columns(at);
    }

    /// The function of the selected row. `None`, with a message to the user, if the row belongs to
    /// several. `None` without a row.
    pub(super) fn function_of_row(&mut self) -> Option<SiteId> {
        let node = self.selected()?;
        let site = self.tree.function_at(node);
        if site.is_none() {
            self.say(Err("this line belongs to several functions".to_owned()));
        }
        site
    }

    /// The index of a function in the latest sample, and its name. The source knows its latest
    /// sample, which is not the displayed one while the display is paused. `None`, with a message
    /// to the user, if the sample does not have it.
    pub(super) fn still_there(&mut self, site: SiteId) -> Option<(usize, String)> {
        let name = self.tree.site(site).lines[0].name.clone();
        let index = self.index_in_latest(site);
        if index.is_none() {
            self.say(Err(format!("{name} is no longer instrumented")));
        }
        Some((index?, name))
    }

    /// The index of a function in the latest sample. `None` if it is not in the sample.
    fn index_in_latest(&self, site: SiteId) -> Option<usize> {
        let index = self.tree.function_index(site)?;
        let shown = self.profile()?;
        let of = |p: &ipath_profile::Profile, index: usize| {
            let function = p.functions.get(index)?;
            let module = p.modules.get(function.module)?;
            Some((
                module.path.clone(),
                module.base,
                function.address,
                function.part(),
            ))
        };
        let wanted = of(shown, index)?;
        let latest = self.latest()?;
        (0..latest.functions.len()).find(|&index| of(latest, index).as_ref() == Some(&wanted))
    }

    /// A line with the metrics of a function in the latest sample, or the reason that they cannot
    /// be changed. `None` if the sample does not have the function.
    pub(super) fn metrics_of(&self, site: SiteId) -> Option<Result<EditLine, String>> {
        let latest = self.latest()?;
        let function = latest.functions.get(self.index_in_latest(site)?)?;
        if function.point {
            let why = "points are only counted";
            return Some(Err(why.to_owned()));
        }
        if function.is_span() {
            let what = match function.part() {
                FunctionPart::Loop => "a loop",
                FunctionPart::Paths => "paths",
                _ => "an inlined copy",
            };
            let why = format!("the metrics of {what} do not change in a session");
            return Some(Err(why));
        }
        let measured = function.measured.clone();
        let all = || latest.metrics.iter().map(|m| m.name.clone()).collect();
        let names: Vec<String> = measured.unwrap_or_else(all);
        Some(Ok(EditLine::of(&names.join(","))))
    }
}
