//! Draws the state on a screen.

mod bars;
mod detail;
mod inside;
mod lists;
mod style;
mod table;

use std::borrow::Cow;

use super::State;
use super::key::{BINDINGS, Command};
use super::line::EditLine;
use super::state::Mode;
use ipath_base::printable::is_active;
use ipath_profile::report::{human, loss_lines};
use ipath_profile::{Profile, off_cpu, printable};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use style::ERROR;
pub(super) use style::{BOLD, DIM, SELECTED, WARN, fit};
use style::{fit_line, fit_path};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Draws the whole screen.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let screen = frame.area();
    let layout = state.layout();
    let mut y = screen.y;
    let mut take = |height: u16| {
        // The terminal may have shrunk since the state was last told its size.
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

    match state.profile() {
        Some(profile) => header(state, profile, frame, head),
        None => frame.render_widget("ipath: waiting for the first sample", head),
    }
    let whole = table_head.union(rows).union(detail);
    match &state.mode {
        Mode::Help(top) => lists::help(*top, frame, whole),
        Mode::Add(finder) => lists::finder(state, finder, frame, whole),
        Mode::Columns(at) => lists::columns(state, *at, frame, whole),
        Mode::Inside(panel) => inside::draw(state, *panel, frame, whole),
        _ => {
            table::draw(state, frame, table_head, rows);
            detail::draw(state, frame, detail);
        }
    }
    bottom(state, frame, status);
    disarm(frame.buffer_mut());
}

/// Replaces unescaped control characters, so that they cannot affect the terminal.
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
    // Items that require action come first, because there is not always room for all.
    let mut first = vec![Span::styled("ipath", BOLD)];
    if let Some(stands) = &state.stands {
        first.push(Span::styled(format!("  {}", printable(stands)), WARN));
    }
    if state.paused {
        first.push(Span::styled("  display paused", WARN));
    }
    let time = human::time(session.elapsed_ns.into());
    let which = match profile.processes.len() {
        0 | 1 => format!("pid {}", target.pid),
        n => format!("{n} processes"),
    };
    let mut after = vec![Span::raw(format!(" ({which})  {time}"))];
    let span = state.tree.span();
    if span != super::tree::Span::Total {
        let lasted = human::time(state.tree.lasted().into());
        after.push(Span::styled(format!("  {}: {lasted}", span.name()), BOLD));
    }
    let taken: usize = first.iter().chain(&after).map(Span::width).sum();
    let (program, _) = ipath_profile::program(&target.exe, &target.args);
    let room = usize::from(area.width).saturating_sub(taken + 2);
    first.push(Span::raw(format!(
        "  {}",
        fit_path(&printable(&program), room)
    )));
    first.append(&mut after);
    let metrics: Vec<_> = profile
        .metrics
        .iter()
        .map(|m| printable(off_cpu::heading(&m.name)))
        .collect();
    let mut second = Vec::new();
    let losses = loss_lines(profile);
    if !losses.is_empty() {
        let losses = format!("not exact: {}  ", losses.join(", "));
        second.push(Span::styled(losses, WARN));
    }
    second.push(Span::raw(metrics.join(", ")));
    if let Some(longest) = session.stops.iter().max_by_key(|stop| stop.ns) {
        let time = human::time(longest.ns.into());
        second.push(Span::raw(format!(
            "  longest stop {time} ({})",
            printable(&longest.why)
        )));
    }
    if let Some(share) = session.overhead_share() {
        second.push(Span::raw(format!("  measuring {share}")));
    }
    let mut lines = vec![Line::from(first), Line::from(second)];
    let filters = state.tree.filters();
    if !filters.is_empty() {
        let filters: Vec<String> = filters.iter().map(|f| state.tree.describe(f)).collect();
        let text = format!("only {}", filters.join(", "));
        lines.push(Line::styled(printable(&text).into_owned(), BOLD));
    }
    let heavy = profile.heavy();
    let notes = profile.said();
    let heavy = heavy.map(|why| Cow::Owned(format!("measuring is expensive: {why}")));
    let notes = heavy.into_iter().chain(notes);
    let notes: Vec<_> = notes.map(|note| printable(&note).into_owned()).collect();
    lines.push(Line::styled(notes.join("; "), WARN));
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(fit_line(line, area.width.into()), row);
    }
}

fn bottom(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let name = |site| state.tree.site(site).lines[0].name.clone();
    match &state.mode {
        Mode::Add(finder) => prompt("add functions: ", &finder.line, frame, area),
        Mode::Search(line) => prompt("find: ", line, frame, area),
        Mode::Filter(line) => prompt("show only: ", line, frame, area),
        Mode::Write(line) => prompt("write the profile to: ", line, frame, area),
        Mode::Change(site, line) => {
            // The edited text keeps two thirds of the line.
            let name = fit(&name(*site), usize::from(area.width / 3));
            prompt(&format!("metrics of {name}: "), line, frame, area);
        }
        Mode::Confirm(site) => {
            let text = format!("remove {}? (y/n)", name(*site));
            frame.render_widget(Line::styled(text, BOLD), area);
        }
        Mode::AddCallees(callees) => {
            let names: Vec<_> = callees.names.iter().map(|name| printable(name)).collect();
            let (before, after) = match names.len() {
                1 => ("add ".to_owned(), "? (y/n)"),
                n => (format!("add {n} functions: "), "? (y/n)"),
            };
            let room = usize::from(area.width).saturating_sub(before.width() + after.width());
            let text = format!("{before}{}{after}", fit(&names.join(", "), room));
            frame.render_widget(Line::styled(text, BOLD), area);
        }
        Mode::Help(_) => frame.render_widget(Line::styled("any other key goes back", DIM), area),
        Mode::Columns(_) => {
            let text = "Space shows or hides  Left Right move it  a automatic  Enter goes back";
            frame.render_widget(Line::styled(text, DIM), area);
        }
        Mode::Inside(panel) if state.message.is_none() => {
            let text = inside::hints(state, *panel);
            frame.render_widget(fit_line(Line::styled(text, DIM), area.width.into()), area);
        }
        Mode::Browse | Mode::Inside(..) => match &state.message {
            Some(message) => {
                let style = if message.is_error { ERROR } else { BOLD };
                let line = Line::styled(message.text.as_str(), style);
                frame.render_widget(fit_line(line, area.width.into()), area);
            }
            None => frame.render_widget(hints(state, area.width.into()), area),
        },
    }
}

/// Draws a prompt and the text being edited.
fn prompt(prompt: &str, line: &EditLine, frame: &mut Frame<'_>, area: Rect) {
    let before = line.before_cursor();
    // The text scrolls to the left if the cursor would leave the screen.
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

/// The number of bytes of `text` to hide so that the rest fits into `room` columns.
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

fn hints(state: &State, room: usize) -> Line<'static> {
    // The most important keys come first, because there is not always room for all.
    use Command::{Add, Filter, Help, NextView, Quit, Search, Sort, Span as Time, Toggle};
    const FIRST: [Command; 9] = [
        Help, Quit, Toggle, NextView, Time, Sort, Add, Search, Filter,
    ];
    let place = |command| {
        FIRST
            .iter()
            .position(|&c| c == command)
            .unwrap_or(FIRST.len())
    };
    let mut bindings: Vec<_> = BINDINGS.iter().filter(|b| !b.hint.is_empty()).collect();
    bindings.sort_by_key(|b| place(b.command));
    let mut spans: Vec<Span<'_>> = Vec::new();
    let mut taken = 0;
    for binding in bindings {
        let Some(key) = binding.keys.first() else {
            continue;
        };
        let now = match binding.command {
            Command::Sort => format!(": {}", state.sort_name()),
            Command::Metric => format!(": {}", off_cpu::heading(state.metric().0)),
            Command::NextView => format!(
                ": {}",
                state.tree.shape().name(state.tree.is_of_processes())
            ),
            Command::Span => format!(": {}", state.tree.span().name()),
            _ => String::new(),
        };
        let hint = [
            Span::styled(key.to_string(), BOLD),
            Span::styled(format!(" {}{now}", binding.hint), DIM),
        ];
        taken += hint.iter().map(Span::width).sum::<usize>();
        if taken > room {
            break;
        }
        spans.extend(hint);
        spans.push(Span::raw("  "));
        taken += 2;
    }
    Line::from(spans)
}
