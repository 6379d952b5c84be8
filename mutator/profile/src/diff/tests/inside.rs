//! Comparisons of counts inside functions.

use super::*;
use crate::sample::with_paths;

/// The text with each run of spaces as one.
fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn shown_of(old: &Profile, new: &Profile) -> String {
    squeezed(&shown(&Diff::of(old, new, "wall")))
}

/// Another build of the sample: code is at other addresses, blocks have other sizes.
fn rebuilt() -> Profile {
    let mut new = with_paths();
    for module in &mut new.modules {
        module.build_id = module.build_id.as_ref().map(|id| format!("{id}00"));
    }
    for function in &mut new.functions {
        function.address += 0x100;
    }
    for block in new.inside.iter_mut().flat_map(|inside| &mut inside.blocks) {
        block.address += 0x100;
        block.size += 1;
    }
    new
}

/// Lines whose counts differ are shown for functions that both sides have counted.
#[test]
fn counts_of_lines_are_compared() {
    let old = with_inside();
    let mut new = with_inside();
    new.inside[0].blocks[2].count += 4016;
    new.inside[0].blocks[4].line = Some(4);
    let text = shown_of(&old, &new);
    let expected = "
Inside work: 1004 activations (were 1004)
  count   were   change      line
  44176  40160  +10.0 %  app.c:23
      0    120  -100.0 %   app.h:3
    120      0        -   app.h:4
";
    assert!(text.contains(&squeezed(expected)), "{text}");
    let mut out = Vec::new();
    super::text(&Diff::of(&old, &new, "wall"), Some(1), &mut out).unwrap();
    let few = String::from_utf8(out).unwrap();
    assert!(few.contains("2 more lines, not shown"), "{few}");
    for (old, new) in [(&old, &old), (&sample(), &new)] {
        assert!(!shown_of(old, new).contains("Inside"));
    }
    let several = Diff::of_runs(vec![&old, &old], vec![&new], "wall");
    assert!(!shown(&several).contains("Inside"));
}

/// Paths of two builds are equal if their lines are. The largest change comes first.
#[test]
fn paths_of_other_builds_are_compared_by_lines() {
    let old = with_paths();
    let mut new = rebuilt();
    new.inside[0].paths[0].count += 4;
    new.inside[0].paths[3].count *= 2;
    new.inside[0].paths.remove(4);
    let text = shown_of(&old, &new);
    let expected = "
Inside work: 1004 activations (were 1004)
count were change path
39920 19960 +100.0 % loop 23 24 again
0 120 -100.0 % loop 23 24 app.h:3 again
1008 1004 +0.4 % entry 20 22 23 24 again
not exact";
    assert!(text.contains(expected.trim()), "{text}");
    let mut out = Vec::new();
    super::text(&Diff::of(&old, &new, "wall"), Some(1), &mut out).unwrap();
    let few = squeezed(&String::from_utf8(out).unwrap());
    assert!(
        few.contains("loop 23 24 again\n2 more paths, not shown; --limit 0 shows all"),
        "{few}"
    );
    // A path in another folder is the same file.
    for block in &mut new.inside[0].blocks {
        block.file = block.file.as_ref().map(|file| format!("/other{file}"));
    }
    let elsewhere = shown_of(&old, &new);
    let paths = |text: &str| text.split_once("change path").unwrap().1.to_owned();
    assert_eq!(paths(&elsewhere), paths(&text));
    assert!(!shown_of(&old, &rebuilt()).contains("change path"));
    assert!(!shown_of(&with_inside(), &new).contains("change path"));
}

/// A compiler may divide code on the same lines otherwise.
#[test]
fn paths_on_the_same_lines_are_added_up() {
    let old = with_paths();
    let mut new = rebuilt();
    // Block 4 is now on the line of block 3, so two paths have the same lines.
    new.inside[0].blocks[4]
        .file
        .clone_from(&old.inside[0].blocks[3].file);
    new.inside[0].blocks[4].line = old.inside[0].blocks[3].line;
    let text = shown_of(&old, &new);
    assert!(
        text.contains("20080 19960 +0.6 % loop 23 24 again\n0 120 -100.0 % loop 23 24 app.h:3"),
        "{text}"
    );
}

/// Offsets mean the same code only in equal graphs.
#[test]
fn paths_without_lines_are_compared_in_equal_graphs() {
    let stripped = |mut profile: Profile| {
        for block in &mut profile.inside[0].blocks {
            block.line = None;
        }
        profile.inside[0].paths[3].count += 40;
        profile
    };
    let mut old = stripped(with_paths());
    let mut new = stripped(rebuilt());
    new.inside[0].paths[3].count += 60;
    let text = shown_of(&old, &new);
    let note = "paths through blocks without lines: 41264 (were 41204), not compared because the \
        graphs differ";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains("again"), "{text}");
    // The other side's paths are not new.
    let text = shown_of(&old, &rebuilt());
    assert!(
        text.contains("blocks without lines: 0 (were 41204)"),
        "{text}"
    );
    assert!(!text.contains("again"), "{text}");
    for block in &mut old.inside[0].blocks {
        block.size += 1;
    }
    let text = shown_of(&old, &new);
    assert!(
        text.contains("20060 20000 +0.3 % loop +0xe +0x14 again"),
        "{text}"
    );
    assert!(!text.contains("not compared"), "{text}");
}

#[test]
fn paths_in_no_count_are_said() {
    let old = with_paths();
    let mut new = rebuilt();
    new.inside[0].paths[3].count -= 5;
    let totals = new.inside[0].path_totals.as_mut().unwrap();
    (totals.unknown, totals.uncounted) = (2, 3);
    let text = shown_of(&old, &new);
    assert!(text.contains("paths in no count: 5 (were 0)"), "{text}");
}

/// Unchanged counts are in the data too, and readers of `paths` find call paths only.
#[test]
fn counts_inside_are_a_key_of_their_own() {
    let old = with_paths();
    let mut new = rebuilt();
    new.inside[0].paths[3].count += 40;
    let value = serde_json::to_value(json(&Diff::of(&old, &new, "wall"))).unwrap();
    assert_eq!(value["paths"].as_array().unwrap().len(), old.paths.len());
    let inside = value["inside"].as_array().unwrap();
    let work = inside.iter().find(|f| f["function"] == "work").unwrap();
    assert_eq!(work["activations"], serde_json::json!([1004, 1004]));
    assert_eq!(
        work["lines"][0],
        serde_json::json!({"file": "/src/app/app.c", "line": 20, "counts": [1004, 1004]})
    );
    let paths = work["paths"].as_array().unwrap();
    assert_eq!(
        paths[0],
        serde_json::json!({"path": ["loop", "23", "24", "again"], "counts": [19_960, 20_000]})
    );
    assert_eq!(paths.len(), 6);
    let other = inside.iter().find(|f| f["function"] != "work").unwrap();
    assert!(other.get("paths").is_none(), "{other:#}");
    let several = Diff::of_runs(vec![&old, &old], vec![&new], "wall");
    let value = serde_json::to_value(json(&several)).unwrap();
    assert_eq!(value["inside"], serde_json::json!([]));
}
