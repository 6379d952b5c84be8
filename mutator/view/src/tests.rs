//! Tests of the view without a terminal: the effects of keys, and frames as text.
//!
//! Frames are compared with `view/goldens/NAME.txt`. `UPDATE_GOLDENS=1 cargo test` rewrites them.

mod choosing;
mod frames;
mod inside;
mod inside_paths;
mod keys;
mod shown;
mod watching;

use super::draw::draw;
use super::tree::{NodeId, Row, RowKey};
use super::{Action, Event, Key, State};
use ipath_profile::sample::{largest, sample};
use ipath_profile::{Changed, Profile, TimerStats};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

/// A state that shows `profile` in a terminal of 80 columns and 24 lines.
fn showing(profile: Profile) -> State {
    let mut state = State::default();
    give(&mut state, profile);
    state
}

fn give(state: &mut State, profile: Profile) {
    state.sample(&profile, &Changed::All);
}

fn press(state: &mut State, keys: &[Key]) -> Option<Action> {
    keys.iter().fold(None, |before, &key| {
        assert_eq!(before, None, "an action came before the last key");
        state.update(Event::Key(key))
    })
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// The screen as text; `>` marks the selected line.
fn screen(state: &mut State, width: u16, height: u16) -> String {
    state.update(Event::Resize { width, height });
    state.find_names();
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let cells: Vec<_> = (0..width).filter_map(|x| buffer.cell((x, y))).collect();
        let is_selected = cells
            .iter()
            .any(|c| c.modifier.contains(Modifier::REVERSED));
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.push_str(if is_selected { "> " } else { "| " });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The names of the visible rows, with their indentation.
fn names(state: &State) -> Vec<String> {
    let name = |row: &Row| {
        let lines = if row.is_whole {
            state.tree.lines_of(row.key.node)
        } else {
            vec![(row.key.site, row.key.level)]
        };
        let line = |&(site, level): &(usize, usize)| {
            let line = state.tree.line(RowKey {
                site,
                level,
                ..row.key
            });
            line.unwrap().name.clone()
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        format!(
            "{}{}",
            "  ".repeat(row.indent),
            lines.join(state.tree.shape().arrow())
        )
    };
    state.rows.iter().map(name).collect()
}

/// The node of the first visible row with this name.
fn node(state: &State, name: &str) -> NodeId {
    let place = names(state).iter().position(|shown| shown.trim() == name);
    state.rows[place.unwrap()].key.node
}

/// `profile` a second later, after `calls` further calls of 1 ms each on its path `path`.
fn later(profile: &Profile, path: usize, calls: u64) -> Profile {
    let mut profile = profile.clone();
    profile.session.elapsed_ns += 1_000_000_000;
    let entry = &mut profile.paths[path];
    entry.metrics.count += calls;
    let totals = &mut profile.functions[entry.function].totals.counts;
    totals.count += calls;
    for counts in [&mut entry.metrics, totals] {
        let mut wall = counts.timers.get("wall").unwrap().clone();
        let more = i128::from(calls) * 1_000_000;
        wall.sum += more;
        wall.hist.push((19, calls));
        wall.hist.sort();
        wall.outermost = wall.outermost.map(|n| n + more);
        wall.exclusive = wall.exclusive.map(|n| n + more);
        counts.timers.insert("wall", wall);
    }
    profile
}

/// The sample with a second timer that reverses the order of the functions.
fn two_timers() -> Profile {
    let mut profile = sample();
    profile.metrics.push(ipath_profile::Metric {
        name: "cycles".into(),
        unit: "cycles".into(),
        since_ns: None,
    });
    let cycles = |function: usize, n: u64| {
        let (each, bucket) = if function == 0 { (5_000, 12) } else { (30, 4) };
        TimerStats {
            sum: i128::from(n) * i128::from(each),
            min: each,
            max: each,
            hist: vec![(bucket, n)],
            ..TimerStats::default()
        }
    };
    for (i, function) in profile.functions.iter_mut().enumerate() {
        let counts = &mut function.totals.counts;
        counts.timers.insert("cycles", cycles(i, counts.count));
    }
    for path in &mut profile.paths {
        path.metrics
            .timers
            .insert("cycles", cycles(path.function, path.metrics.count));
    }
    profile
}
