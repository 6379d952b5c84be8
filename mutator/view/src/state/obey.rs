//! The commands of the table view.

use super::{Action, Finder, Mode, Mouse, State};
use crate::column::Sort;
use crate::key::Command;
use crate::line::EditLine;
use crate::tree::{NodeId, Row, Shape, Span, typed};
use ipath_profile::off_cpu;

impl State {
    /// Performs a command of the table view. Returns the action that the caller has to perform, if
    /// there is one.
    pub(super) fn obey(&mut self, command: Command) -> Option<Action> {
        let page = usize::from(self.layout().rows).saturating_sub(1).max(1);
        match command {
            Command::Quit => return Some(Action::Quit),
            Command::Suspend => return Some(Action::Suspend),
            Command::Redraw => return Some(Action::Redraw),
            Command::Cancel => {
                self.sought = None;
                self.compared = None;
            }
            Command::Up => self.go_to(self.cursor.saturating_sub(1)),
            Command::Down => self.go_to(self.cursor + 1),
            Command::PageUp => self.go_to(self.cursor.saturating_sub(page)),
            Command::PageDown => self.go_to(self.cursor + page),
            Command::First => self.go_to(0),
            Command::Last => self.go_to(usize::MAX),
            Command::Toggle => self.toggle(),
            Command::Expand => self.expand(),
            Command::Collapse => self.collapse(),
            Command::Fold => {
                if let Some(node) = self.selected() {
                    self.tree.fold_or_unfold(node);
                    self.arrange();
                }
            }
            Command::HotPath => {
                if let Some(node) = self.selected() {
                    self.tree.open_hottest(node, self.metric_place());
                    self.arrange();
                }
            }
            Command::ExpandAll | Command::CollapseAll => {
                self.tree.open_all(command == Command::ExpandAll);
                self.arrange();
            }
            Command::NextView => self.next_shape(),
            Command::Span => {
                let next = match self.tree.span() {
                    Span::Total => Span::Interval,
                    Span::Interval if self.tree.has_mark() => Span::Mark,
                    Span::Interval | Span::Mark => Span::Total,
                };
                self.tree.show_span(next);
                self.say(Ok(match next {
                    Span::Total => "since the beginning of the session".to_owned(),
                    Span::Interval => "from one sample to the next".to_owned(),
                    Span::Mark => "since the mark".to_owned(),
                }));
                self.arrange();
            }
            Command::Mark => {
                self.tree.mark();
                self.say(Ok(
                    "counting from now on; t shows the total again".to_owned()
                ));
                self.arrange();
            }
            Command::Metric => self.next_metric(),
            Command::Sort => {
                let sorts = self.sorts();
                let now = sorts.iter().position(|&sort| sort == self.sort());
                let next = now.map_or(0, |now| (now + 1) % sorts.len());
                self.sort_by(sorts[next]);
            }
            Command::Reverse => {
                self.columns.is_reversed = !self.columns.is_reversed;
                self.arrange();
            }
            Command::Columns => self.mode = Mode::Columns(0),
            Command::Detail => self.is_detailed = Some(!self.is_detailed()),
            Command::Pause => {
                self.paused = !self.paused;
                if !self.paused {
                    self.held = None;
                    return Some(Action::Look);
                }
            }
            Command::Search => self.mode = Mode::Search(EditLine::default()),
            Command::SearchNext => self.seek(true),
            Command::SearchPrevious => self.seek(false),
            Command::Filter => self.mode = Mode::Filter(EditLine::default()),
            Command::Zoom => {
                if let Some(node) = self.selected() {
                    let filter = self.tree.zoom(node);
                    self.tree.add_filter(filter);
                    self.arrange();
                }
            }
            Command::Unfilter => {
                if self.tree.drop_filter() {
                    self.arrange()
                } else {
                    self.say(Ok("nothing is filtered out".to_owned()))
                }
            }
            Command::Compare => {
                let selected = self.selected_row().map(|row| row.key);
                self.compared = if self.compared == selected {
                    None
                } else {
                    selected
                };
                self.is_detailed = Some(true);
            }
            Command::Add => self.mode = Mode::Add(Finder::new()),
            Command::AddCaller => return self.add_caller(),
            Command::AddCallees => {
                let site = self.function_of_row()?;
                let (index, name) = self.still_there(site)?;
                self.say(Ok(format!("looking for the callees of {name} ...")));
                return Some(Action::Callees(index));
            }
            Command::Change => {
                let site = self.function_of_row()?;
                match self.metrics_of(site)? {
                    Ok(line) => self.mode = Mode::Change(site, line),
                    Err(why) => self.say(Err(why)),
                }
            }
            Command::Remove => {
                let site = self.function_of_row()?;
                self.mode = Mode::Confirm(site);
            }
            Command::Edges => {
                let site = self.function_of_row()?;
                return self.toggle_edges(site);
            }
            Command::Inside => {
                let site = self.function_of_row()?;
                self.show_inside(site);
            }
            Command::Estimate => {
                self.has_changed = true;
                return Some(Action::Estimate);
            }
            Command::Copy => return self.copy(),
            Command::Write => {
                let pid = self.profile()?.target.pid;
                self.mode = Mode::Write(EditLine::of(&format!("ipath-{pid}.json")));
            }
            Command::Edit => match self.selected_line().and_then(|line| line.source.clone()) {
                Some((file, line)) => return Some(Action::Edit(file.to_string(), line)),
                None => self.say(Err("the source position of this line is unknown".to_owned())),
            },
            Command::Help => self.mode = Mode::Help(0),
        }
        None
    }

    /// Handles a mouse event.
    pub(super) fn point(&mut self, mouse: Mouse) {
        const A_TURN: usize = 3;
        if let Mode::Inside(mut panel) = self.mode {
            panel.top = match mouse {
                Mouse::WheelUp => panel.top.saturating_sub(A_TURN),
                Mouse::WheelDown => panel.top + A_TURN,
                Mouse::Press(..) => return,
            };
            self.show_panel(panel);
            return;
        }
        match mouse {
            Mouse::WheelUp => self.go_to(self.cursor.saturating_sub(A_TURN)),
            Mouse::WheelDown => self.go_to(self.cursor + A_TURN),
            Mouse::Press(column, line) => {
                if !matches!(self.mode, Mode::Browse) {
                    return;
                }
                let layout = self.layout();
                let head = layout.header;
                if line == head && layout.table_head > 0 {
                    self.press_title(usize::from(column));
                    return;
                }
                let Some(row) = line.checked_sub(head + layout.table_head) else {
                    return;
                };
                let place = self.top + usize::from(row);
                if row >= layout.rows || place >= self.rows.len() {
                    return;
                }
                if place == self.cursor {
                    self.toggle();
                } else {
                    self.go_to(place);
                }
            }
        }
    }

    /// Sorts by the column with its title at this terminal column. A second press reverses the
    /// order.
    fn press_title(&mut self, column: usize) {
        let columns = self.columns_in(self.size.0.into());
        let mut right = 0;
        let pressed = columns.iter().find(|shown| {
            right += shown.width(self);
            column < right
        });
        let sort = pressed.map_or(Sort::Name, |&column| Sort::By(column));
        if sort == self.sort() {
            self.columns.is_reversed = !self.columns.is_reversed;
            self.arrange();
        } else {
            self.sort_by(sort)
        }
    }

    fn sort_by(&mut self, sort: Sort) {
        self.columns.sort = sort;
        self.columns.is_reversed = false;
        self.arrange();
    }

    /// Moves the cursor to a row, or to the last one if there is no such row.
    pub(crate) fn go_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
    }

    fn toggle(&mut self) {
        let Some(node) = self.selected() else { return };
        if self.tree.is_open(node) {
            self.tree.close(node);
        } else if !self.tree.open(node) {
            self.tree.fold_or_unfold(node);
        }
        self.arrange();
    }

    fn expand(&mut self) {
        let Some(node) = self.selected() else { return };
        if !self.tree.open(node) {
            self.tree.unfold(node, true);
        }
        self.arrange();
    }

    fn collapse(&mut self) {
        let Some(node) = self.selected() else { return };
        if self.tree.is_unfolded(node) {
            self.tree.unfold(node, false);
            self.arrange();
        } else if self.tree.is_open(node) {
            self.tree.close(node);
            self.arrange();
        } else if let Some(parent) = self.tree.parent(node) {
            let row = self.rows.iter().position(|row| row.key.node == parent);
            self.go_to(row.unwrap_or(self.cursor));
        }
    }

    fn next_shape(&mut self) {
        let of_processes = self.tree.is_of_processes();
        let has_threads = of_processes || self.profile().is_some_and(|p| !p.threads.is_empty());
        let all = Shape::ALL;
        let now = all.iter().position(|&shape| shape == self.tree.shape());
        let mut next = all[now.map_or(0, |now| (now + 1) % all.len())];
        if next == Shape::Threads && !has_threads {
            next = Shape::Callers;
            self.say(Ok(
                "callers; threads and processes need --per-thread or --per-process".to_owned(),
            ));
        } else {
            self.say(Ok(next.name(of_processes).to_owned()));
        }
        self.tree.set_shape(next);
        self.compared = None;
        (self.cursor, self.top) = (0, 0);
        self.rows.clear();
        self.arrange();
    }

    fn next_metric(&mut self) {
        if self.metrics.len() < 2 {
            self.say(Ok(format!(
                "{} is the only metric",
                off_cpu::heading(self.metric().0)
            )));
            return;
        }
        self.timer = (self.metric_place().unwrap_or(0) + 1) % self.metrics.len();
        self.arrange();
    }

    /// Moves to the next or previous line that matches the search, among all lines that could be
    /// shown. Continues from the other end. Shows a message if nothing matches.
    pub(super) fn seek(&mut self, is_forward: bool) {
        let Some(sought) = self.sought.clone() else {
            self.say(Ok("no name is searched for: / does".to_owned()));
            return;
        };
        let mut all = self.tree.in_order(|a, b| self.compare(a, b));
        if !is_forward {
            all.reverse();
        }
        let selected = self.selected();
        let here = all.iter().position(|&node| Some(node) == selected);
        let start = here.map_or(0, |here| here + 1);
        let (before, after) = all.split_at(start.min(all.len()));
        let has = |node: &&NodeId| self.tree.has(**node, &sought);
        let (found, is_around) = match after.iter().find(has) {
            Some(&node) => (Some(node), false),
            None => (before.iter().find(has).copied(), true),
        };
        let Some(node) = found else {
            self.say(Err(format!("{} is not found", typed(&sought))));
            return;
        };
        self.tree.reveal(node);
        self.arrange();
        let is_it = |row: &&Row| row.key.node == node;
        let first = self.rows.iter().position(|row| is_it(&row));
        let named = |row: &Row| {
            let line = self.tree.line(row.key);
            line.is_some_and(|line| sought.is_match(&line.name))
        };
        let best = self.rows.iter().position(|row| is_it(&row) && named(row));
        self.go_to(best.or(first).unwrap_or(self.cursor));
        if is_around {
            self.say(Ok("continued from the other end".to_owned()));
        }
    }

    /// The action that adds the function of the selected call site. `None`, with a message, if the
    /// row is no call site or the function has no name.
    fn add_caller(&mut self) -> Option<Action> {
        let key = self.selected_row()?.key;
        let site = *self.tree.sites(key.node).get(key.site)?;
        let site = self.tree.site(site);
        if site.is_alone {
            self.say(Err(
                "this line is not a call site: go to a caller".to_owned()
            ));
            return None;
        }
        match site.pattern.clone() {
            Some(pattern) => {
                self.say(Ok(format!("adding {pattern} ...")));
                self.has_changed = true;
                Some(Action::Add(pattern))
            }
            None => {
                self.say(Err(
                    "this function cannot be added: it has no name".to_owned()
                ));
                None
            }
        }
    }

    /// The action that copies the path of the selected row, from the function to the root, one call
    /// per line. `None` if no row is selected.
    fn copy(&mut self) -> Option<Action> {
        let row = *self.selected_row()?;
        let mut text = String::new();
        for site in self.tree.sites_to(row.key.node) {
            for line in self.tree.site(site).lines.iter() {
                let inlined = if line.inlined { " (inlined)" } else { "" };
                text.push_str(&format!("{}{inlined}  {}\n", line.name, line.place));
            }
        }
        let lines = text.lines().count();
        self.say(Ok(format!(
            "{lines} lines copied, if the terminal has a clipboard"
        )));
        Some(Action::Copy(text))
    }
}
