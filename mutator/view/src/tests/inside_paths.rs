//! Tests of the paths and the loops inside functions.

use super::frames::golden;
use super::inside::{counted_in, is_at};
use super::*;
use crate::inside::List;
use ipath_profile::sample::with_paths;
use ipath_profile::{Counts, Function, TimerStats};

/// A second later, with some more executions of the hottest path.
fn later(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.session.elapsed_ns += 1_000_000_000;
    profile.inside[0].paths[3].count += 40;
    profile
}

#[test]
fn paths_are_shown_with_their_lines() {
    let mut profile = with_paths();
    let totals = profile.inside[0].path_totals.as_mut().unwrap();
    (totals.begun, totals.unknown, totals.uncounted) = (1007, 2, 300);
    let mut state = counted_in(profile.clone());
    give(&mut state, later(&profile));
    press(&mut state, &[Key::Char('I')]);
    let text = screen(&mut state, 80, 26);
    assert!(text.contains("v paths  e starts"), "{text}");
    press(&mut state, &[Key::Char('v')]);
    for (width, height) in [(80, 18), (140, 18), (220, 18), (40, 6)] {
        let name = format!("inside-paths-{width}");
        golden(&name, &screen(&mut state, width, height));
    }
    press(&mut state, &[Key::Char('v')]);
    let text = screen(&mut state, 80, 26);
    assert!(text.contains("block6"), "{text}");
}

/// A function without paths has no other list.
#[test]
fn paths_need_their_option() {
    let mut profile = with_paths();
    profile.inside[0].path_totals = None;
    profile.inside[0].paths.clear();
    let mut state = counted_in(profile);
    press(&mut state, &[Key::Char('I')]);
    let text = screen(&mut state, 80, 26);
    assert!(!text.contains("v paths"), "{text}");
    press(&mut state, &[Key::Char('v')]);
    let text = screen(&mut state, 80, 26);
    assert!(text.contains("no paths are counted: --paths"), "{text}");
    assert_eq!(is_at(&state), Some((List::Blocks, 0)));
}

/// The end of the list is reached whatever its length is.
#[test]
fn few_and_many_paths_scroll() {
    for number in [0, 1, 4000] {
        let mut profile = with_paths();
        let path = profile.inside[0].paths[3].clone();
        let path = |n: u64| ipath_profile::TakenPath {
            number: n,
            // Different in their blocks, and many on the same lines.
            blocks: (0..12).map(|bit| 1 + (n as usize >> bit & 1)).collect(),
            count: 1 + n,
            ..path.clone()
        };
        profile.inside[0].paths = (0..number).map(path).collect();
        let totals = profile.inside[0].path_totals.as_mut().unwrap();
        (totals.begun, totals.uncounted) = (0, 9);
        let mut state = counted_in(profile);
        state.update(Event::Resize {
            width: 80,
            height: 12,
        });
        press(&mut state, &[Key::Char('I'), Key::Char('v')]);
        let text = screen(&mut state, 80, 12);
        assert!(text.contains("9 in no count"), "{text}");
        let first = match number {
            0 => "no path has been taken",
            1 => "         1         -  100.0 %",
            _ => "      4000         -    0.0 %",
        };
        assert!(text.contains(first), "{text}");
        press(&mut state, &[Key::End]);
        let text = screen(&mut state, 80, 12);
        let said = "9 paths not counted: too many different ones";
        assert!(text.contains(said), "{number}: {text}");
        let (_, top) = is_at(&state).unwrap();
        assert_eq!(top > 0, number > 1, "{top}");
        press(&mut state, &[Key::PageDown]);
        assert_eq!(is_at(&state), Some((List::Paths, top)));
        state.update(Event::Mouse(crate::Mouse::WheelUp));
        assert_eq!(is_at(&state), Some((List::Paths, top.saturating_sub(3))));
        press(&mut state, &[Key::Home, Key::Esc]);
        assert_eq!(is_at(&state), None);
    }
}

/// Without colors and with letters only, the shares are numbers.
#[test]
fn shares_of_paths_are_numbers() {
    let mut state = counted_in(with_paths());
    press(&mut state, &[Key::Char('I'), Key::Char('v')]);
    let text = screen(&mut state, 40, 12);
    let hottest = "     19960         -   48.5 %  loop 23";
    assert!(text.contains(hottest), "{text}");
}

/// Trips of the inner loop, and times of the outer one, whose entries are all timed.
#[test]
fn loops_have_their_trips_and_times() {
    let mut profile = with_paths();
    profile.inside[0].loops[1].trips = vec![(0, 2510), (1, 7028), (2, 502)];
    profile.inside[0].loops[1].unknown_trips = 3;
    let stats = TimerStats {
        sum: 3_210_000,
        ..TimerStats::default()
    };
    let mut row = Function {
        name: "work:loop0".to_owned(),
        of_loop: Some(Default::default()),
        address: profile.inside[0].blocks[1].address,
        ..profile.functions[0].clone()
    };
    row.totals.counts = Counts {
        count: 1004,
        ..Counts::default()
    };
    (row.totals.unwound, row.totals.open) = (Some(0), Some(0));
    profile.functions.push(row);
    profile.inside[0].loops[0].wall = Some(Box::new(stats));
    let mut state = counted_in(profile.clone());
    press(&mut state, &[Key::Char('I')]);
    for width in [80, 140, 220] {
        golden(
            &format!("inside-loops-{width}"),
            &screen(&mut state, width, 24),
        );
    }
    // Some entries were not timed: there is no time of an iteration.
    profile.inside[0].loops[0].entries += 1;
    give(&mut state, profile);
    let text = screen(&mut state, 80, 24);
    assert!(text.contains("time 3.21 ms\n"), "{text}");
}

/// Long paths on the same lines differ anywhere.
#[test]
fn long_paths_are_read_by_scrolling() {
    let mut profile = with_paths();
    let inside = &mut profile.inside[0];
    // 30 blocks on 30 lines, and a short path.
    let block = inside.blocks[0].clone();
    inside.blocks.extend((0..30).map(|n| ipath_profile::Block {
        line: Some(1000 + n),
        ..block.clone()
    }));
    inside.paths[0].blocks = (7..37).collect();
    inside.paths[0].count = 1_000_000;
    let mut state = counted_in(profile);
    press(&mut state, &[Key::Char('I'), Key::Char('v')]);
    let first = |state: &mut State| {
        let text = screen(state, 80, 14);
        let line = text.lines().find(|line| line.contains("1000000")).unwrap();
        assert!(text.contains("loop 23 24 again"), "{text}");
        line.rsplit("  ").next().unwrap().to_owned()
    };
    assert_eq!(first(&mut state), "entry 1000 1001 1002 … 1029 again");
    press(&mut state, &[Key::Right]);
    assert_eq!(first(&mut state), "… 1004 1005 1006 1007 … 1029 again");
    press(&mut state, &[Key::Left]);
    assert_eq!(first(&mut state), "entry 1000 1001 1002 … 1029 again");
    press(&mut state, &[Key::Right; 20]);
    assert_eq!(first(&mut state), "… 1029 again");
    press(&mut state, &[Key::Left]);
    assert_eq!(first(&mut state), "… 1025 1026 1027 1028 1029 again");
    // The other list has no long lines: the key goes back.
    press(&mut state, &[Key::Char('v'), Key::Right]);
    assert_eq!(is_at(&state), None);
}
