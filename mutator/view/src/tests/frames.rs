//! Tests of whole screens as text.

use super::*;
use crate::names::Names;
use crate::state::Source;
use crate::tree::ROOT;
use ipath_profile::{Callee, Metric, Overhead, SingleCall, Thread};
use std::path::Path;

pub(super) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/goldens/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "differs from {}", path.display());
}

#[test]
fn waiting_for_the_first_sample_is_shown() {
    golden("waiting", &screen(&mut State::default(), 60, 6));
}

#[test]
fn two_functions_are_listed_by_their_total_time() {
    let mut state = showing(sample());
    give(&mut state, later(&sample(), 1, 40));
    press(&mut state, &[Key::Down]);
    golden("two-functions", &screen(&mut state, 100, 18));
}

#[test]
fn losses_and_notes_and_a_held_display() {
    let mut profile = two_timers();
    profile.losses.missed = 3;
    profile.session.notes = vec!["cycles: reference cycles (TSC)".to_owned()];
    let mut state = showing(profile);
    press(
        &mut state,
        &[Key::Char('m'), Key::Char('p'), Key::Char('s')],
    );
    golden("losses", &screen(&mut state, 100, 18));
}

/// Instructions per cycle are shown with either of the two metrics.
#[test]
fn instructions_per_cycle() {
    let mut profile = two_timers();
    profile.metrics.push(Metric {
        name: "instructions".to_owned(),
        unit: "events".to_owned(),
        since_ns: None,
    });
    for path in &mut profile.paths {
        let timers = &mut path.metrics.timers;
        let cycles = timers.get("cycles").unwrap().clone();
        let each = 1 + path.function as i128;
        let instructions = TimerStats {
            sum: cycles.sum * each * 5 / 4,
            ..cycles
        };
        timers.insert("instructions", instructions);
    }
    let mut state = showing(profile);
    let wall = screen(&mut state, 120, 8);
    assert!(!wall.contains("IPC"), "{wall}");
    press(&mut state, &[Key::Char('m')]);
    golden("per-cycle", &screen(&mut state, 120, 14));
}

/// The sample of two threads, with a signed value as its second metric.
fn values_of_threads() -> Profile {
    let mut profile = sample();
    profile.metrics.push(Metric {
        name: "ret".to_owned(),
        unit: String::new(),
        since_ns: None,
    });
    for (i, path) in profile.paths.iter_mut().enumerate() {
        path.thread = Some(4242 + i as u32 % 2);
        let n = path
            .metrics
            .timers
            .get("wall")
            .map_or(0, TimerStats::values);
        let ret = match path.function {
            0 => TimerStats {
                sum: 900 * i128::from(n) - 930,
                min: -30,
                max: 900,
                hist: vec![(9, n - 1)],
                hist_negative: vec![(4, 1)],
                ..TimerStats::default()
            },
            _ => TimerStats {
                sum: 123_456 * i128::from(n),
                min: 123_456,
                max: 123_456,
                hist: vec![(16, n)],
                ..TimerStats::default()
            },
        };
        path.metrics.timers.insert("ret", ret);
    }
    profile.threads = vec![Thread {
        tid: 4243,
        name: "wor\nker".to_owned(),
    }];
    profile.session.overhead = Some(Overhead {
        call_ns: 24.1,
        total_ns: 60_000_000,
        share: 0.012,
        libraries_ns: 0,
        corrected: true,
        unreliable: false,
    });
    profile
}

#[test]
fn threads_and_values() {
    let mut state = showing(values_of_threads());
    press(&mut state, &[Key::Char('m'), Key::End, Key::Up]);
    golden("threads", &screen(&mut state, 110, 20));
}

#[test]
fn a_thread_keeps_its_line_and_takes_its_new_name() {
    let mut profile = values_of_threads();
    let mut state = showing(profile.clone());
    press(&mut state, &[Key::Down]);
    let before = state.selected();
    profile.threads[0].name = "reader".to_owned();
    give(&mut state, profile);
    assert_eq!(state.selected(), before);
    let shown = names(&state);
    let is_there = shown
        .iter()
        .any(|name| name.trim_start().starts_with("reader"));
    assert!(is_there, "{shown:?}");
    assert!(shown.iter().all(|name| !name.contains("nker")), "{shown:?}");
}

/// From the root, a thread is also below its paths, and a function has all of its calls.
#[test]
fn threads_are_below_the_paths_from_the_root() {
    let mut state = showing(values_of_threads());
    press(&mut state, &[Key::Char('v'), Key::Char('+')]);
    assert_eq!(
        names(&state),
        [
            "__libc_start_main > main > helper",
            "  Store::load(int)",
            "    wor\\nker",
            "  Store::load(int)",
            "    work",
            "      wor\\nker",
            "  work",
            "    thread 4242",
            "[callers unknown] > app+0x1400",
            "  work",
            "    thread 4242",
        ]
    );
    let load = node(&state, "Store::load(int)");
    assert_eq!(state.tree.counted(load).calls, 100);
}

/// The view by thread lists threads first.
#[test]
fn by_thread_lists_threads_first() {
    let mut state = showing(values_of_threads());
    press(
        &mut state,
        &[Key::Char('v'), Key::Char('v'), Key::Char('v')],
    );
    press(&mut state, &[Key::Char('+')]);
    golden("by-thread", &screen(&mut state, 110, 20));
}

/// All details of the selected row, compared with another row.
#[test]
fn all_about_a_line() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('='), Key::End, Key::Up]);
    let wanted = state.wanted_source().unwrap();
    state.source = Some(Source {
        file: wanted,
        lines: Some(
            (1..=40)
                .map(|n| format!("line {n} of the source"))
                .collect(),
        ),
    });
    golden("detail", &screen(&mut state, 110, 36));
}

/// A function's row has its definition.
#[test]
fn where_a_function_is_defined() {
    let mut profile = sample();
    for function in &mut profile.functions {
        function.file = Some("src/app.c".to_owned());
        function.line = Some(20);
    }
    let mut state = showing(profile);
    press(&mut state, &[Key::Char('D')]);
    let file = state.wanted_source().unwrap();
    assert_eq!(&*file, "src/app.c");
    let lines = (1..=40).map(|n| format!("line {n} of the source"));
    let lines = Some(lines.collect());
    state.source = Some(Source { file, lines });
    golden("definition", &screen(&mut state, 80, 36));
}

/// The details of a function have its slowest calls.
#[test]
fn slowest_calls_of_a_function() {
    let mut profile = sample();
    let call = |wall: u64| SingleCall {
        path: 0,
        process: None,
        thread: 4243,
        start_ns: 12_000_000,
        end_ns: 12_000_000 + wall,
        wall,
        nested: wall / 3,
        callees: vec![Callee {
            function: 1,
            wall: wall / 4,
            partial: false,
        }],
        cpu: Some(wall / 2),
        args: vec![Some(7), None, Some(-1)],
        ret: Some(3),
    };
    for function in &mut profile.functions {
        function.slowest = (0..7).map(|n| call(9_000_000 - n * 1_000_000)).collect();
    }
    let mut state = showing(profile);
    press(&mut state, &[Key::Char('D')]);
    golden("slowest", &screen(&mut state, 110, 36));
}

#[test]
fn from_the_root_and_filtered_since_a_mark() {
    let mut state = showing(sample());
    press(
        &mut state,
        &[Key::Char('b'), Key::Char('v'), Key::Char('+')],
    );
    give(&mut state, later(&sample(), 1, 40));
    press(&mut state, &[Key::Char('f')]);
    press(&mut state, &typed("load"));
    press(&mut state, &[Key::Enter]);
    golden("from-root", &screen(&mut state, 110, 14));
}

#[test]
fn finding_a_function_and_choosing_columns() {
    let mut names = Names::default();
    let module = names.module("app");
    for n in 0..20u64 {
        names.push(format!("Store::load_{n}(int)"), module, n);
    }
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('a')]);
    let mut text = screen(&mut state, 70, 10);
    state.give_names(names.into());
    press(&mut state, &typed("sload1"));
    press(&mut state, &[Key::Down]);
    text.push_str(&screen(&mut state, 70, 10));
    press(&mut state, &[Key::Esc, Key::Char('C'), Key::Down]);
    text.push_str(&screen(&mut state, 70, 30));
    golden("lists", &text);
}

#[test]
fn counts_alone_are_drawn_without_time_columns() {
    let mut profile = sample();
    profile.metrics.truncate(1);
    golden("counts", &screen(&mut showing(profile), 80, 16));
}

#[test]
fn help_lists_the_keys_by_section() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('?')]);
    golden("help", &screen(&mut state, 90, 29));
}

#[test]
fn typing_a_pattern_and_asking_before_removing() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('a')]);
    press(&mut state, &typed("libmpi.so*!MPI_*"));
    let mut text = screen(&mut state, 60, 8);
    press(&mut state, &[Key::Esc, Key::Char('d')]);
    text.push_str(&screen(&mut state, 60, 8));
    press(&mut state, &[Key::Esc, Key::Char('c')]);
    press(&mut state, &typed(",arg1"));
    text.push_str(&screen(&mut state, 60, 8));
    golden("questions", &text);
}

#[test]
fn a_message_and_nothing_instrumented() {
    let mut profile = sample();
    profile.functions.clear();
    profile.paths.clear();
    let mut state = showing(profile);
    state.update(Event::Answer(Err(
        "no function matches 'wrk' (did you mean work?)".to_owned(),
    )));
    golden("empty", &screen(&mut state, 60, 8));
}

#[test]
fn narrow_screens_give_up_columns_and_long_names_are_cut() {
    let mut profile = sample();
    profile.functions[0].name = "store::Box<std::vector<int> >::put(std::vector<int>)".to_owned();
    let mut state = showing(profile);
    let text: String = [64, 48, 34, 20]
        .map(|width| screen(&mut state, width, 10))
        .concat();
    golden("narrow", &text);
}

#[test]
fn no_size_of_the_terminal_is_too_small() {
    let mut profile = sample();
    profile.session.notes = vec!["note".to_owned()];
    // Wide characters are not split.
    profile.functions[0].name = "漢字漢字漢字漢字漢字".to_owned();
    for keys in [
        &[][..],
        &[Key::Char('?')],
        &[Key::Char('a'), Key::Char('漢'), Key::Char('x')],
        &[Key::Char('d')],
        &[Key::Char('C')],
        &[Key::Char('=')],
        &[Key::Char('v'), Key::Char('+')],
        &[Key::Char('o'), Key::Char('D')],
    ] {
        for width in 0..24 {
            for height in 0..12 {
                let mut state = showing(profile.clone());
                press(&mut state, &[Key::End]);
                press(&mut state, keys);
                screen(&mut state, width, height);
            }
        }
    }
}

#[test]
fn a_screen_that_has_shrunk_before_its_event_came_is_drawn() {
    let mut state = showing(sample());
    state.update(Event::Resize {
        width: 100,
        height: 50,
    });
    let mut terminal = Terminal::new(TestBackend::new(10, 3)).unwrap();
    terminal.draw(|frame| draw(&state, frame)).unwrap();
}

#[test]
fn sums_of_the_largest_numbers_stay_at_the_limit_on_screen() {
    let mut state = showing(largest());
    for row in state.rows.iter().filter(|row| row.indent == 0) {
        let total = state.total(row.key.node);
        let calls = state.tree.counted(row.key.node).calls;
        assert_eq!((calls, total.sum()), (u64::MAX, i128::MAX));
        assert_eq!(total.outermost(), i64::MAX);
    }
    assert_eq!(state.tree.counted(ROOT).calls, u64::MAX);
    give(&mut state, largest());
    let text = screen(&mut state, 100, 18);
    assert!(text.contains("100.0 %"), "{text}");
}
