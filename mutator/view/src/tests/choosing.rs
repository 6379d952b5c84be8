//! Tests of choosing functions: the effects of keys, and the screen.

use super::*;
use crate::choice::{Choice, Choices, Choosable, Chosen};
use ipath_profile::display_name::Link;

fn rows(names: &[&str]) -> Choices {
    let row = |(number, name): (usize, &&str)| Choosable {
        key: 100 + name.len() as u64,
        figures: vec![
            format!("{:>12}", format!("{}.0±1.0 %", 50 - number)),
            format!("{:>6}", 7),
            format!("{:>8}", number),
            format!("{:>4}", 1),
        ],
        name: (*name).to_owned(),
        module: "app".to_owned(),
        refused: name.starts_with('-').then(|| "too-short".to_owned()),
    };
    Choices {
        about: "ipath: 42  1.0 s".to_owned(),
        head: ["        self", "callee", " waiting", " w/s"]
            .map(String::from)
            .to_vec(),
        note: None,
        rows: names.iter().enumerate().map(row).collect(),
    }
}

fn shown(choice: &mut Choice, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    choice.ask(|key| vec![Link::of(format!("caller_of_{key}"))]);
    let mut page = 0;
    terminal.draw(|frame| page = choice.draw(frame)).unwrap();
    assert!(page > 0);
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        cells.map(|cell| cell.symbol()).collect::<String>()
    };
    (0..height)
        .map(|y| line(y).trim_end().to_owned() + "\n")
        .collect()
}

fn choosing(names: &[&str]) -> Choice {
    let mut choice = Choice::default();
    choice.update(rows(names));
    choice
}

#[test]
fn enter_takes_the_function_at_the_cursor() {
    let mut choice = choosing(&["a", "bb", "-no"]);
    assert_eq!(choice.press(Key::Down, 5), None);
    let chosen = choice.press(Key::Enter, 5);
    assert_eq!(chosen, Some(Chosen::Functions(vec![102])));
}

#[test]
fn space_chooses_several_and_escape_none() {
    let mut choice = choosing(&["a", "bb", "-no", "dddd"]);
    for key in [
        Key::Char(' '),
        Key::Char(' '),
        Key::Char(' '),
        Key::End,
        Key::Char(' '),
    ] {
        assert_eq!(choice.press(key, 5), None);
    }
    let both = Some(Chosen::Functions(vec![101, 102, 104]));
    assert_eq!(choice.press(Key::Enter, 5), both);
    assert_eq!(choice.press(Key::Esc, 5), None);
    assert_eq!(choice.press(Key::Home, 5), None);
    assert_eq!(
        choice.press(Key::Enter, 5),
        Some(Chosen::Functions(vec![101]))
    );
}

#[test]
fn what_cannot_be_patched_is_not_taken_and_says_why() {
    let mut choice = choosing(&["-no"]);
    assert_eq!(choice.press(Key::Enter, 5), None);
    assert!(shown(&mut choice, 60, 8).contains("cannot be measured: too-short"));
}

/// The costliest function is often generated code.
#[test]
fn the_cursor_begins_on_the_first_function_that_can_be_measured() {
    let mut choice = choosing(&["-no", "a", "bb"]);
    let chosen = choice.press(Key::Enter, 5);
    assert_eq!(chosen, Some(Chosen::Functions(vec![101])));
}

#[test]
fn a_remark_stands_above_the_callers() {
    let mut choice = Choice::default();
    let note = "94 % of the CPU time is in generated code, which is not patched: `node --cpu-prof` shows it";
    choice.update(Choices {
        note: Some(note.to_owned()),
        ..rows(&["-no", "a"])
    });
    let mut lines = |width, height| {
        let screen = shown(&mut choice, width, height);
        screen.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(120, 24)[21..23], [note, "< caller_of_101"]);
    let narrow = lines(60, 24);
    assert_eq!(narrow[20..22].join(" "), note);
    assert!(!lines(60, 7).join("").contains("generated code"));
    // In a narrow terminal, lines end with a mark and columns are omitted.
    let narrow = lines(50, 24);
    assert!(narrow[1].ends_with(" FUNCTION"), "{narrow:?}");
    assert_eq!(lines(12, 24)[0], "ipath: 42  …");
}

/// A long name keeps its method, and the module is dropped first.
#[test]
fn names_are_shortened_to_the_screen() {
    let mut choices = rows(&["a", "bb"]);
    choices.rows[0].name =
        "shop::cache::LruCache<std::string, shop::Order>::get(std::string const&)".to_owned();
    choices.rows[1].name = "JS:*findDuplicates /srv/app/slow.js:4:9".to_owned();
    choices.rows[1].module = "[jit]".to_owned();
    let mut choice = Choice::default();
    choice.update(choices);
    let screen = shown(&mut choice, 80, 8);
    assert!(
        screen.contains("1  shop::cache::LruCache<...>::get  app\n"),
        "{screen}"
    );
    assert!(
        screen.contains("1  findDuplicates slow.js:4  [jit]\n"),
        "{screen}"
    );
}

#[test]
fn the_cursor_stays_on_its_function_when_the_order_changes() {
    let mut choice = choosing(&["a", "bb", "ccc"]);
    choice.press(Key::Down, 5);
    choice.update(rows(&["bb", "ccc", "a"]));
    assert_eq!(
        choice.press(Key::Enter, 5),
        Some(Chosen::Functions(vec![102]))
    );
    // A cursor that has not been moved stays on the first row.
    let mut choice = choosing(&["a", "bb"]);
    choice.update(rows(&["bb", "a"]));
    assert_eq!(
        choice.press(Key::Enter, 5),
        Some(Chosen::Functions(vec![102]))
    );
}

#[test]
fn nothing_is_chosen_by_who_quits() {
    for key in [Key::Char('q'), Key::Ctrl('c')] {
        assert_eq!(choosing(&["a"]).press(key, 5), Some(Chosen::Nothing));
    }
    assert_eq!(choosing(&[]).press(Key::Enter, 5), None);
}

#[test]
fn all_rows_can_be_come_to_on_any_screen() {
    let names: Vec<String> = (0..40).map(|n| "x".repeat(n + 1)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (width, height) in [(20, 5), (80, 24), (200, 60), (1, 1), (40, 3)] {
        let mut choice = choosing(&names);
        shown(&mut choice, width, height);
        choice.press(Key::End, 3);
        shown(&mut choice, width, height);
        assert_eq!(
            choice.press(Key::Enter, 3),
            Some(Chosen::Functions(vec![140]))
        );
    }
    let lines = |width| shown(&mut choice_of_three(), width, 9);
    let expected = "\
ipath: 42  1.0 s
            self callee  waiting  w/s  FUNCTION, most CPU or waiting first
[x]   50.0±1.0 %      7        0    1  a  app
[ ]   49.0±1.0 %      7        1    1  bb  app
 -    48.0±1.0 %      7        2    1  -no  app


< caller_of_102
Enter measure exactly  Space choose  / find  a by name  ? help  Esc leaves
";
    assert_eq!(lines(80), expected);
    // The least needed column is dropped first.
    let head = |width| {
        let lines = lines(width);
        let head = lines
            .lines()
            .nth(1)
            .and_then(|head| head.split_once("FUNCTION"));
        head.map(|(columns, _)| columns.trim().to_owned())
    };
    assert_eq!(head(60).as_deref(), Some("self callee  waiting"));
    assert_eq!(head(52).as_deref(), Some("self  waiting"));
    assert_eq!(head(43).as_deref(), Some("self"));
    assert_eq!(head(30).as_deref(), Some(""));
}

fn choice_of_three() -> Choice {
    let mut choice = choosing(&["a", "bb", "-no"]);
    choice.press(Key::Char(' '), 5);
    choice
}

#[test]
fn rows_stay_in_their_places_once_the_cursor_has_moved() {
    let names = |choice: &mut Choice| {
        let screen = shown(choice, 100, 10);
        let rows = screen.lines().skip(2).take(4).map(str::to_owned);
        let last = |line: String| line.split_whitespace().rev().nth(1).map(str::to_owned);
        rows.filter_map(last).collect::<Vec<_>>()
    };
    let mut choice = choosing(&["a", "bb", "ccc"]);
    choice.update(rows(&["ccc", "a", "bb"]));
    assert_eq!(names(&mut choice), ["ccc", "a", "bb"]);
    choice.press(Key::Down, 5);
    choice.update(rows(&["dddd", "bb", "ccc", "a"]));
    assert_eq!(names(&mut choice), ["ccc", "a", "bb", "dddd"]);
    choice.press(Key::Char('s'), 5);
    choice.update(rows(&["dddd", "bb", "ccc", "a"]));
    assert_eq!(names(&mut choice), ["dddd", "bb", "ccc", "a"]);
}

#[test]
fn escape_takes_back_what_was_done_and_then_leaves() {
    let mut choice = choosing(&["a", "bb"]);
    choice.press(Key::Char(' '), 5);
    assert_eq!(choice.press(Key::Esc, 5), None);
    assert_eq!(choice.press(Key::Esc, 5), Some(Chosen::Nothing));
}

#[test]
fn functions_are_found_by_a_part_of_their_names() {
    let mut choice = choosing(&["alpha", "bet"]);
    for key in ["/", "B", "e"].map(|text| Key::Char(text.chars().next().unwrap())) {
        assert_eq!(choice.press(key, 5), None);
    }
    choice.update(rows(&["alpha", "bet"]));
    let screen = shown(&mut choice, 80, 9);
    assert!(
        screen.contains("bet") && !screen.contains("alpha"),
        "{screen}"
    );
    assert!(screen.contains("names with: Be"), "{screen}");
    choice.press(Key::Enter, 5);
    let chosen = choice.press(Key::Enter, 5);
    assert_eq!(chosen, Some(Chosen::Functions(vec![103])));
    // Escape clears the filter and does not leave the screen.
    assert_eq!(choice.press(Key::Esc, 5), None);
    choice.update(rows(&["alpha", "bet"]));
    assert!(shown(&mut choice, 80, 9).contains("alpha"));
}

#[test]
fn functions_are_measured_by_name_and_keys_are_explained() {
    let mut choice = choosing(&["a"]);
    for key in "aLru*?q".chars().map(Key::Char) {
        assert_eq!(choice.press(key, 5), None);
    }
    let chosen = choice.press(Key::Enter, 5);
    assert_eq!(chosen, Some(Chosen::Named("Lru*?q".to_owned())));
    let mut choice = choosing(&["a"]);
    choice.press(Key::Char('?'), 5);
    let help = shown(&mut choice, 100, 24);
    for key in ["Space", "Enter", "/", "Esc", "Sampling ends"] {
        assert!(help.contains(key), "{help}");
    }
    assert_eq!(choice.press(Key::Char('q'), 5), None);
}
