//! What keys and samples do to the state.

use super::*;
use crate::view::key::BINDINGS;

#[test]
fn the_hottest_path_of_each_function_is_open_at_first() {
    let state = showing(sample());
    assert_eq!(
        names(&state),
        [
            "Store::load(int)",
            "  helper",
            "  main",
            "  __libc_start_main",
            "work",
            "  Store::load(int)",
            "  helper",
            "  main",
            "  __libc_start_main",
            "  helper",
            "  app+0x1400",
        ]
    );
}

#[test]
fn numbers_of_a_caller_are_the_sum_of_the_paths_through_it() {
    // Store::load calls work at the same call site below two different callers of its own.
    let mut profile = sample();
    let mut other = profile.paths[1].clone();
    other.stack = vec![2, 1];
    profile.paths.push(other);
    let state = showing(profile);
    let load = state
        .rows
        .iter()
        .find(|row| row.indent == 1 && state.tree.node(row.node).label.name == "Store::load(int)")
        .unwrap();
    let now = &state.tree.node(load.node).now;
    assert_eq!(
        (now.calls, now.values.count(), now.values.sum()),
        (200, 194, 2_420_000_000)
    );
    assert_eq!(
        &names(&state)[..6],
        [
            "work",
            "  Store::load(int)",
            "    __libc_start_main",
            "    helper",
            "  helper",
            "  app+0x1400"
        ]
    );
}

#[test]
fn the_cursor_moves_and_stays_in_the_table() {
    let mut state = showing(sample());
    state.update(Event::Resize {
        width: 80,
        height: 9,
    });
    let rows = usize::from(state.layout().rows);
    assert_eq!(rows, 4);
    press(&mut state, &[Key::Up, Key::Char('k')]);
    assert_eq!((state.cursor, state.top), (0, 0));
    press(
        &mut state,
        &[Key::Down, Key::Char('j'), Key::Down, Key::Down],
    );
    assert_eq!((state.cursor, state.top), (4, 1));
    press(&mut state, &[Key::PageDown]);
    assert_eq!((state.cursor, state.top), (7, 4));
    press(&mut state, &[Key::Char('G'), Key::Down]);
    assert_eq!((state.cursor, state.top), (10, 7));
    press(&mut state, &[Key::PageUp, Key::PageUp]);
    assert_eq!((state.cursor, state.top), (4, 4));
    press(&mut state, &[Key::Home]);
    assert_eq!((state.cursor, state.top), (0, 0));
}

#[test]
fn enter_hides_and_shows_a_whole_chain_of_single_callers() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Enter]);
    assert_eq!(names(&state)[..2], ["Store::load(int)", "work"]);
    press(&mut state, &[Key::Char(' ')]);
    assert_eq!(
        names(&state)[..5],
        [
            "Store::load(int)",
            "  helper",
            "  main",
            "  __libc_start_main",
            "work"
        ]
    );
}

#[test]
fn left_hides_the_callers_then_goes_back_to_the_called() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Down, Key::Down, Key::Left]);
    assert_eq!(
        names(&state)[..4],
        ["Store::load(int)", "  helper", "  main", "work"]
    );
    assert_eq!(state.cursor, 2);
    press(&mut state, &[Key::Left]);
    assert_eq!(state.cursor, 1);
    press(&mut state, &[Key::Left, Key::Left]);
    assert_eq!(state.cursor, 0);
    assert_eq!(names(&state)[..3], ["Store::load(int)", "  helper", "work"]);
    press(&mut state, &[Key::Left, Key::Left]);
    assert_eq!(names(&state)[..2], ["Store::load(int)", "work"]);
    press(&mut state, &[Key::Right]);
    assert_eq!(
        names(&state)[..5],
        [
            "Store::load(int)",
            "  helper",
            "  main",
            "  __libc_start_main",
            "work"
        ]
    );
}

#[test]
fn what_the_user_has_hidden_stays_hidden_and_the_cursor_stays_on_its_row() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Enter, Key::Down]);
    assert_eq!(names(&state)[state.cursor], "work");
    // Enough for `work` to become the costliest.
    state.update(Event::Sample(Box::new(later(&sample(), 0, 5_000))));
    let shown = names(&state);
    assert_eq!(shown[0], "work");
    assert_eq!(shown.last().unwrap(), "Store::load(int)");
    assert_eq!(state.cursor, 0);
}

#[test]
fn rates_come_from_the_last_two_samples() {
    let mut state = showing(sample());
    let rate = |state: &State, name: &str| {
        let row = state
            .rows
            .iter()
            .find(|row| state.tree.node(row.node).label.name == name)
            .unwrap();
        state.tree.node(row.node).rate
    };
    assert_eq!(rate(&state, "work"), None);
    let mut next = later(&sample(), 1, 30);
    next.session.elapsed_ns += 1_000_000_000;
    state.update(Event::Sample(Box::new(next.clone())));
    assert_eq!(rate(&state, "work"), Some(15.0));
    state.update(Event::Sample(Box::new(later(&next, 0, 7))));
    assert_eq!(rate(&state, "work"), Some(7.0));
    assert_eq!(rate(&state, "app+0x1400"), Some(0.0));
}

#[test]
fn s_goes_through_all_columns_and_sorts_by_them() {
    let mut state = showing(later(&sample(), 0, 0));
    state.update(Event::Sample(Box::new(later(
        &later(&sample(), 0, 0),
        0,
        9,
    ))));
    press(&mut state, &[Key::Enter, Key::Down, Key::Enter]);
    let mut seen = vec![(state.sort().name(), names(&state)[0].clone())];
    for _ in 0..6 {
        press(&mut state, &[Key::Char('s')]);
        seen.push((state.sort().name(), names(&state)[0].clone()));
    }
    let seen: Vec<_> = seen
        .iter()
        .map(|(sort, first)| (*sort, first.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("total", "Store::load(int)"),
            ("calls", "work"),
            ("calls/s", "work"),
            ("mean", "Store::load(int)"),
            ("p99", "Store::load(int)"),
            ("name", "Store::load(int)"),
            ("total", "Store::load(int)"),
        ]
    );
}

#[test]
fn without_a_timer_totals_and_means_are_passed_over() {
    let mut profile = sample();
    profile.metrics.truncate(1);
    let mut state = showing(profile);
    let mut seen = vec![state.sort().name()];
    for _ in 0..3 {
        press(&mut state, &[Key::Char('s')]);
        seen.push(state.sort().name());
    }
    assert_eq!(seen, ["calls", "calls/s", "name", "calls"]);
}

#[test]
fn m_goes_through_the_timers_and_says_when_there_is_one() {
    let mut state = showing(two_timers());
    assert_eq!(
        (state.metric(), names(&state)[0].as_str()),
        (("wall", "ns"), "Store::load(int)")
    );
    press(&mut state, &[Key::Char('m')]);
    assert_eq!(
        (state.metric(), names(&state)[0].as_str()),
        (("cycles", "cycles"), "work")
    );
    press(&mut state, &[Key::Char('m')]);
    assert_eq!(state.metric().0, "wall");

    let mut state = showing(sample());
    press(&mut state, &[Key::Char('m')]);
    assert_eq!(
        state.message.as_ref().unwrap().text,
        "wall is the only metric"
    );
}

#[test]
fn a_asks_for_a_pattern_and_enter_adds_it() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('a')]);
    // Keys with a meaning elsewhere are text here.
    press(&mut state, &typed(" qs*d?"));
    assert_eq!(
        press(&mut state, &[Key::Enter]),
        Some(Action::Add("qs*d?".to_owned()))
    );
    assert_eq!(state.message.as_ref().unwrap().text, "adding qs*d? ...");
    state.update(Event::Answer(
        Err("no function matches\n'qs*d?'".to_owned()),
    ));
    let message = state.message.clone().unwrap();
    assert_eq!(
        (message.text.as_str(), message.is_error),
        ("no function matches\\n'qs*d?'", true)
    );
    press(&mut state, &[Key::Down]);
    assert_eq!(state.message, None);
}

#[test]
fn nothing_is_added_when_nothing_was_typed_or_on_escape() {
    let mut state = showing(sample());
    assert_eq!(
        press(&mut state, &[Key::Char('a'), Key::Char(' '), Key::Enter]),
        None
    );
    assert_eq!(
        press(
            &mut state,
            &[Key::Char('a'), Key::Char('x'), Key::Esc, Key::Enter]
        ),
        None
    );
    assert_eq!(state.update(Event::Key(Key::Esc)), Some(Action::Quit));
}

#[test]
fn d_removes_the_function_of_the_selected_row_only_after_y() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Down, Key::Char('d')]);
    assert_eq!(press(&mut state, &[Key::Char('n'), Key::Char('y')]), None);
    // Function 1 of the profile stands first in the table; a caller's row means its function.
    assert_eq!(
        press(&mut state, &[Key::Char('d'), Key::Char('y')]),
        Some(Action::Remove(1))
    );
    assert_eq!(
        press(&mut state, &[Key::End, Key::Char('d'), Key::Char('Y')]),
        Some(Action::Remove(0))
    );
}

#[test]
fn c_edits_the_metrics_of_the_selected_function() {
    let mut profile = sample();
    profile.functions[1].measured = Some(vec!["count".to_owned(), "cpu".to_owned()]);
    let mut state = showing(profile);
    // What it measures stands there, for a caller's row what its function does.
    let keys = [Key::Down, Key::Char('c')];
    press(&mut state, &keys);
    press(&mut state, &typed(",ret"));
    assert_eq!(
        press(&mut state, &[Key::Enter]),
        Some(Action::Change(1, "count,cpu,ret".to_owned()))
    );
    // Without a list of its own it measures all that there is.
    press(&mut state, &[Key::End, Key::Char('c')]);
    assert_eq!(
        press(&mut state, &[Key::Backspace, Key::Enter]),
        Some(Action::Change(0, "count,wal".to_owned()))
    );
    press(&mut state, &[Key::Char('c'), Key::Char('x'), Key::Esc]);
    assert_eq!(state.mode, crate::view::state::Mode::Browse);
}

#[test]
fn c_says_that_points_are_counted() {
    let mut profile = sample();
    profile.functions[1].point = true;
    let mut state = showing(profile);
    assert_eq!(press(&mut state, &[Key::Char('c')]), None);
    let text = &state.message.as_ref().unwrap().text;
    assert!(text.contains("points are counted"), "{text}");
}

#[test]
fn d_means_the_latest_sample_even_while_the_display_is_held() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('p')]);
    let mut latest = sample();
    latest.functions.swap(0, 1);
    for path in &mut latest.paths {
        path.function = 1 - path.function;
    }
    state.update(Event::Sample(Box::new(latest)));
    assert_eq!(
        press(&mut state, &[Key::Char('d'), Key::Char('y')]),
        Some(Action::Remove(0))
    );

    let mut gone = sample();
    gone.functions.truncate(1);
    gone.paths.truncate(3);
    state.update(Event::Sample(Box::new(gone)));
    assert_eq!(press(&mut state, &[Key::Char('d'), Key::Char('y')]), None);
    let text = &state.message.as_ref().unwrap().text;
    assert_eq!(text, "Store::load(int) is no longer instrumented");
}

#[test]
fn p_holds_the_display_and_then_shows_the_latest() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('p')]);
    let calls = |state: &State| state.tree.all_calls();
    state.update(Event::Sample(Box::new(later(&sample(), 0, 5))));
    assert_eq!(calls(&state), 1104);
    press(&mut state, &[Key::Char('p')]);
    assert_eq!(calls(&state), 1109);
    assert!(!state.paused);
}

#[test]
fn a_function_that_is_gone_leaves_the_table_and_comes_back() {
    let mut state = showing(sample());
    let mut gone = sample();
    gone.functions.truncate(1);
    gone.paths.truncate(3);
    state.update(Event::Sample(Box::new(gone.clone())));
    assert_eq!(names(&state)[0], "work");
    assert_eq!(names(&state).len(), 7);
    gone.functions.clear();
    gone.paths.clear();
    state.update(Event::Sample(Box::new(gone)));
    assert_eq!(
        (state.rows.len(), state.cursor, state.selected()),
        (0, 0, None)
    );
    press(
        &mut state,
        &[
            Key::Down,
            Key::Enter,
            Key::Left,
            Key::Char('d'),
            Key::Char('G'),
        ],
    );
    state.update(Event::Sample(Box::new(sample())));
    assert_eq!(names(&state).len(), 11);
}

#[test]
fn ctrl_c_quits_from_everywhere_and_q_from_the_table() {
    for keys in [
        &[][..],
        &[Key::Char('?')],
        &[Key::Char('a')],
        &[Key::Char('d')],
    ] {
        let mut state = showing(sample());
        press(&mut state, keys);
        assert_eq!(state.update(Event::Key(Key::Ctrl('c'))), Some(Action::Quit));
    }
    let mut state = showing(sample());
    assert_eq!(
        press(
            &mut state,
            &[Key::Char('?'), Key::Char('q'), Key::Char('q')]
        ),
        Some(Action::Quit)
    );
}

#[test]
fn every_key_is_harmless_before_the_first_sample() {
    for binding in BINDINGS {
        for &key in binding.keys {
            let mut state = State::default();
            state.update(Event::Key(key));
            state.update(Event::Key(Key::Enter));
            screen(&mut state, 30, 6);
        }
    }
}
