//! Tests of the effects of keys and samples on the state.

use super::*;
use crate::key::BINDINGS;
use crate::tree::ROOT;
use crate::{Callees, Mouse};

#[test]
fn the_hottest_path_of_each_function_is_open_at_first() {
    let state = showing(sample());
    assert_eq!(
        names(&state),
        [
            "Store::load(int)",
            "  helper < main < __libc_start_main",
            "work",
            "  Store::load(int) < helper < main < __libc_start_main",
            "  helper < main < __libc_start_main",
            "  app+0x1400 < [callers unknown]",
        ]
    );
}

#[test]
fn numbers_of_a_caller_are_the_sum_of_the_paths_through_it() {
    // Store::load calls `work` at the same call site below two different callers of its own.
    let mut profile = sample();
    let mut other = profile.paths[1].clone();
    other.stack = vec![2, 1];
    profile.paths.push(other);
    let state = showing(profile);
    let all: Vec<NodeId> = state.tree.children(node(&state, "work")).collect();
    let calls = |&node: &NodeId| state.tree.counted(node).calls;
    let most = *all
        .iter()
        .max_by_key(|&node| state.total(*node).sum())
        .unwrap();
    let total = state.total(most);
    assert_eq!(
        (calls(&most), total.values, total.sum()),
        (200, 194, 2_420_000_000)
    );
    assert_eq!(
        &names(&state)[..6],
        [
            "work",
            "  Store::load(int)",
            "    __libc_start_main",
            "    helper < main < __libc_start_main",
            "  helper < main < __libc_start_main",
            "  app+0x1400 < [callers unknown]",
        ]
    );
}

#[test]
fn the_cursor_moves_and_stays_in_the_table() {
    let mut state = showing(sample());
    state.update(Event::Resize {
        width: 80,
        height: 8,
    });
    let rows = usize::from(state.layout().rows);
    assert_eq!(rows, 3);
    press(&mut state, &[Key::Up, Key::Char('k')]);
    assert_eq!((state.cursor, state.top), (0, 0));
    press(&mut state, &[Key::Down, Key::Char('j'), Key::Down]);
    assert_eq!((state.cursor, state.top), (3, 1));
    press(&mut state, &[Key::PageDown]);
    assert_eq!((state.cursor, state.top), (5, 3));
    press(&mut state, &[Key::Home, Key::Char('G'), Key::Down]);
    assert_eq!((state.cursor, state.top), (5, 3));
    press(&mut state, &[Key::PageUp, Key::PageUp]);
    assert_eq!((state.cursor, state.top), (1, 1));
    press(&mut state, &[Key::Home]);
    assert_eq!((state.cursor, state.top), (0, 0));
}

#[test]
fn the_mouse_selects_opens_and_sorts() {
    let mut state = showing(sample());
    let layout = state.layout();
    let first = layout.header + layout.table_head;
    state.update(Event::Mouse(Mouse::Press(40, first + 2)));
    assert_eq!(state.cursor, 2);
    state.update(Event::Mouse(Mouse::Press(40, first + 2)));
    assert_eq!(names(&state).len(), 3, "pressed again it is closed");
    state.update(Event::Mouse(Mouse::WheelUp));
    assert_eq!(state.cursor, 0);
    state.update(Event::Mouse(Mouse::WheelDown));
    assert_eq!(state.cursor, 2);
    // Press the title of the first column, twice.
    state.update(Event::Mouse(Mouse::Press(3, layout.header)));
    assert_eq!(
        (state.sort_name().as_str(), &*names(&state)[0]),
        ("calls", "work")
    );
    state.update(Event::Mouse(Mouse::Press(3, layout.header)));
    assert_eq!(names(&state)[0], "Store::load(int)");
    assert_eq!(state.sort_name(), "calls, reversed");
    // Positions without a row or a title.
    for (column, line) in [(0, 0), (3, 23), (79, 22), (1000, 1000)] {
        state.update(Event::Mouse(Mouse::Press(column, line)));
    }
}

#[test]
fn enter_hides_and_shows_what_is_below() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Enter]);
    assert_eq!(names(&state)[..2], ["Store::load(int)", "work"]);
    press(&mut state, &[Key::Char(' ')]);
    assert_eq!(
        names(&state)[..3],
        [
            "Store::load(int)",
            "  helper < main < __libc_start_main",
            "work"
        ]
    );
}

#[test]
fn a_chain_is_one_line_or_one_for_each_call() {
    let mut state = showing(sample());
    for keys in [
        &[Key::Down, Key::Char('o')][..],
        &[Key::Right],
        &[Key::Enter],
    ] {
        press(&mut state, keys);
        assert_eq!(
            names(&state)[..5],
            [
                "Store::load(int)",
                "  helper",
                "  main",
                "  __libc_start_main",
                "work",
            ]
        );
        // It can be closed from each of its rows.
        press(&mut state, &[Key::Down, Key::Left]);
        assert_eq!(state.cursor, 1);
        assert_eq!(names(&state)[1], "  helper < main < __libc_start_main");
    }
}

#[test]
fn a_new_path_that_leaves_a_chain_keeps_the_cursor_on_its_call() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Down, Key::Right, Key::Down, Key::Down]);
    assert_eq!(names(&state)[state.cursor], "  __libc_start_main");
    let mut profile = sample();
    let mut other = profile.paths[3].clone();
    other.stack = vec![0, 2];
    profile.paths.push(other);
    give(&mut state, profile);
    assert_eq!(
        names(&state)[..6],
        [
            "Store::load(int)",
            "  helper",
            "  main",
            "    Store::load(int)",
            "    __libc_start_main",
            "work",
        ]
    );
    assert_eq!(names(&state)[state.cursor], "    __libc_start_main");
}

#[test]
fn left_hides_what_is_below_then_goes_to_what_it_is_below() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Down, Key::Left]);
    assert_eq!(state.cursor, 0);
    press(&mut state, &[Key::Left, Key::Left]);
    assert_eq!(names(&state)[..2], ["Store::load(int)", "work"]);
    press(&mut state, &[Key::Right]);
    assert_eq!(names(&state)[1], "  helper < main < __libc_start_main");
}

#[test]
fn what_the_user_has_hidden_stays_hidden_and_the_cursor_stays_on_its_row() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Enter, Key::Down]);
    assert_eq!(names(&state)[state.cursor], "work");
    // Enough calls to make `work` the costliest.
    give(&mut state, later(&sample(), 0, 5_000));
    let shown = names(&state);
    assert_eq!(shown[0], "work");
    assert_eq!(shown.last().unwrap(), "Store::load(int)");
    assert_eq!(state.cursor, 0);
}

#[test]
fn all_is_opened_and_closed_at_once_and_the_hottest_path_by_itself() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('-')]);
    assert_eq!(names(&state), ["Store::load(int)", "work"]);
    press(&mut state, &[Key::End, Key::Char('x')]);
    assert_eq!(names(&state).len(), 5);
    press(&mut state, &[Key::Char('-'), Key::Char('+')]);
    assert_eq!(names(&state).len(), 6);
}

#[test]
fn rates_come_from_the_last_two_samples() {
    let mut state = showing(sample());
    let rate = |state: &State, name: &str| state.tree.rate(node(state, name));
    assert_eq!(rate(&state, "work"), None);
    let mut next = later(&sample(), 1, 30);
    next.session.elapsed_ns += 1_000_000_000;
    state.sample(&next, &Changed::Paths(vec![1]));
    assert_eq!(rate(&state, "work"), Some(15.0));
    state.sample(&later(&next, 0, 7), &Changed::Paths(vec![0]));
    assert_eq!(rate(&state, "work"), Some(7.0));
    assert_eq!(rate(&state, "app+0x1400 < [callers unknown]"), Some(0.0));
    assert_eq!(state.tree.trend(node(&state, "work")), [15.0, 7.0]);
}

#[test]
fn a_frame_is_added_and_a_path_copied() {
    let mut state = showing(sample());
    assert_eq!(press(&mut state, &[Key::Char('u')]), None);
    assert!(
        state
            .message
            .as_ref()
            .unwrap()
            .text
            .contains("not a call site")
    );
    press(&mut state, &[Key::Down, Key::Right, Key::Down]);
    assert_eq!(
        press(&mut state, &[Key::Char('u')]),
        Some(Action::Add("app!main".to_owned()))
    );
    let Some(Action::Copy(text)) = press(&mut state, &[Key::Char('y')]) else {
        panic!("not copied");
    };
    assert_eq!(
        text,
        "Store::load(int)  app\nhelper (inlined)  app.h:3\nmain  app.c:12\n__libc_start_main  libc.so.6\n"
    );
    assert_eq!(
        press(&mut state, &[Key::Char('E')]),
        Some(Action::Edit("/src/app/app.c".to_owned(), 12))
    );
    assert_eq!(
        press(&mut state, &[Key::Char('i')]),
        Some(Action::Callees(1))
    );
    let callees = Callees {
        names: vec!["parse".to_owned(), "malloc".to_owned()],
        patterns: vec!["0x4711".to_owned(), "libc.so.6!malloc".to_owned()],
        indirect: 0,
    };
    state.update(Event::Callees(callees.clone()));
    let shown = screen(&mut state, 60, 10);
    assert!(
        shown.contains("add 2 functions: parse, malloc? (y/n)"),
        "{shown}"
    );
    assert_eq!(press(&mut state, &[Key::Char('n')]), None);
    state.update(Event::Callees(callees.clone()));
    assert_eq!(
        press(&mut state, &[Key::Char('y')]),
        Some(Action::AddCallees(callees))
    );
    press(&mut state, &[Key::Home, Key::Char('w'), Key::Ctrl('u')]);
    press(&mut state, &typed("out.json"));
    assert_eq!(
        press(&mut state, &[Key::Enter]),
        Some(Action::Write("out.json".to_owned()))
    );
}

#[test]
fn what_another_command_has_added_is_said() {
    let mut fewer = sample();
    fewer.functions.truncate(1);
    fewer.paths.truncate(3);
    let mut state = showing(fewer.clone());
    give(&mut state, sample());
    let text = state.message.clone().unwrap().text;
    assert_eq!(text, "another command has added Store::load(int)");
    // A pattern was pending for it.
    let mut before = fewer.clone();
    before.session.pending = vec!["Store*".to_owned()];
    let mut state = showing(before);
    give(&mut state, sample());
    let text = state.message.clone().unwrap().text;
    assert_eq!(text, "measured from now on: Store::load(int)");
    // Functions added by this view are reported as the result of its action.
    let mut state = showing(fewer);
    press(&mut state, &[Key::Char('a')]);
    press(&mut state, &typed("Store*"));
    press(&mut state, &[Key::Enter]);
    state.update(Event::Answer(Ok("added Store::load(int)".to_owned())));
    give(&mut state, sample());
    assert_eq!(
        state.message.clone().unwrap().text,
        "added Store::load(int)"
    );
}

#[test]
fn what_another_command_has_removed_is_said_and_marked() {
    let mut state = showing(sample());
    let mut profile = sample();
    profile.functions[1].is_removed = true;
    give(&mut state, profile);
    let text = state.message.clone().unwrap().text;
    assert_eq!(text, "another command has removed Store::load(int)");
    let text = screen(&mut state, 100, 24);
    let row = text
        .lines()
        .find(|line| line.contains("▾ Store::load(int)"));
    assert!(row.is_some_and(|row| row.contains("  removed")), "{text}");
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
    // Keys with another meaning elsewhere are text here.
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
    assert_eq!(state.update(Event::Key(Key::Esc)), None, "it only cancels");
}

#[test]
fn d_removes_the_function_of_the_selected_row_only_after_y() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Down, Key::Char('d')]);
    assert_eq!(press(&mut state, &[Key::Char('n')]), None);
    // Function 1 of the profile is the first in the table. A caller's row stands for its function.
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
    // The line contains the current metrics, also for a caller's row.
    let keys = [Key::Down, Key::Char('c')];
    press(&mut state, &keys);
    press(&mut state, &typed(",ret"));
    assert_eq!(
        press(&mut state, &[Key::Enter]),
        Some(Action::Change(1, "count,cpu,ret".to_owned()))
    );
    // Without its own list, a function measures all metrics.
    press(&mut state, &[Key::End, Key::Char('c')]);
    assert_eq!(
        press(&mut state, &[Key::Backspace, Key::Enter]),
        Some(Action::Change(0, "count,wal".to_owned()))
    );
    press(&mut state, &[Key::Char('c'), Key::Char('x'), Key::Esc]);
    assert!(matches!(state.mode, crate::state::Mode::Browse));
}

#[test]
fn c_says_that_points_are_counted() {
    let mut profile = sample();
    profile.functions[1].point = true;
    let mut state = showing(profile);
    assert_eq!(press(&mut state, &[Key::Char('c')]), None);
    let text = &state.message.as_ref().unwrap().text;
    assert!(text.contains("points are only counted"), "{text}");
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
    give(&mut state, latest);
    assert_eq!(
        press(&mut state, &[Key::Char('d'), Key::Char('y')]),
        Some(Action::Remove(0))
    );

    let mut gone = sample();
    gone.functions.truncate(1);
    gone.paths.truncate(3);
    give(&mut state, gone);
    assert_eq!(press(&mut state, &[Key::Char('d'), Key::Char('y')]), None);
    let text = &state.message.as_ref().unwrap().text;
    assert_eq!(text, "Store::load(int) is no longer instrumented");
}

#[test]
fn p_holds_the_display_and_then_shows_the_latest() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('p')]);
    let calls = |state: &State| state.tree.counted(ROOT).calls;
    give(&mut state, later(&sample(), 0, 5));
    assert_eq!(calls(&state), 1104);
    assert_eq!(press(&mut state, &[Key::Char('p')]), Some(Action::Look));
    give(&mut state, later(&sample(), 0, 5));
    assert_eq!(calls(&state), 1109);
    assert!(!state.paused);
}

#[test]
fn a_function_that_is_gone_leaves_the_table_and_comes_back() {
    let mut state = showing(sample());
    let mut gone = sample();
    gone.functions.truncate(1);
    gone.paths.truncate(3);
    give(&mut state, gone.clone());
    assert_eq!(names(&state)[0], "work");
    assert_eq!(names(&state).len(), 4);
    gone.functions.clear();
    gone.paths.clear();
    give(&mut state, gone);
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
    give(&mut state, sample());
    assert_eq!(names(&state).len(), 6);
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
