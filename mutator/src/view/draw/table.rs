//! The functions and their callers: columns of numbers, then the names as a tree.

use super::style::{BOLD, DIM, fit};
use crate::report::human;
use crate::view::State;
use crate::view::tree::{Marker, NodeId, Row, Sort};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Calls,
    Rate,
    Total,
    Mean,
    P50,
    P99,
    Ipc,
    Share,
}

/// The width of a column with the gap before it.
const WIDTH: usize = 9;
/// Names get at least as much room before a column is given up for them, and more before there are percentiles.
const NAMES: usize = 24;
const NAMES_BESIDE_ALL: usize = 36;

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Calls => "CALLS",
            Self::Rate => "CALLS/S",
            Self::Total => "TOTAL",
            Self::Mean => "MEAN",
            Self::P50 => "P50",
            Self::P99 => "P99",
            Self::Ipc => "IPC",
            Self::Share => "SHARE",
        }
    }

    fn is_sorted_by(self, sort: Sort) -> bool {
        matches!(
            (self, sort),
            (Self::Calls, Sort::Calls)
                | (Self::Rate, Sort::Rate)
                | (Self::Total, Sort::Total)
                | (Self::Mean, Sort::Mean)
                | (Self::P99, Sort::P99)
        )
    }
}

pub(super) fn draw(state: &State, frame: &mut Frame<'_>, head: Rect, body: Rect) {
    let columns = columns(state, head.width.max(body.width).into());
    let mut titles: Vec<Span<'_>> = columns
        .iter()
        .map(|column| {
            let style = if column.is_sorted_by(state.sort()) {
                BOLD.underlined()
            } else {
                BOLD
            };
            let title = column.title();
            let gap = " ".repeat(WIDTH - title.width());
            [Span::raw(gap), Span::styled(title, style)]
        })
        .collect::<Vec<_>>()
        .concat();
    let style = if state.sort() == Sort::Name {
        BOLD.underlined()
    } else {
        BOLD
    };
    titles.extend([
        Span::raw("  "),
        Span::styled("FUNCTION", style),
        Span::styled(" AND CALLERS", BOLD),
    ]);
    frame.render_widget(Line::from(titles), head);

    if state.rows.is_empty() && state.profile.is_some() {
        frame.render_widget(Line::styled("  no function is instrumented", DIM), body);
    }
    let visible = state.rows.iter().enumerate().skip(state.top);
    for ((i, row), area) in visible.zip(body.rows()) {
        frame.render_widget(line(state, row, &columns, area.width.into()), area);
        if i == state.cursor {
            frame
                .buffer_mut()
                .set_style(area, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// The columns there is room for; the least needed are given up first.
fn columns(state: &State, width: usize) -> Vec<Column> {
    let mut columns = vec![
        Column::Calls,
        Column::Rate,
        Column::Total,
        Column::Mean,
        Column::P50,
        Column::P99,
        Column::Ipc,
        Column::Share,
    ];
    if !state.is_timed() {
        columns.retain(|c| matches!(c, Column::Calls | Column::Rate | Column::Share));
    }
    if !state.has_per_cycle() {
        columns.retain(|c| *c != Column::Ipc);
    }
    for (least, names) in [
        (Column::P50, NAMES_BESIDE_ALL),
        (Column::P99, NAMES_BESIDE_ALL),
        (Column::Rate, NAMES),
        (Column::Ipc, NAMES),
        (Column::Mean, NAMES),
        (Column::Share, NAMES),
        (Column::Calls, NAMES),
        (Column::Total, NAMES),
    ] {
        if columns.len() * WIDTH + names > width {
            columns.retain(|c| *c != least);
        }
    }
    columns
}

fn line(state: &State, row: &Row, columns: &[Column], width: usize) -> Line<'static> {
    let node = state.tree.node(row.node);
    let mut numbers = String::new();
    for &column in columns {
        let cell = cell(state, row.node, column);
        numbers.push_str(&" ".repeat(WIDTH.saturating_sub(cell.width())));
        numbers.push_str(&cell);
    }
    let marker = match row.marker {
        Marker::Closed => "▸ ",
        Marker::Open => "▾ ",
        Marker::None => "  ",
    };
    // A branch too deep for the screen goes on at its middle: its names matter more.
    let room = width.saturating_sub(numbers.width() + 2);
    let indent = "  ".repeat(row.indent.min(room / 4));
    let room = room.saturating_sub(indent.width() + marker.width());

    let inlined = if node.label.inlined { " (inlined)" } else { "" };
    let name = fit(&format!("{}{inlined}", node.label.name), room);
    let mut left = room.saturating_sub(name.width() + 2);
    let style = if node.parent.is_none() {
        BOLD
    } else {
        Style::new()
    };
    let mut spans = vec![
        Span::raw(numbers),
        Span::raw(format!("  {indent}{marker}")),
        Span::styled(name, style),
    ];
    let incomplete = match node.parent {
        None => human::incomplete(node.now.incomplete, node.now.calls),
        Some(_) => None,
    };
    let place = Some(node.label.place.clone());
    for remark in [incomplete, place].into_iter().flatten() {
        if remark.width() <= left {
            left = left.saturating_sub(remark.width() + 2);
            spans.push(Span::styled(format!("  {remark}"), DIM));
        }
    }
    Line::from(spans)
}

fn cell(state: &State, id: NodeId, column: Column) -> String {
    let node = state.tree.node(id);
    let values = &node.now.values;
    let (_, unit) = state.metric();
    let quantile = |per_mille| {
        let value = values.quantile(per_mille);
        value.map_or_else(|| "-".to_owned(), |value| quantity(value, unit))
    };
    match column {
        Column::Calls => human::number(node.now.calls as f64),
        Column::Rate => node.rate.map_or_else(|| "-".to_owned(), human::number),
        Column::Total if values.count() == 0 => "-".to_owned(),
        Column::Total => quantity(values.sum(), unit),
        Column::Mean => match values.mean() {
            Some(mean) => fitting(human::average(Some(mean), unit), mean),
            None => "-".to_owned(),
        },
        Column::P50 => quantile(500),
        Column::P99 => quantile(990),
        Column::Ipc => {
            let ratio = node.now.per_cycle.ratio();
            ratio.map_or_else(|| "-".to_owned(), human::ratio)
        }
        Column::Share => share(state, id),
    }
}

fn quantity(value: i128, unit: &str) -> String {
    fitting(human::quantity(value, unit), value as f64)
}

/// All digits of a value where the column has room for them.
fn fitting(text: String, value: f64) -> String {
    match text.width() < WIDTH {
        true => text,
        false => human::number(value),
    }
}

fn share(state: &State, id: NodeId) -> String {
    let now = &state.tree.node(id).now;
    let function = state.tree.function_of(id);
    let whole = &state.tree.node(function).now;
    let Some(metric) = state.shown() else {
        let whole = match function == id {
            true => state.tree.all_calls(),
            false => whole.calls,
        };
        return human::share(now.calls.into(), whole.into());
    };
    if function != id {
        // Parts of a sum whose terms cancel out say nothing.
        return match whole.values.has_negative() {
            true => String::new(),
            false => human::share(now.values.sum(), whole.values.sum()),
        };
    }
    // There is no whole of cycles or of an argument that a function could have a share of.
    let run = state.profile.as_ref().and_then(|p| p.run_of(metric));
    run.map_or_else(String::new, |run| human::share(now.outermost, run.into()))
}
