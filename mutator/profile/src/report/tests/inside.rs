//! Reports on the control flow inside functions.

use super::*;
use crate::sample::with_inside;
use unicode_width::UnicodeWidthStr;

/// The sections on the control flow, and the part of the report after them.
fn sections(profile: &Profile, options: &Options) -> String {
    let text = report(profile, options);
    let start = text.find("\nInside ").expect("a section");
    text[start..].to_owned()
}

#[test]
fn text_of_loops_and_lines() {
    golden("text-inside", &report(&with_inside(), &Options::default()));
}

#[test]
fn text_of_the_hottest_lines() {
    let options = Options {
        limit: Some(1),
        quiet: true,
        all_by: "--limit 0 shows all",
        ..Options::default()
    };
    let mut profile = with_inside();
    profile.functions.swap(0, 1);
    profile
        .inside
        .iter_mut()
        .for_each(|i| i.function = 1 - i.function);
    profile
        .paths
        .iter_mut()
        .for_each(|p| p.function = 1 - p.function);
    let text = sections(
        &profile,
        &Options {
            limit: None,
            ..options.clone()
        },
    );
    assert!(!text.contains("not shown"), "{text}");
    let by_calls = Options {
        by: By::Calls,
        ..options
    };
    golden("text-inside-limit", &sections(&profile, &by_calls));
}

/// No line is longer than 80 columns, with long names and large counts.
#[test]
fn sections_fit_80_columns() {
    let mut profile = with_inside();
    let name = "app::Repository<std::string, app::Order>".repeat(4);
    profile
        .functions
        .iter_mut()
        .for_each(|f| f.name = format!("{name}::find(int)"));
    for inside in &mut profile.inside {
        for block in &mut inside.blocks {
            block.count = u64::MAX;
            let long =
                |file: &String| file.replace("app.c", &format!("{}.c", "generated".repeat(9)));
            block.file = block.file.as_ref().map(long);
        }
        for own in &mut inside.loops {
            own.file = inside.blocks[own.header].file.clone();
            (own.entries, own.iterations) = (u64::MAX / 3, u64::MAX);
        }
    }
    let text = sections(&profile, &Options::default());
    let section = text.split("\nNot instrumented").next().unwrap();
    for line in section.lines() {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
    assert!(section.contains("generated.c:23"), "{section}");
    let verbose = Options {
        verbose: true,
        ..Options::default()
    };
    assert!(sections(&profile, &verbose).contains(&name));
}

/// Of a selection, only the functions in it have sections.
#[test]
fn sections_are_of_selected_functions() {
    let profile = with_inside();
    let shown = filter(&["work"], &[], &[]).of(&profile).unwrap();
    let mut out = Vec::new();
    selected(&profile, &shown, &Options::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\nInside work: "), "{text}");
    assert!(!text.contains("\nInside Store"), "{text}");
    assert!(!report(&sample(), &Options::default()).contains("Inside"));
}

#[test]
fn the_end_of_a_session_names_the_hottest_loops() {
    let mut out = Vec::new();
    let screen = Screen {
        width: 80,
        height: 40,
    };
    answer(&with_inside(), screen, None, &mut out).unwrap();
    golden("answer-inside", &String::from_utf8(out).unwrap());
}
