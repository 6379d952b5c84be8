//! The state as characters on a screen.

mod bars;
mod style;
mod table;

use super::State;
use super::key::{self, BINDINGS, Command};
use super::line::EditLine;
use super::state::Mode;
use crate::printable::is_active;
use crate::profile::{self, Profile, printable};
use crate::report::{human, loss_lines};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use style::ERROR;
pub(super) use style::{BOLD, DIM, WARN, fit};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Draws the whole screen.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let screen = frame.area();
    let layout = state.layout();
    let mut y = screen.y;
    let mut take = |height: u16| {
        // The terminal may have become smaller since the state heard of its size.
        let area = Rect {
            y,
            height,
            ..screen
        }
        .intersection(screen);
        y = y.saturating_add(height);
        area
    };
    let (head, table_head, rows) = (
        take(layout.header),
        take(layout.table_head),
        take(layout.rows),
    );
    let (detail, status) = (take(layout.detail), take(layout.status));

    match &state.profile {
        Some(profile) => header(state, profile, frame, head),
        None => frame.render_widget("ipath: waiting for the first sample", head),
    }
    if state.mode == Mode::Help {
        help(frame, table_head.union(rows).union(detail));
    } else {
        table::draw(state, frame, table_head, rows);
        selected(state, frame, detail);
    }
    bottom(state, frame, status);
    disarm(frame.buffer_mut());
}

/// Whatever came onto the screen unescaped does nothing to the terminal.
pub(super) fn disarm(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().contains(is_active) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

fn header(state: &State, profile: &Profile, frame: &mut Frame<'_>, area: Rect) {
    let Profile {
        target, session, ..
    } = profile;
    let (program, _) = profile::program(&target.exe, &target.args);
    let mut first = vec![
        Span::styled("ipath", BOLD),
        Span::raw(format!(
            "  {} (pid {})  {}",
            printable(&program),
            target.pid,
            human::time(session.elapsed_ns.into())
        )),
    ];
    if state.paused {
        first.push(Span::styled("  display held", WARN));
    }
    let metrics: Vec<_> = profile.metrics.iter().map(|m| printable(&m.name)).collect();
    let mut second = vec![Span::raw(metrics.join(", "))];
    if let Some(longest) = session.stops.iter().max_by_key(|stop| stop.ns) {
        let time = human::time(longest.ns.into());
        second.push(Span::raw(format!(
            "  longest stop {time} ({})",
            printable(&longest.why)
        )));
    }
    if let Some(overhead) = &session.overhead {
        let share = 100.0 * overhead.share;
        second.push(Span::raw(format!("  measuring {share:.1} % of the run")));
    }
    let losses = loss_lines(profile);
    if !losses.is_empty() {
        second.push(Span::styled(
            format!("  not exact: {}", losses.join(", ")),
            WARN,
        ));
    }
    let notes: Vec<_> = session.notes.iter().map(|note| printable(note)).collect();
    let lines = [
        Line::from(first),
        Line::from(second),
        Line::styled(notes.join("; "), WARN),
    ];
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

/// The whole name of the selected row, which may not fit into its line, and where there is room how its values
/// are distributed.
fn selected(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let Some(node) = state.selected() else { return };
    let node = state.tree.node(node);
    let text = match node.label.inlined {
        true => format!("{} (inlined)  {}", node.label.name, node.label.place),
        false => format!("{}  {}", node.label.name, node.label.place),
    };
    let room = usize::from(area.width).saturating_sub(text.width());
    let bars = bars::of(&node.now.values, state.metric().1);
    let bars = bars.filter(|bars| bars.width() <= room);
    let gap = room.saturating_sub(bars.as_ref().map_or(0, |bars| bars.width()));
    let line = format!("{text}{}{}", " ".repeat(gap), bars.unwrap_or_default());
    frame.render_widget(Line::styled(line, DIM), area);
}

fn bottom(state: &State, frame: &mut Frame<'_>, area: Rect) {
    match &state.mode {
        Mode::Add(line) => prompt("add functions: ", line, frame, area),
        Mode::Change(node, line) => {
            let name = &state.tree.node(*node).label.name;
            // What is typed keeps two thirds of the line.
            let name = fit(name, usize::from(area.width / 3));
            prompt(&format!("metrics of {name}: "), line, frame, area);
        }
        Mode::Confirm(node) => {
            let name = &state.tree.node(*node).label.name;
            frame.render_widget(Line::styled(format!("remove {name}? (y/n)"), BOLD), area);
        }
        Mode::Help => frame.render_widget(Line::styled("any key goes back", DIM), area),
        Mode::Browse => match &state.message {
            Some(message) => {
                let style = if message.is_error { ERROR } else { BOLD };
                frame.render_widget(Line::styled(message.text.as_str(), style), area);
            }
            None => frame.render_widget(hints(state), area),
        },
    }
}

/// What is asked for, and what has been typed.
fn prompt(prompt: &str, line: &EditLine, frame: &mut Frame<'_>, area: Rect) {
    let before = line.before_cursor();
    // The text moves to the left once the cursor would leave the screen.
    let room = usize::from(area.width).saturating_sub(prompt.width() + 1);
    let hidden = hidden(&before, room);
    let text = line.text();
    let shown = Line::from(vec![Span::styled(prompt, BOLD), Span::raw(&text[hidden..])]);
    frame.render_widget(shown, area);
    let column = (prompt.width() + before[hidden..].width()) as u16;
    if !area.is_empty() && column < area.width {
        frame.set_cursor_position(Position::new(area.x + column, area.y));
    }
}

/// How many bytes of `text` must be hidden so that the rest fits into `room` columns.
fn hidden(text: &str, room: usize) -> usize {
    let mut width = text.width();
    let mut bytes = 0;
    for c in text.chars() {
        if width <= room {
            break;
        }
        width -= c.width().unwrap_or(0);
        bytes += c.len_utf8();
    }
    bytes
}

fn hints(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for binding in BINDINGS.iter().filter(|b| !b.hint.is_empty()) {
        let Some(key) = binding.keys.first() else {
            continue;
        };
        let now = match binding.command {
            Command::Sort => format!(": {}", state.sort().name()),
            Command::Metric => format!(": {}", state.metric().0),
            _ => String::new(),
        };
        spans.push(Span::styled(key.to_string(), BOLD));
        spans.push(Span::styled(format!(" {}{now}  ", binding.hint), DIM));
    }
    Line::from(spans)
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let mut lines = vec![Line::default()];
    lines.extend(key::help().map(|(keys, does)| {
        Line::from(vec![
            Span::styled(format!("  {keys:<18}"), BOLD),
            Span::raw(does),
        ])
    }));
    lines.push(Line::default());
    lines.extend(
        [
            "Below each function stand its callers, below these theirs, and so on to the root.",
            "SHARE: of a function, its part of the time that passed (all threads together, so it",
            "can exceed 100 %); of a caller, its part of the function's total. P50 and P99 are",
            "percentiles. The line below the table shows how the selected line's values are",
            "distributed: a bar for each power of two.",
        ]
        .map(|text| Line::from(format!("  {text}"))),
    );
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}
