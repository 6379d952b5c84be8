//! The rows: columns of numbers, then names as a tree.

use super::style::{BOLD, DIM, SELECTED, WARN, heat};
use crate::State;
use crate::change::Change;
use crate::column::{Column, Sort};
use crate::tree::{self, Marker, NodeId, Row, RowKey};
use ipath_profile::display_name::{self, Chain, Link};
use ipath_profile::folding::{self, Item};
use ipath_profile::report::{self, human};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

/// Draws the titles of the columns, and the rows from `state.top` on.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>, head: Rect, body: Rect) {
    let columns = state.columns_in(head.width.max(body.width).into());
    let mut titles: Vec<Span<'_>> = columns
        .iter()
        .map(|&column| {
            let is_sorted = state.sort() == Sort::By(column);
            let style = if is_sorted { BOLD.underlined() } else { BOLD };
            let title = column.title(state);
            let gap = " ".repeat(column.width(state).saturating_sub(title.width()));
            [Span::raw(gap), Span::styled(title, style)]
        })
        .collect::<Vec<_>>()
        .concat();
    if state.change_width() > 0 {
        let title = format!("{:>width$}", "CHANGE", width = state.change_width());
        titles.push(Span::styled(title, BOLD));
    }
    let style = match state.sort() {
        Sort::Name => BOLD.underlined(),
        Sort::By(_) => BOLD,
    };
    titles.extend([
        Span::raw("  "),
        Span::styled(
            state.tree.shape().title(state.tree.is_of_processes()),
            style,
        ),
    ]);
    frame.render_widget(Line::from(titles), head);

    if state.rows.is_empty() && state.profile().is_some() {
        let is_idle = state.profile().is_some_and(|p| !p.functions.is_empty());
        let text = match state.tree.filters().is_empty() {
            true if is_idle => "  no calls yet",
            true => "  no function is instrumented",
            false => "  nothing is left; Backspace removes the last filter",
        };
        frame.render_widget(Line::styled(text, DIM), body);
    }
    let visible = state.rows.iter().enumerate().skip(state.top);
    // From the bottom up, because distributions of lower rows are part of those above.
    let height = usize::from(body.height);
    if let Some(metric) = state.metric_place()
        && columns.iter().any(|column| column.is_percentile())
    {
        let last = state.rows.len().min(state.top + height);
        for row in state.rows[state.top.min(last)..last].iter().rev() {
            if !row.is_repeated {
                state.tree.distribution(row.key.node, metric);
            }
        }
    }
    let shown: Vec<(usize, &Row)> = visible.take(height).collect();
    let width = usize::from(body.width);
    let own = shown.iter().filter(|(_, row)| !row.is_repeated);
    let nodes: Vec<NodeId> = own.map(|(_, row)| row.key.node).collect();
    let changes = state.changes(&nodes);
    let change = |row: &Row| {
        let place = nodes.iter().position(|&node| node == row.key.node);
        place
            .and_then(|place| changes.get(place))
            .filter(|_| !row.is_repeated)
    };
    let begun: Vec<Begun> = shown
        .iter()
        .map(|(_, row)| begin(state, row, (&columns, change(row)), width))
        .collect();
    let chains: Vec<Chain> = begun.iter().map(|row| row.chain.clone()).collect();
    let names = display_name::fit_chains(&chains, state.tree.shape().arrow());
    let lines = begun.into_iter().zip(names).zip(&shown);
    for (((begun, name), &(i, row)), area) in lines.zip(body.rows()) {
        frame.render_widget(finish(state, row, begun, name), area);
        if i == state.cursor {
            frame.buffer_mut().set_style(area, SELECTED);
        }
    }
}

/// A row without its names.
struct Begun {
    spans: Vec<Span<'static>>,
    /// The names of the row. Their room includes the text after them.
    chain: Chain,
    /// The place of the first name, for the end of the row. `None` if it is not known.
    place: Option<String>,
    style: Style,
}

fn begin(
    state: &State,
    row: &Row,
    (columns, change): (&[Column], Option<&Change>),
    width: usize,
) -> Begun {
    let node = row.key.node;
    let share = Column::OfFunction.value(state, node);
    let is_top = row.indent == 0;
    let style = match (is_top, row.is_repeated) {
        (true, _) => BOLD,
        (false, true) => Style::new(),
        (false, false) => heat(share.unwrap_or(0.0)),
    };
    let mut spans = Vec::new();
    let mut numbers = 0;
    for &column in columns {
        let cell = if row.is_repeated {
            String::new()
        } else {
            column.cell(state, node)
        };
        let gap = " ".repeat(column.width(state).saturating_sub(cell.width()));
        numbers += gap.width() + cell.width();
        let style = match column {
            Column::Bar => heat(share.unwrap_or(0.0)),
            Column::OfFunction | Column::Total => style,
            _ => Style::new(),
        };
        spans.push(Span::raw(gap));
        spans.push(Span::styled(cell, style));
    }
    if state.change_width() > 0 {
        let has_metric = state.metric_place().is_some();
        let cell = change.map_or_else(String::new, |change| change.cell(has_metric));
        let is_significant = cell.ends_with('*');
        let cell = format!("{cell:>width$}", width = state.change_width());
        numbers += cell.width();
        let style = if is_significant { WARN } else { Style::new() };
        spans.push(Span::styled(cell, style));
    }
    let marker = match row.marker {
        Marker::Closed => "▸ ",
        Marker::Open => "▾ ",
        Marker::None => "  ",
    };
    let room = width.saturating_sub(numbers + 2);
    let tree = rails(row, room / 3);
    let room = room.saturating_sub(tree.width() + marker.width());
    spans.push(Span::raw("  "));
    spans.push(Span::styled(tree, DIM));
    spans.push(Span::raw(marker));

    let (links, place) = text(state, row);
    Begun {
        spans,
        chain: Chain { links, room },
        place,
        style,
    }
}

fn finish(state: &State, row: &Row, begun: Begun, name: String) -> Line<'static> {
    let node = row.key.node;
    let is_top = row.indent == 0;
    let Begun {
        mut spans,
        chain: Chain { room, .. },
        place,
        style,
    } = begun;
    let is_found = state.sought.as_ref().is_some_and(|sought| {
        let all = state.tree.sites(node).iter();
        let mut lines = all.flat_map(|&site| state.tree.site(site).lines.iter());
        if row.is_whole {
            lines.any(|line| sought.is_match(&line.name))
        } else {
            state
                .tree
                .line(row.key)
                .is_some_and(|l| sought.is_match(&l.name))
        }
    });
    let style = if is_found { style.underlined() } else { style };
    let mut left = room.saturating_sub(name.width() + 2);
    spans.push(Span::styled(name, style));
    let counted = state.tree.counted(node);
    let incomplete = if is_top {
        human::incomplete(counted.incomplete, counted.calls)
    } else {
        None
    };
    let removed = is_top.then(|| removed(state, node)).flatten();
    let edges = is_top.then(|| edges(state, node)).flatten();
    for remark in [removed, edges, incomplete, place].into_iter().flatten() {
        if remark.width() <= left {
            left = left.saturating_sub(remark.width() + 2);
            spans.push(Span::styled(format!("  {remark}"), DIM));
        }
    }
    Line::from(spans)
}

/// A remark for a function whose edges were counted. `None` for other rows.
fn edges(state: &State, node: NodeId) -> Option<String> {
    let site = state.tree.function_at(node)?;
    let index = state.tree.function_index(site)?;
    let counted = state.profile()?.functions.get(index)?;
    state.counts_inside(site).filter(|_| !counted.timed_paths)?;
    Some(if state.has_only_edges(node) {
        "only edges counted".to_owned()
    } else {
        "edges counted".to_owned()
    })
}

/// A remark for a function that is no longer measured, or not in full. `None` for other rows.
fn removed(state: &State, node: NodeId) -> Option<String> {
    let site = state.tree.function_at(node)?;
    let index = state.tree.function_index(site)?;
    let function = state.profile()?.functions.get(index)?;
    let throttled = function.throttled.map(report::state);
    throttled.or_else(|| function.is_removed.then(|| "removed".to_owned()))
}

/// The tree lines before a row, in at most `room` columns. If the branch is too deep, only the
/// innermost part is shown.
fn rails(row: &Row, room: usize) -> String {
    let Some(levels) = row.indent.checked_sub(1) else {
        return String::new();
    };
    let mut text: Vec<&str> = (0..levels)
        .map(|level| {
            if level < 64 && row.rails >> level & 1 == 1 {
                "│ "
            } else {
                "  "
            }
        })
        .collect();
    text.push(
        match (
            row.is_last,
            row.key.site + row.key.level > 0 && !row.is_whole,
        ) {
            (_, true) => "  ",
            (true, _) => "└─",
            (false, _) => "├─",
        },
    );
    let hidden = text.len().saturating_sub(room / 2);
    text[hidden..].concat()
}

/// The names of a row, and the place of the first name.
fn text(state: &State, row: &Row) -> (Vec<Link>, Option<String>) {
    let tree = &state.tree;
    let link = |line: &tree::Line| Link {
        name: line.name.clone(),
        mark: if line.inlined { " (inlined)" } else { "" }.to_owned(),
        // Compilers give inlined lambdas no other name.
        is_fold: !line.is_own || line.name == "operator()",
    };
    if !row.is_whole {
        let Some(line) = tree.line(row.key) else {
            return Default::default();
        };
        return (vec![link(line)], Some(line.place.clone()));
    }
    let lines = tree.lines_of(row.key.node);
    let at = |&(site, level): &(usize, usize)| {
        let key = RowKey {
            site,
            level,
            ..row.key
        };
        tree.line(key)
    };
    let lines: Vec<_> = lines.iter().filter_map(at).collect();
    let items = folding::fold(lines.iter().map(|line| line.fold));
    let links = items.into_iter().filter_map(|item| match item {
        Item::Frame(index) => Some(link(lines[index])),
        Item::Runtime(text) => Some(Link::fold(text)),
        // The function into which they are inlined is on the same row.
        Item::Wrappers(_) => None,
    });
    // The first call of a chain is the most informative.
    let place = lines.first().map(|line| line.place.clone());
    (links.collect(), place)
}
