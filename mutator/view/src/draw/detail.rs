//! Details of the selected row: its whole name, numbers, distribution, comparisons, and the source
//! code around the call.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::bars;
use super::style::{BOLD, DIM};
use crate::State;
use crate::change::{Side, difference};
use crate::column::Column;
use crate::tree::{self, NodeId};
use ipath_profile::display_name;
use ipath_profile::report::{self, human, wrapped};
use ipath_profile::{Function, Profile, printable};

/// Draws the details of the selected row. Draws nothing if no row is selected.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let Some(row) = state.selected_row() else {
        return;
    };
    let mut lines = if state.is_detailed() {
        whole_title(state, row.key, area.width.into())
    } else {
        vec![title(state, row.key, area.width.into())]
    };
    lines.extend(since_mark(state));
    if state.is_detailed() && area.height > 1 {
        let figures = figures(state, row.key.node);
        lines.extend(
            wrapped(figures.split("  "), "  ", area.width.into())
                .into_iter()
                .map(Line::raw),
        );
        lines.extend(processes(state, row.key));
        lines.extend(slowest(state, row.key));
        lines.extend(comparison(state, row.key.node));
        lines.extend(scopes(state, row.key, area.width.into()));
        let room = usize::from(area.height).saturating_sub(lines.len());
        lines.extend(source(state, row.key, room));
    }
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

/// The whole name on as many lines as it needs, with the definition of a function, then the
/// distribution of the values.
fn whole_title(state: &State, key: tree::RowKey, width: usize) -> Vec<Line<'static>> {
    let line = state.tree.line(key);
    let definition = definition(state, key);
    let text = line.map_or_else(String::new, |line| {
        let mark = if line.inlined { " (inlined)" } else { "" };
        let at = definition.as_ref().map(|at| format!(" {at}"));
        format!(
            "{}{mark}  {}{}",
            line.name,
            line.place,
            at.unwrap_or_default()
        )
    });
    let metric = state.metric_place();
    let values = metric.map(|metric| state.tree.distribution(key.node, metric));
    let bars = values.and_then(|values| bars::of(&values, state.metric().1));
    let bars = bars.filter(|bars| bars.width() <= width);
    let is_short = text.width() + bars.as_ref().map_or(0, |bars| bars.width()) <= width;
    if is_short && definition.is_none() {
        return vec![title(state, key, width)];
    }
    let name = wrapped(text.split(' '), " ", width).into_iter();
    let name = name.map(|text| Line::styled(text, DIM));
    let bars = bars.map(|bars| Line::raw(bars.trim_start().to_owned()));
    name.chain(bars).collect()
}

/// The file and line of a function's definition. `None` if they are not known, or the row is not of
/// a measured function.
fn definition(state: &State, key: tree::RowKey) -> Option<String> {
    let site = *state.tree.sites(key.node).get(key.site)?;
    let line = state
        .tree
        .line(key)
        .filter(|_| state.tree.site(site).is_function)?;
    let (file, number) = line.source.as_ref()?;
    Some(format!("{}:{number}", printable(file)))
}

/// The whole name, which may not fit into its row, and the distribution of the values if there is
/// room.
fn title(state: &State, key: tree::RowKey, width: usize) -> Line<'static> {
    let line = state.tree.line(key);
    let text = line.map_or_else(String::new, |line| {
        let mark = if line.inlined { " (inlined)" } else { "" };
        let after = format!("{mark}  {}", line.place);
        // The place gets at most half of the line, because the function's name is more important.
        let room = width.saturating_sub(after.width()).max(width / 2);
        format!("{}{after}", display_name::fit(&line.name, room))
    });
    let room = width.saturating_sub(text.width());
    let metric = state.metric_place();
    let values = metric.map(|metric| state.tree.distribution(key.node, metric));
    let bars = values.and_then(|values| bars::of(&values, state.metric().1));
    let bars = bars.filter(|bars| bars.width() <= room);
    let gap = room.saturating_sub(bars.as_ref().map_or(0, |bars| bars.width()));
    let line = format!("{text}{}{}", " ".repeat(gap), bars.unwrap_or_default());
    Line::styled(line, DIM)
}

/// The selected row before and after the mark, and the differences. Empty unless the span shown is
/// the time since the mark.
fn since_mark(state: &State) -> Vec<Line<'static>> {
    let Some(change) = state.selected_change() else {
        return Vec::new();
    };
    let unit = state.metric().1;
    let has_metric = state.metric_place().is_some();
    let side = |name: &str, side: &Side| {
        let mut cells = vec![format!("{name} {}", human::time(side.ns.into()))];
        cells.push(human::number(side.rate()));
        if has_metric {
            cells.push(human::average(side.values.mean(), unit));
            let p99 = side.values.quantile(990);
            cells.push(p99.map_or("-".to_owned(), |value| human::quantity(value, unit)));
        }
        cells
    };
    let differs = |pair: Option<(f64, f64)>, is_significant: bool| {
        let text = pair.and_then(|(before, after)| difference(before, after));
        let mark = if is_significant { "*" } else { "" };
        text.map_or("-".to_owned(), |text| text + mark)
    };
    let rates = (change.before.rate(), change.after.rate());
    let mut last = vec!["difference".to_owned()];
    last.push(differs(Some(rates), change.is_rate_significant));
    if has_metric {
        last.push(differs(change.means(), change.is_mean_significant));
        let p99 = change.before.p99().zip(change.after.p99());
        last.push(differs(p99, false));
    }
    let names = ["", "calls/s", "mean", "p99"];
    let line = |cells: Vec<String>| {
        let cells = cells.iter().zip(names).map(|(cell, name)| match name {
            "" => format!("{cell:<18}"),
            name => format!("{name} {cell:<11}"),
        });
        cells.collect::<Vec<String>>().join("  ")
    };
    let mut lines = vec![
        line(side("before", &change.before)),
        line(side("after", &change.after)),
        line(last),
    ];
    if change.is_mean_significant || change.is_rate_significant {
        lines[2].push_str("  * significant");
    }
    let lines = lines.into_iter();
    lines
        .map(|text| Line::raw(text.trim_end().to_owned()))
        .collect()
}

/// All numbers of the shown metric in one line.
fn figures(state: &State, node: NodeId) -> String {
    let (_, unit) = state.metric();
    let of = |column: Column, name: &str| {
        let cell = column.cell(state, node);
        (!matches!(cell.trim(), "" | "-")).then(|| format!("{name} {}", cell.trim()))
    };
    let mut parts = vec![of(Column::Calls, "calls"), of(Column::Rate, "calls/s")];
    if let Some(metric) = state.metric_place() {
        let values = state.tree.distribution(node, metric);
        let deviation = values
            .deviation()
            .map(|d| format!("± {}", human::average(Some(d), unit)));
        parts.extend([
            of(Column::Total, "total"),
            of(Column::Own, "self"),
            of(Column::Mean, "mean"),
            deviation,
            of(Column::Min, "min"),
            of(Column::P50, "p50"),
            of(Column::P90, "p90"),
            of(Column::P99, "p99"),
            of(Column::P999, "p99.9"),
            of(Column::Max, "max"),
        ]);
    }
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

/// The measured function of a row, and the profile. `None` if the row is not of one.
fn function(state: &State, key: tree::RowKey) -> Option<(&Profile, &Function)> {
    let site = *state.tree.sites(key.node).get(key.site)?;
    let profile = state.profile()?;
    let function = profile.functions.get(state.tree.function_index(site)?)?;
    Some((profile, function))
}

/// The slowest calls of a function in the whole session, if they are kept. Empty if the row is not
/// of a measured function.
fn slowest(state: &State, key: tree::RowKey) -> Vec<Line<'static>> {
    /// The most calls to show.
    const MOST: usize = 5;
    let Some((profile, function)) = function(state, key) else {
        return Vec::new();
    };
    let calls = function.slowest.iter().take(MOST);
    let lines = calls.flat_map(|call| {
        let lines = profile.call_lines(call, &format!("thread {}", call.thread));
        lines.into_iter().enumerate()
    });
    let text = |(number, line): (usize, String)| {
        let start = if number == 0 { "slow: " } else { "      " };
        Line::raw(format!("{start}{}", printable(&line)))
    };
    lines.map(text).collect()
}

/// The spread of a function over the processes, if there are several, and the costliest processes.
/// Both cover the whole session, whichever span is shown. Empty if the row is not of a measured
/// function.
fn processes(state: &State, key: tree::RowKey) -> Vec<Line<'static>> {
    let Some((profile, function)) = function(state, key) else {
        return Vec::new();
    };
    let metric = state.metric();
    let spread = report::spread(profile, metric, function.spread.as_deref());
    let costliest = report::costliest_processes(profile, metric, function);
    let lines = spread.into_iter().chain(costliest);
    let lines = lines.map(|line| match state.tree.span() {
        tree::Span::Total => line,
        _ => format!("{}: {line}", tree::Span::Total.name()),
    });
    lines.map(Line::raw).collect()
}

/// The comparison of the selected row with the marked one. `None` if no row is marked.
fn comparison(state: &State, node: NodeId) -> Option<Line<'static>> {
    let key = state.compared?;
    if key.node == node {
        return Some(Line::styled("other lines are compared with this one", DIM));
    }
    let name = state.tree.line(key).map_or("", |line| line.name.as_str());
    let mut parts = Vec::new();
    for (column, what) in [
        (Column::Calls, "calls"),
        (Column::Total, "total"),
        (Column::Mean, "mean"),
        (Column::P50, "p50"),
        (Column::P99, "p99"),
    ] {
        let value = |node| column.value(state, node).filter(|&value| value > 0.0);
        if let (Some(here), Some(there)) = (value(node), value(key.node)) {
            parts.push(format!("{what} {:.2} times", here / there));
        }
    }
    Some(Line::from(vec![
        Span::styled(format!("against {name}: "), BOLD),
        Span::raw(parts.join("  ")),
    ]))
}

/// The loops and inlined scopes around the call, from the innermost outwards. Empty if there are
/// none.
fn scopes(state: &State, key: tree::RowKey, width: usize) -> Vec<Line<'static>> {
    let Some(&site) = state.tree.sites(key.node).get(key.site) else {
        return Vec::new();
    };
    let lines = &state.tree.site(site).lines;
    let is_inlined = lines.len() > 1;
    if !is_inlined && lines.iter().all(|line| line.loops.is_empty()) {
        return Vec::new();
    }
    let scopes = lines.iter().flat_map(|line| {
        let own = format!("{} {}", line.name, line.place);
        line.loops.iter().cloned().chain([own])
    });
    let scopes: Vec<String> = scopes.collect();
    let what = if is_inlined { "inlined:" } else { "call in" };
    let text = format!("{what} {}", scopes.join(" in "));
    let lines = wrapped(text.split(' '), " ", width).into_iter();
    lines.map(|text| Line::styled(text, DIM)).collect()
}

/// The source lines around the call, or from the function's definition on, at most `room` lines. If
/// the file cannot be read, a line that says so. Empty if the position is not known.
fn source(state: &State, key: tree::RowKey, room: usize) -> Vec<Line<'static>> {
    let position = state.selected_line().and_then(|line| line.source.clone());
    let Some((file, number)) = position else {
        return Vec::new();
    };
    let text = state.source.as_ref().filter(|source| source.file == file);
    let Some(text) = text.and_then(|source| source.lines.as_ref()) else {
        let name = printable(&file).into_owned();
        return vec![Line::styled(
            format!("{name}:{number} cannot be read here"),
            DIM,
        )];
    };
    let at = number.saturating_sub(1) as usize;
    // The return type may be on the line before the name.
    let before = match definition(state, key) {
        Some(_) => 1,
        None => room / 2,
    };
    let first = at
        .saturating_sub(before)
        .min(text.len().saturating_sub(room));
    let lines = text.iter().enumerate().skip(first).take(room);
    lines
        .map(|(n, text)| {
            let text = format!("{:>6}  {text}", n + 1);
            Line::styled(text, if n == at { BOLD } else { DIM })
        })
        .collect()
}
