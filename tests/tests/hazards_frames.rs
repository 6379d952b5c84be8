//! Frames that are not at the place given by tables or instructions.

use ipath_tests::compile::{build_by, program_with, source};
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use std::collections::BTreeMap;

/// The callers on a path from the innermost outwards, separated by spaces.
fn callers(profile: &Profile, path: &CallPath) -> String {
    let frames = path.stack.iter().map(|&frame| &profile.frames[frame]);
    let names: Vec<&str> = frames
        .map(|f| f.function.as_deref().unwrap_or("?"))
        .collect();
    names.join(" ")
}

/// The numbers of calls of `function` by path, from the innermost caller outwards, and by the
/// completeness of the path (true if complete); and the profile.
fn paths(program: &Program, function: &str) -> (BTreeMap<(String, bool), u64>, Profile) {
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("frames");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&[function], "count", &file);
    assert_output_kept(&plain, &ours);
    let profile = Profile::read(&file);
    let mut found = BTreeMap::new();
    for path in &profile.paths {
        *found
            .entry((callers(&profile, path), path.complete))
            .or_default() += count(&path.metrics);
    }
    (found, profile)
}

/// The part of a path up to `last`, which must be one of its frames.
fn up_to<'p>(path: &'p str, last: &str) -> &'p str {
    let end = path
        .find(last)
        .unwrap_or_else(|| panic!("no {last} in {path}"));
    &path[..end + last.len()]
}

/// If the instructions prove one height, the path follows it. If they reach a call with two
/// heights, the path ends there with that cause.
#[test]
fn rows_that_instructions_contradict() {
    let program = Program::new(&program_with("contradicted.c", &[]), [""; 0]);
    let (found, profile) = paths(&program, "stop");
    let single: u64 = found
        .iter()
        .filter(|((path, complete), _)| {
            *complete && up_to(path, "main") == "single inner outer main"
        })
        .map(|(_, calls)| calls)
        .sum();
    let several = found.get(&("several".to_owned(), false));
    assert_eq!((single, several), (200, Some(&200)), "{found:?}");
    assert_eq!(profile.losses.causes.get("ambiguous-height"), Some(&200));
}

/// Code without unwind entries is walked by its frame pointers if a callee may have moved the
/// stack.
#[test]
fn callees_that_take_their_arguments() {
    for flags in [&[][..], &["-no-pie", "-fno-pie"], &["-s", "-rdynamic"]] {
        let program = Program::new(&program_with("popped.c", flags), [""; 0]);
        let (found, profile) = paths(&program, "target");
        profile.assert_complete("each frame has a frame pointer");
        let calls: u64 = found.values().sum();
        assert_eq!(calls, 250, "{found:?}");
        if !flags.contains(&"-s") {
            let mut of = BTreeMap::new();
            for ((path, _), calls) in &found {
                *of.entry(up_to(path, "main")).or_default() += calls;
            }
            let expected = BTreeMap::from([
                ("fixed under middle main", 50),
                ("fixed pushes middle main", 50),
                ("pushes middle main", 100),
                ("variable pushes middle main", 50),
            ]);
            assert_eq!(of, expected);
        }
    }
}

/// clang can put each block of a function into a separate section. The blocks are one function,
/// with any symbols and any linker. No call counts as left by an exception.
#[test]
fn sections_of_basic_blocks() {
    const NAMES: [&str; 4] = ["work", "leaf", "middle", "catches"];
    let run = |flags: &[&str]| {
        let path = build_by("clang++", &source("block_sections.cc"), flags);
        let program = Program::new(&path, [""; 0]);
        let plain = program.plain().expect(0);
        let scratch = Scratch::new("blocks");
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&NAMES, "count,wall", &file);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        profile.assert_complete("all code has unwind entries");
        let own = own_counts(&plain.stdout);
        for name in NAMES {
            assert_eq!(profile.calls(name), own[name], "{flags:?} {name}");
        }
        assert_eq!(profile.losses.unwound, Some(0), "{flags:?}");
        assert_eq!(profile.losses.open, Some(0), "{flags:?}");
        let mut found = BTreeMap::new();
        for path in &profile.paths {
            let function = &profile.functions[path.function].name;
            let text = format!("{function} {}", callers(&profile, path));
            *found.entry(up_to(&text, "main").to_owned()).or_default() += count(&path.metrics);
        }
        found
    };
    const SECTIONS: &str = "-fbasic-block-sections=all";
    for flags in [
        &[][..],
        &["-funique-basic-block-section-names", "-fuse-ld=lld"],
        &["-O1", "-fno-omit-frame-pointer"],
    ] {
        let usual: BTreeMap<String, u64> = run(flags);
        assert_eq!(run(&[&[SECTIONS], flags].concat()), usual, "{flags:?}");
    }
}
