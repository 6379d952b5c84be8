//! Tests of the counts inside functions.

use super::frames::golden;
use super::*;
use crate::Mouse;
use crate::inside::{InsideRow, List};
use crate::state::{Mode, Source};
use ipath_profile::sample::with_inside;

/// `with_inside` with the order of rows that its first function comes first.
fn counted() -> State {
    counted_in(with_inside())
}

/// As [`counted`], of another profile.
pub(super) fn counted_in(profile: Profile) -> State {
    let mut state = showing(profile);
    press(&mut state, &[Key::Char('-')]);
    let work = names(&state).iter().position(|name| name == "work");
    state.go_to(work.unwrap());
    state
}

/// The list on the screen, and its first line there. `None` if no counts are shown.
pub(super) fn is_at(state: &State) -> Option<(List, usize)> {
    match state.mode {
        Mode::Inside(panel) => Some((panel.list, panel.top)),
        _ => None,
    }
}

/// A second later, with some more executions.
fn more(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.session.elapsed_ns += 1_000_000_000;
    for (n, block) in profile.inside[0].blocks.iter_mut().enumerate() {
        block.count += 500 * n as u64;
    }
    profile
}

/// The source file of the sample.
fn source() -> Source {
    let lines = (1..=40).map(|n| format!("\tsource_of_line({n});"));
    Source {
        file: "/src/app/app.c".into(),
        lines: Some(lines.collect()),
    }
}

#[test]
fn blocks_are_shown_with_lines_loops_and_edges() {
    let mut state = counted();
    give(&mut state, more(&with_inside()));
    press(&mut state, &[Key::Char('I')]);
    assert_eq!(
        state.wanted_inside_source().as_deref(),
        Some("/src/app/app.c")
    );
    state.inside_sources.push(source());
    assert_eq!(
        state.wanted_inside_source().as_deref(),
        Some("/src/app/app.h")
    );
    for (width, height) in [(80, 26), (140, 26), (220, 26), (60, 8), (40, 4)] {
        golden(
            &format!("inside-{width}"),
            &screen(&mut state, width, height),
        );
    }
}

/// The names of functions may have more columns than the screen.
#[test]
fn long_names_are_shortened() {
    let mut profile = with_inside();
    profile.functions[0].name = "std::vector<std::map<std::string, long>, std::allocator<\
        std::map<std::string, long>>>::_M_realloc_insert<std::map<std::string, long> const&>(\
        __gnu_cxx::__normal_iterator<std::map<std::string, long>*, int>)"
        .to_owned();
    profile.inside[0].blocks[0].file = Some(format!("/src/{}.rs", "long".repeat(30)));
    let mut state = showing(profile);
    press(&mut state, &[Key::Char('-'), Key::End, Key::Char('I')]);
    for width in [20, 80, 140, 220] {
        let text = screen(&mut state, width, 24);
        assert!(text.contains("1004 activations"), "{text}");
        assert!(width < 80 || text.contains("std::vector<"), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= usize::from(width) + 2, "{text}");
    }
}

/// A jump table and a landing pad, without source positions.
#[test]
fn blocks_without_lines_are_shown_by_their_distance() {
    let mut state = counted();
    press(&mut state, &[Key::Home, Key::Char('I')]);
    golden("inside-jumps", &screen(&mut state, 80, 18));
}

#[test]
fn the_counts_inside_scroll() {
    let mut state = counted();
    state.update(Event::Resize {
        width: 80,
        height: 10,
    });
    press(&mut state, &[Key::Char('I')]);
    let top = |state: &State| is_at(state).map(|(_, top)| top);
    let rows = state.counts_inside(match state.mode {
        Mode::Inside(panel) => panel.site,
        _ => panic!("the counts are shown"),
    });
    let rows = rows.unwrap().1.rows().len();
    for (key, expected) in [
        (Key::Up, 0),
        (Key::Down, 1),
        (Key::Char('j'), 2),
        (Key::Home, 0),
    ] {
        press(&mut state, &[key]);
        assert_eq!(top(&state), Some(expected), "{key}");
    }
    press(&mut state, &[Key::End]);
    let last = top(&state).unwrap();
    assert!(last > 0 && last < rows);
    press(&mut state, &[Key::PageDown]);
    assert_eq!(top(&state), Some(last), "no further than to the last page");
    let text = screen(&mut state, 80, 10);
    assert!(text.contains("block6"), "{text}");
    state.update(Event::Mouse(Mouse::WheelUp));
    assert_eq!(top(&state), Some(last.saturating_sub(3)));
    press(&mut state, &[Key::Esc]);
    assert_eq!(top(&state), None);
}

/// Loops in loops, from the edges alone.
#[test]
fn blocks_are_indented_by_the_loops_around_them() {
    let state = counted();
    let node = node(&state, "work");
    let site = state.tree.sites(node)[0];
    let rows = state.counts_inside(site).unwrap().1.rows();
    let depths = rows.iter().filter_map(|row| match row {
        InsideRow::Block { depth, .. } => Some(*depth),
        _ => None,
    });
    assert_eq!(depths.collect::<Vec<_>>(), [0, 1, 2, 2, 2, 1, 0]);
    let loops = rows.iter().filter_map(|row| match row {
        InsideRow::Loop { number, depth } => Some((*number, *depth)),
        _ => None,
    });
    assert_eq!(loops.collect::<Vec<_>>(), [(0, 0), (1, 1)]);
}

#[test]
fn e_counts_edges_and_shows_the_answer() {
    let mut state = showing(sample());
    let action = press(&mut state, &[Key::Char('e')]);
    assert_eq!(action, Some(Action::Edges(1)));
    let text = screen(&mut state, 80, 12);
    assert!(text.contains("come with the next sample"), "{text}");
    // A refusal is shown below the rows.
    let refused = "work: not instrumented: call-in-window".to_owned();
    state.update(Event::Answer(Err(refused.clone())));
    let text = screen(&mut state, 80, 12);
    assert!(text.contains(&refused) && text.contains("helper"), "{text}");
    // Counts stay on the screen after the counting has ended.
    let mut state = counted();
    assert_eq!(press(&mut state, &[Key::Char('e')]), Some(Action::Edges(0)));
    state.update(Event::Answer(Ok("counted".to_owned())));
    assert_eq!(press(&mut state, &[Key::Char('e')]), Some(Action::Edges(0)));
    state.update(Event::Answer(Ok("no longer counted".to_owned())));
    let text = screen(&mut state, 80, 24);
    assert!(
        text.contains("no longer counted") && text.contains("loop0"),
        "{text}"
    );
}

#[test]
fn counts_inside_need_edges() {
    let mut state = showing(sample());
    press(&mut state, &[Key::Char('I')]);
    let text = screen(&mut state, 80, 24);
    assert!(
        text.contains("no edges are counted, e counts them: "),
        "{text}"
    );
}

/// A function whose calls are not measured has as many calls as activations, and no times.
#[test]
fn a_function_with_edges_alone_has_its_activations() {
    let mut profile = with_inside();
    profile.paths.retain(|path| path.function != 0);
    profile.functions[0].totals.counts = Default::default();
    profile.functions[0].only_edges = true;
    let mut state = showing(profile.clone());
    let mut later = profile.clone();
    later.session.elapsed_ns += 1_000_000_000;
    later.inside[0].edges[0].count += 36;
    give(&mut state, later);
    press(&mut state, &[Key::Char('-')]);
    golden("only-edges", &screen(&mut state, 120, 12));
    // It is not one of several functions that were not called.
    press(&mut state, &[Key::Char('t')]);
    let text = screen(&mut state, 120, 12);
    let row = text
        .lines()
        .find(|line| line.contains("only edges counted"));
    assert!(row.is_some_and(|row| !row.contains("1040")), "{text}");
}
