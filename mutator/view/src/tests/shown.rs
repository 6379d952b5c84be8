//! Tests of the displayed paths: shapes, filters, columns and spans.

use super::*;
use crate::column::Column;
use crate::tree::{ROOT, Shape};
use ipath_profile::PathEntry;

/// The calls since the previous sample, and since the mark.
#[test]
fn t_goes_from_the_total_to_the_interval_and_to_the_mark() {
    let mut state = showing(sample());
    let work = |state: &State| {
        let node = node(state, "work");
        let total = state.total(node);
        (state.tree.counted(node).calls, total.values, total.sum())
    };
    assert_eq!(work(&state), (1004, 1001, 1_300_008_000));
    press(&mut state, &[Key::Char('b')]);
    assert_eq!(work(&state), (0, 0, 0));
    let first = later(&sample(), 1, 30);
    state.sample(&first, &Changed::Paths(vec![1]));
    let second = later(&first, 0, 7);
    state.sample(&second, &Changed::Paths(vec![0]));
    assert_eq!(work(&state), (37, 37, 37_000_000));
    assert_eq!(state.tree.lasted(), 2_000_000_000);
    let ends = state.total(node(&state, "work")).ends();
    assert_eq!(ends, None, "of an interval the extremes are not known");
    press(&mut state, &[Key::Char('t')]);
    assert_eq!(work(&state).0, 1041);
    press(&mut state, &[Key::Char('t')]);
    let third = later(&second, 2, 3);
    state.sample(&third, &Changed::Paths(vec![2]));
    assert_eq!(work(&state), (3, 3, 3_000_000));
    state.sample(&later(&third, 0, 5), &Changed::Paths(vec![0]));
    assert_eq!(work(&state), (5, 5, 5_000_000));
    // If all indexes change, the numbers move with their paths.
    press(&mut state, &[Key::Char('t')]);
    let mut moved = later(&third, 0, 5);
    moved.paths.reverse();
    give(&mut state, moved);
    assert_eq!(work(&state), (45, 45, 45_000_000));
}

#[test]
fn s_goes_through_all_columns_and_sorts_by_them() {
    let mut state = showing(sample());
    state.update(Event::Resize {
        width: 136,
        height: 24,
    });
    give(&mut state, later(&sample(), 0, 9));
    press(&mut state, &[Key::Char('-')]);
    let mut seen = Vec::new();
    loop {
        let first = names(&state)[0].clone();
        let now = (state.sort_name(), first);
        if seen.first() == Some(&now) {
            break;
        }
        seen.push(now);
        press(&mut state, &[Key::Char('s')]);
    }
    let seen: Vec<_> = seen.iter().map(|(s, f)| (s.as_str(), f.as_str())).collect();
    let load = "Store::load(int)";
    assert_eq!(
        seen,
        [
            ("wall total", load),
            ("wall mean", load),
            ("wall p50", load),
            ("wall p99", load),
            ("of run", load),
            ("of func", "work"),
            ("name", load),
            ("calls", "work"),
            ("calls/s", "work"),
        ]
    );
}

#[test]
fn r_turns_the_order_round() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('-'), Key::Char('r')]);
    assert_eq!(names(&state), ["work", "Store::load(int)"]);
}

#[test]
fn without_a_timer_totals_and_means_are_passed_over() {
    let mut profile = sample();
    profile.metrics.truncate(1);
    let mut state = showing(profile);
    let mut seen = vec![state.sort_name()];
    for _ in 0..4 {
        press(&mut state, &[Key::Char('s')]);
        seen.push(state.sort_name());
    }
    assert_eq!(seen, ["calls", "calls/s", "of func", "name", "calls"]);
}

#[test]
fn columns_are_chosen_moved_and_left_to_the_view_again() {
    let mut state = showing(sample());
    let titles = |state: &State| {
        let columns = state.columns_in(80).into_iter();
        let titles: Vec<String> = columns.map(|c| c.title(state)).collect();
        titles.join(" ")
    };
    assert_eq!(titles(&state), "CALLS CALLS/S WALL TOTAL WALL MEAN OF FUNC");
    // The first column is removed, and the last one of the list is added.
    press(&mut state, &[Key::Char('C'), Key::Char(' ')]);
    assert_eq!(titles(&state), "CALLS/S WALL TOTAL WALL MEAN OF FUNC");
    press(
        &mut state,
        &[Key::Home, Key::Esc, Key::Char('C'), Key::Down, Key::Left],
    );
    assert_eq!(titles(&state), "WALL TOTAL CALLS/S WALL MEAN OF FUNC");
    press(&mut state, &[Key::Right]);
    assert_eq!(titles(&state), "CALLS/S WALL TOTAL WALL MEAN OF FUNC");
    press(&mut state, &[Key::Char('a'), Key::Enter]);
    assert_eq!(titles(&state), "CALLS CALLS/S WALL TOTAL WALL MEAN OF FUNC");
}

#[test]
fn the_same_paths_are_shown_in_four_ways() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('v'), Key::Char('+')]);
    assert_eq!(
        names(&state),
        [
            "__libc_start_main > main > helper",
            "  Store::load(int)",
            "  Store::load(int)",
            "    work",
            "  work",
            "[callers unknown] > app+0x1400",
            "  work",
        ]
    );
    // A row above several functions does not stand for one function.
    assert_eq!(press(&mut state, &[Key::Home, Key::Char('d')]), None);
    assert!(
        state
            .message
            .as_ref()
            .unwrap()
            .text
            .contains("several functions")
    );
    press(&mut state, &[Key::Char('v')]);
    assert_eq!(
        names(&state),
        [
            "Store::load(int) < helper < main < __libc_start_main",
            "work < Store::load(int) < helper < main < __libc_start_main",
            "work < helper < main < __libc_start_main",
            "work < app+0x1400 < [callers unknown]",
        ]
    );
    give(&mut state, later(&sample(), 0, 5_000));
    assert_eq!(names(&state)[0], "work < helper < main < __libc_start_main");
    // If threads are not kept apart, the cycle starts again.
    press(&mut state, &[Key::Char('v')]);
    assert_eq!(state.tree.shape().name(false), "callers");
    assert!(
        state
            .message
            .as_ref()
            .unwrap()
            .text
            .contains("--per-thread")
    );
}

/// If the paths of processes are kept apart, there is a view by process, and each can be shown
/// separately.
#[test]
fn processes_have_a_view() {
    use ipath_profile::merge::{Merger, PathsOf};
    let mut merger = Merger::new(PathsOf::Each);
    for pid in [11, 12] {
        let mut profile = sample();
        profile.target.pid = pid;
        merger.add(&profile).unwrap();
    }
    let mut state = showing(merger.finish().unwrap());
    // The parts of processes cover the whole session, and are labeled so beside other spans.
    let told = |state: &mut State| {
        let screen = screen(state, 120, 40);
        let told = screen
            .lines()
            .find(|line| line.contains("called in 2 of 2"));
        told.expect("of processes").to_owned()
    };
    assert!(!told(&mut state).contains("total: "));
    press(&mut state, &[Key::Char('t')]);
    assert!(told(&mut state).contains("total: called in 2"));
    press(&mut state, &[Key::Char('t')]);
    press(&mut state, &[Key::Char('v'); 3]);
    let names = |state: &State| {
        let mut names = names(state);
        names.retain(|name| name.starts_with("pid"));
        names
    };
    assert_eq!(names(&state), ["pid 11", "pid 12"]);
    press(&mut state, &[Key::Char('f')]);
    press(&mut state, &typed("process:12"));
    press(&mut state, &[Key::Enter]);
    assert_eq!(names(&state), ["pid 12"]);
    let shown = &state.tree.filters()[0];
    assert_eq!(state.tree.describe(shown), "process 12");
}

#[test]
fn filters_lie_upon_each_other_and_are_taken_away_one_by_one() {
    let mut state = showing(sample());
    let filter = |state: &mut State, text: &str| {
        press(state, &[Key::Char('f')]);
        press(state, &typed(text));
        press(state, &[Key::Enter]);
    };
    filter(&mut state, "store::");
    assert_eq!(
        names(&state),
        [
            "Store::load(int)",
            "  helper < main < __libc_start_main",
            "work",
            "  Store::load(int) < helper < main < __libc_start_main",
        ]
    );
    assert_eq!(state.tree.counted(node(&state, "work")).calls, 100);
    filter(&mut state, "module:nosuch");
    assert!(state.rows.is_empty());
    press(&mut state, &[Key::Backspace]);
    assert_eq!(names(&state).len(), 4);
    press(&mut state, &[Key::Backspace]);
    filter(&mut state, "share: 10 %");
    assert_eq!(
        names(&state)[2..],
        [
            "work",
            "  Store::load(int) < helper < main < __libc_start_main"
        ]
    );
    press(&mut state, &[Key::Backspace, Key::Backspace]);
    assert_eq!(names(&state).len(), 6);
    assert_eq!(
        state.message.as_ref().unwrap().text,
        "nothing is filtered out"
    );
    filter(&mut state, "share:101%");
    assert!(state.message.as_ref().unwrap().is_error);
    // A text that is not a valid expression is taken literally.
    filter(&mut state, "load(");
    assert_eq!(names(&state).len(), 4);
}

#[test]
fn z_shows_nothing_but_what_is_below() {
    let mut state = showing(sample());
    press(&mut state, &[Key::End, Key::Up, Key::Char('z')]);
    assert_eq!(
        names(&state),
        ["work", "  helper < main < __libc_start_main"]
    );
    assert_eq!(state.tree.counted(node(&state, "work")).calls, 900);
    // The filter applies to later paths and to other shapes.
    give(&mut state, later(&sample(), 0, 5));
    assert_eq!(state.tree.counted(node(&state, "work")).calls, 905);
    press(&mut state, &[Key::Char('v')]);
    assert_eq!(names(&state)[0], "__libc_start_main > main > helper");
    press(&mut state, &[Key::Backspace]);
    assert_eq!(names(&state).len(), 5);
}

#[test]
fn a_search_opens_what_it_finds_and_goes_round() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('-'), Key::Char('/')]);
    press(&mut state, &typed("MAIN"));
    press(&mut state, &[Key::Enter]);
    assert!(
        state.message.as_ref().unwrap().is_error,
        "capitals mean themselves"
    );
    press(&mut state, &[Key::Char('/')]);
    press(&mut state, &typed("main"));
    press(&mut state, &[Key::Enter]);
    assert_eq!(state.cursor, 1);
    assert_eq!(names(&state)[1], "  helper < main < __libc_start_main");
    press(&mut state, &[Key::Char('n')]);
    assert_eq!(
        names(&state)[state.cursor],
        "  Store::load(int) < helper < main < __libc_start_main"
    );
    press(&mut state, &[Key::Char('n'), Key::Char('n')]);
    assert_eq!((state.cursor, state.message.is_some()), (1, true));
    press(&mut state, &[Key::Char('N')]);
    assert_eq!(state.cursor, 4);
    press(&mut state, &[Key::Esc, Key::Char('n')]);
    assert!(
        state
            .message
            .as_ref()
            .unwrap()
            .text
            .contains("no name is searched for")
    );
}

/// A long path of the program does not hide that the program is stopped.
#[test]
fn what_is_to_be_acted_on_is_shown_first() {
    let mut profile = sample();
    profile.target.exe = "/srv/build/of/a/project/with/long/names/solve".into();
    profile.target.args.clear();
    profile.losses.missed = 3;
    let mut state = showing(profile);
    state.stand(Some("stopped by a signal".into()));
    for width in [30, 60, 80] {
        let text = screen(&mut state, width, 24);
        let lines: Vec<_> = text.lines().take(2).collect();
        assert!(lines[0].contains("stopped by a signal"), "{text}");
        assert!(lines[1].contains("not exact: "), "{text}");
        assert!(width < 60 || lines[0].contains("/solve (pid "), "{text}");
    }
}

/// A function that was just added is in the table before its first call, and only there.
#[test]
fn functions_are_shown_before_their_first_call() {
    let whole = sample();
    let mut profile = whole.clone();
    profile.paths.retain(|path| path.function != 0);
    let mut state = showing(profile.clone());
    assert_eq!(state.rows.len(), whole.functions.len() + 1);
    let idle = &whole.functions[0].name;
    let row = names(&state).into_iter().find(|name| name == idle);
    assert!(row.is_some(), "{:?}", names(&state));
    assert_eq!(state.tree.counted(node(&state, idle)).calls, 0);
    let text = screen(&mut state, 80, 24);
    assert!(
        text.lines()
            .any(|line| line.contains(" 0 ") && line.contains(idle)),
        "{text}"
    );
    profile.paths.clear();
    give(&mut state, profile.clone());
    press(&mut state, &[Key::Char('v')]);
    let text = screen(&mut state, 80, 24);
    assert!(text.contains("no calls yet"), "{text}");
    profile.functions.clear();
    give(&mut state, profile);
    let text = screen(&mut state, 80, 24);
    assert!(text.contains("no function is instrumented"), "{text}");
    // Through the shapes: from the root, flat, callers.
    press(&mut state, &typed("vv"));
    give(&mut state, whole.clone());
    assert_eq!(names(&state), names(&showing(whole)));
}

/// Losses are those of the latest sample, whichever paths have changed.
#[test]
fn losses_are_brought_up_to_date() {
    let mut profile = sample();
    let mut state = showing(profile.clone());
    profile.functions[0].tail = 77;
    profile.functions[0].totals.counts.count += 1000;
    state.sample(&profile, &Changed::Paths(vec![0]));
    let head = state.profile().unwrap();
    assert_eq!((head.tail_calls(), head.calls()), (77, profile.calls()));
    // A total that lacks the time of tail-called functions is marked.
    let work = node(&state, "work");
    assert!(!Column::Total.cell(&state, work).starts_with('≥'));
    profile.paths[0].tail = 77;
    state.sample(&profile, &Changed::Paths(vec![0]));
    for column in [Column::Total, Column::Mean, Column::Own] {
        let cell = column.cell(&state, work);
        assert!(cell.starts_with('≥'), "{column:?}: {cell}");
    }
}

/// The ranks of a job are added up, and each function shows its spread.
#[test]
fn several_processes_are_told_apart_below_a_function() {
    let mut merger = ipath_profile::merge::Merger::default();
    for rank in 0..2 {
        let mut profile = sample();
        profile.target.pid += rank;
        let labels = &mut profile.target.labels;
        labels.insert("rank".to_owned(), rank.to_string());
        merger.add(&profile).unwrap();
    }
    let mut state = showing(merger.finish().unwrap());
    press(&mut state, &[Key::Char('D')]);
    let shown = screen(&mut state, 120, 20);
    assert!(shown.contains("(2 processes)"), "{shown}");
    assert!(shown.contains("in 2 of 2 processes: min"), "{shown}");
    assert!(shown.contains("rank 0"), "{shown}");
}

/// The time of a nested measured call is part of the outer call's time. Their common caller has it
/// only once.
#[test]
fn callers_have_what_is_nested_in_them_once() {
    const NESTED: i128 = 500_000;
    let mut profile = sample();
    let wall = |path: &PathEntry| path.metrics.timers.get("wall").unwrap().clone();
    let whole: i128 = profile.paths.iter().map(|path| wall(path).sum).sum();
    let mut enclosing = wall(&profile.paths[0]);
    enclosing.exclusive = Some(enclosing.sum - NESTED);
    let timers = &mut profile.paths[0].metrics.timers;
    timers.insert("wall", enclosing.clone());
    let mut state = showing(profile);
    let all = |state: &State| state.total(ROOT).sum();
    assert_eq!(all(&state), whole - NESTED);
    while state.tree.shape() != Shape::FromRoot {
        press(&mut state, &[Key::Char('v')]);
    }
    assert_eq!(all(&state), whole - NESTED);
    let has_all = |row: &Row| state.total(row.key.node).sum() == enclosing.sum;
    assert!(state.rows.iter().any(has_all), "the call itself has it all");
}

/// Calls of `work` take about 1.3 ms before the mark, and 1 ms after it.
#[test]
fn rows_show_what_was_before_and_after_the_mark() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('b')]);
    let mut last = sample();
    for _ in 0..3 {
        last = later(&last, 0, 400);
        state.sample(&last, &Changed::Paths(vec![0]));
    }
    let nodes = state.nodes_on_screen();
    let changes = state.changes(&nodes);
    let place = nodes.iter().position(|&at| at == node(&state, "work"));
    let change = &changes[place.expect("a row")];
    assert_eq!((change.before.calls, change.after.calls), (1004, 1200));
    assert_eq!(change.before.ns, 5_000_000_000);
    assert_eq!(change.after.ns, 3_000_000_000);
    let (before, after) = change.means().expect("means");
    assert!((before - 1_298_709.0).abs() < 1.0 && (after - 1e6).abs() < 1.0);
    assert!(change.is_rate_significant, "200 calls a second, then 400");
    let is_at_work =
        |state: &State| state.selected_row().map(|row| row.key.node) == Some(node(state, "work"));
    press(&mut state, &[Key::Home]);
    while !is_at_work(&state) {
        press(&mut state, &[Key::Down]);
    }
    let text = screen(&mut state, 120, 24);
    for part in [
        "CHANGE",
        "before 5.00 s",
        "after 3.00 s",
        "calls/s +99 %*",
        "-23 %",
        "significant",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    press(&mut state, &[Key::Char('t')]);
    assert!(!screen(&mut state, 120, 24).contains("CHANGE"));
}

#[test]
fn callers_beyond_the_limit_of_paths_say_so_on_screen() {
    let mut profile = sample();
    let path = &mut profile.paths[0];
    (path.stack, path.complete) = (Vec::new(), false);
    let text = screen(&mut showing(profile), 200, 24);
    assert!(
        text.contains("--max-paths reached; see --collapse-recursion]"),
        "{text}"
    );
}

/// With `--collapse-recursion`, the calls of one path run within each other.
#[test]
fn shares_of_a_recursion_are_those_of_its_outermost_calls() {
    let mut profile = sample();
    let only = |profile: &mut Profile, path: usize, sum: i128, outermost: i128, own: i128| {
        let stats = profile.paths[path].metrics.timers.stats_mut();
        stats.for_each(|stats| {
            (stats.sum, stats.outermost, stats.exclusive) = (sum, Some(outermost), Some(own));
        });
    };
    let of_all = |profile: &Profile| {
        let mut state = showing(profile.clone());
        press(&mut state, &[Key::Char('v'), Key::Char('v')]);
        let text = screen(&mut state, 140, 24);
        let title = text.lines().find(|line| line.contains("OF ALL")).unwrap();
        let end = title.find("OF ALL").unwrap() + "OF ALL".len();
        let rows = text.lines().filter(|line| line.contains(" < "));
        let cells = rows.map(|row| row[..end].rsplit("  ").next().unwrap().trim().to_owned());
        cells.collect::<Vec<_>>()
    };
    for path in 0..profile.paths.len() {
        only(&mut profile, path, 0, 0, 0);
    }
    // 100 ms in all. The calls of the first path last 1 s together, the outermost ones 60 ms.
    only(&mut profile, 0, 1_000_000_000, 60_000_000, 40_000_000);
    only(&mut profile, 1, 60_000_000, 60_000_000, 60_000_000);
    let cells = of_all(&profile);
    assert!(
        cells.iter().filter(|cell| *cell == "60.0 %").count() == 2,
        "{cells:?}"
    );
    assert!(
        !cells.iter().any(|cell| cell.len() > "60.0 %".len()),
        "{cells:?}"
    );
    // The outermost calls are on another path.
    only(&mut profile, 0, 1_000_000_000, 0, 40_000_000);
    let cells = of_all(&profile);
    assert!(cells.iter().any(|cell| cell == "-"), "{cells:?}");
}
