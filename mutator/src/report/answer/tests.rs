use super::super::tests::golden;
use super::*;
use crate::hint::{CommandLine, hint};
use crate::profile::tests::sample;
use crate::profile::{COUNT, Frame, PathEntry};
use crate::report::summary;
use std::path::Path;

fn shown(profile: &Profile, width: usize, height: usize) -> String {
    let next = hint!("{}", CommandLine::ipath("report profile.json"));
    let mut out = Vec::new();
    answer(profile, Screen { width, height }, Some(&next), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_costliest_path_is_nearest_to_the_prompt() {
    golden("answer", &shown(&sample(), 100, 40));
    let mut counted = sample();
    counted.metrics.retain(|metric| metric.name == COUNT);
    golden("answer-counts", &shown(&counted, 100, 40));
    let mut uncalled = sample();
    uncalled.paths.clear();
    uncalled.functions.clear();
    golden("answer-empty", &shown(&uncalled, 100, 40));
}

/// A profile in which `lines` paths have the same functions and different call sites.
fn alike(lines: u32) -> Profile {
    let mut profile = sample();
    profile.paths.truncate(1);
    let path = profile.paths[0].clone();
    for line in 1..lines {
        let frame = Frame {
            address: 5000 + u64::from(line),
            line: Some(100 + line),
            inlined: Vec::new(),
            ..profile.frames[0].clone()
        };
        profile.frames.push(frame);
        let caller = profile.frames.len() - 1;
        profile.paths.push(PathEntry {
            stack: vec![caller, 1],
            ..path.clone()
        });
    }
    profile
}

#[test]
fn paths_of_the_same_functions_show_where_they_call() {
    let text = shown(&alike(4), 100, 40);
    for line in 101..104 {
        assert!(
            text.contains(&format!(" < main at app.c:{line} < ")),
            "{text}"
        );
    }
}

#[test]
fn an_answer_fits_the_screen() {
    let profile = alike(60);
    for (width, height) in [(60, 16), (80, 24), (140, 40), (220, 60)] {
        let text = shown(&profile, width, height);
        let rows = text.lines().map(|line| line.width().div_ceil(width).max(1));
        assert!(rows.sum::<usize>() < height, "{width}x{height}: {text}");
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last[0], "next: ipath report profile.json");
        assert!(last[1].ends_with("calls."), "{text}");
    }
}

/// A time beyond that of the run is the work of several threads.
#[test]
fn more_than_the_whole_is_a_number_of_threads() {
    let mut profile = sample();
    profile.session.elapsed_ns = 10_000_000;
    let text = shown(&profile, 100, 40);
    assert!(
        text.contains("On average 201x threads") || text.contains("x  "),
        "{text}"
    );
    assert!(!text.contains("00 %"), "{text}");
}

/// The end of `ipath run` for tests/programs/shop.{cc,rs,go} and examples/c/ledger.c, as recorded.
#[test]
fn answers_for_four_languages_fit_three_terminals() {
    for language in ["cc", "rs", "go", "c"] {
        let file = format!("src/report/goldens/profiles/{language}.json");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let profile = Profile::load(&file).unwrap();
        let screens = [(80, 24), (140, 40), (220, 50)].map(|(width, height)| {
            let text = shown(&profile, width, height);
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            assert!(text.lines().count() < height, "{text}");
            let mut interval = Vec::new();
            summary(&profile, None, Some(width), &mut interval).unwrap();
            let interval = String::from_utf8(interval).unwrap();
            assert!(
                interval.lines().all(|line| line.width() <= width),
                "{interval}"
            );
            format!("{width} columns\n\n{interval}\n{text}\n")
        });
        golden(&format!("screens-{language}"), &screens.concat());
    }
}
