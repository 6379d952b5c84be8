//! Counted functions as text, compared with goldens. `UPDATE_GOLDENS=1 cargo test` rewrites them.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::super::{Code, ExportError, Instruction, Listing};
use super::to_annotate;
use crate::profile::Profile;
use crate::sample::{sample, with_inside};
use ipath_base::printable::is_active;

/// The text of a profile's counted functions.
fn annotated(profile: &Profile, code: Option<&Code>) -> String {
    let mut out = Vec::new();
    to_annotate(profile, code, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/goldens");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap_or_default());
}

/// Two instructions for each block of the sample's first function, the second one of the next line.
fn code(profile: &Profile) -> Code {
    let blocks = profile.inside[0].blocks.iter().map(|block| {
        let in_header = block.file.as_deref() == Some("/src/app/app.h");
        let instruction = |number: u32, text: &str, callee: &str| Instruction {
            address: block.address + u64::from(number),
            text: text.to_owned(),
            callee: callee.to_owned(),
            is_call: !callee.is_empty(),
            source: Some((usize::from(in_header), block.line.unwrap_or(0) + number)),
        };
        let first = instruction(0, "mov eax, [rdi+0x10]", "");
        vec![first, instruction(1, "call 0x1030", "Store::load")]
    });
    Code {
        files: vec!["/src/app/app.c".to_owned(), "/src/app/app.h".to_owned()],
        listings: vec![
            Listing {
                blocks: Ok(blocks.collect()),
                modified: Some(UNIX_EPOCH),
            },
            Listing {
                blocks: Err("/usr/bin/app: it has another build id now".to_owned()),
                modified: None,
            },
        ],
    }
}

#[test]
fn instructions_are_between_the_lines_and_the_edges() {
    let profile = with_inside();
    golden("annotate", &annotated(&profile, Some(&code(&profile))));
}

#[test]
fn without_instructions_there_are_blocks_and_lines() {
    golden("annotate-blocks", &annotated(&with_inside(), None));
}

/// A line that has code in a block with a larger count than the block that begins at it.
#[test]
fn the_count_of_a_line_is_that_of_its_hottest_block() {
    let profile = with_inside();
    let text = annotated(&profile, Some(&code(&profile)));
    // Line 23 is in the blocks of 11,044 and 40,160 executions.
    let rows: Vec<&str> = text.lines().filter(|l| l.contains("  app.c:23")).collect();
    assert!(rows[0].trim_start().starts_with("40160"), "{text}");
    assert!(
        rows[1..].iter().all(|row| row.starts_with("    ")),
        "{text}"
    );
}

/// An activation that leaves inside a call does not execute the line behind the call.
#[test]
fn lines_after_a_call_are_without_the_departures_in_it() {
    let mut profile = with_inside();
    let mut code = code(&profile);
    let mut left = profile.inside[0].edges[10].clone();
    (left.in_call, left.count) = (true, 4);
    profile.inside[0].edges[10].count = 1000;
    profile.inside[0].edges.push(left);
    let blocks = code.listings[0].blocks.as_mut().unwrap();
    let mut after = blocks[6][1].clone();
    after.is_call = false;
    after.source = Some((0, 32));
    blocks[6].push(after);
    let text = annotated(&profile, Some(&code));
    for (line, count) in [(30, "1004"), (31, "1004"), (32, "1000")] {
        let row = text
            .lines()
            .find(|row| row.contains(&format!("  app.c:{line}")));
        assert!(row.unwrap().trim_start().starts_with(count), "{text}");
    }
}

/// A source file is shown if it is not newer than the module's file.
#[test]
fn texts_of_source_lines_are_shown_unless_they_are_newer() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/export/annotate/tests.rs");
    let modified = fs::metadata(own).unwrap().modified().unwrap();
    let mut profile = with_inside();
    profile.inside.truncate(1);
    for block in &mut profile.inside[0].blocks {
        block.file = Some(own.to_owned());
        block.line = Some(1);
    }
    let shown = |modified| {
        let mut code = code(&profile);
        code.listings.truncate(1);
        code.files = vec![own.to_owned(); 2];
        code.listings[0].modified = Some(modified);
        annotated(&profile, Some(&code))
    };
    let text = shown(modified);
    assert!(
        text.contains("tests.rs:1  //! Counted functions as text"),
        "{text}"
    );
    let older = shown(UNIX_EPOCH);
    let note = format!("no text of {own}: newer than the file of the module");
    assert!(older.contains(&note), "{older}");
    assert!(!older.contains("//! Counted"), "{older}");
}

#[test]
fn files_of_one_name_have_their_folders() {
    let mut profile = with_inside();
    profile.inside[0].blocks[4].file = Some("/src/other/app.c".to_owned());
    let text = annotated(&profile, None);
    for place in ["/src/other/app.c:3", "/src/app/app.c:20"] {
        assert!(text.contains(&format!("  {place}\n")), "{place}: {text}");
    }
}

#[test]
fn a_profile_without_counts_inside_is_refused() {
    let error = to_annotate(&sample(), None, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::NoInside));
    assert!(error.hint().is_some_and(|hint| hint.contains("--edges")));
}

proptest! {
    /// Names and texts from elsewhere cannot add lines or control the terminal.
    #[test]
    fn any_names_make_plain_lines(
        name in any::<String>(),
        file in any::<String>(),
        text in any::<String>(),
        line in any::<u32>(),
        count in any::<u64>(),
    ) {
        let mut profile = with_inside();
        let lines = annotated(&profile, Some(&code(&profile))).lines().count();
        profile.functions[0].name.clone_from(&name);
        profile.modules[0].path.clone_from(&name);
        let mut code = code(&profile);
        code.files[0].clone_from(&file);
        let instruction = &mut code.listings[0].blocks.as_mut().unwrap()[1][0];
        instruction.text.clone_from(&text);
        instruction.callee = text;
        instruction.source = Some((line as usize % 3, line));
        let first = &mut profile.inside[0].blocks[1];
        first.count = count;
        (first.file, first.line) = (Some(file), Some(line));
        profile.inside[0].edges[0].count = count;
        profile.inside[0].loops[0].entries = count;
        code.listings[1].blocks = Err(name);
        let out = annotated(&profile, Some(&code));
        prop_assert!(!out.replace('\n', "").contains(is_active));
        prop_assert!(out.lines().count() <= lines + 8, "{}", out);
    }
}
