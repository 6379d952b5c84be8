//! Counts of source lines in exports, compared with those of gcov and of the program itself.

use ipath_tests::command::Run;
use ipath_tests::lines::{Counted, Lines};
use std::fs;

/// The text of an annotation.
fn annotation(counted: &Counted) -> String {
    fs::read_to_string(counted.export("annotate")).expect("a text")
}

/// The counts of the source lines in an annotation.
fn lines_of(text: &str) -> Lines {
    let rows = text.lines().map(str::split_whitespace);
    let counts = rows.filter_map(|mut words| {
        let count = words.next()?.parse().ok()?;
        // The share is a number and a percent sign, or a dash.
        let _share = words.next()?;
        let place = words.find(|word| *word != "%")?;
        place
            .starts_with("own_lines.")
            .then(|| (place.to_owned(), count))
    });
    counts.collect()
}

/// The counts of the lines of `own_lines.c` that callgrind_annotate prints beside its source.
fn lines_by_callgrind(counted: &Counted) -> Lines {
    let run = Run::new("callgrind_annotate").args(["--auto=yes", "--threshold=100"]);
    let run = run.arg("--show=executed").arg(counted.export("callgrind"));
    let read = run.run().expect(0);
    assert_eq!(read.stderr, "", "{}", read.report());
    let start = read.stdout.split("-- Auto-annotated source: ");
    let section = start.skip(1).find(|section| {
        let name = section.lines().next();
        name.is_some_and(|name| name.ends_with("own_lines.c"))
    });
    let mut lines = Lines::new();
    let mut number = None;
    for line in section.expect("the source").lines() {
        if let Some(mark) = line.strip_prefix("-- line ") {
            number = mark.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        } else if let Some(number) = &mut number {
            let count = line
                .split_whitespace()
                .next()
                .map(|word| word.replace(',', ""));
            if let Some(count) = count.and_then(|word| word.parse().ok()) {
                lines.insert(format!("own_lines.c:{number}"), count);
            }
            *number += 1;
        }
    }
    lines
}

/// The counts of the lines of `work` that go prints beside their source.
fn lines_by_go(counted: &Counted) -> Lines {
    let list = ["tool", "pprof", "-sample_index=executed", "-list=^work$"];
    let run = Run::new("go").args(list).arg(counted.export("pprof"));
    let run = run.env("HOME", counted.scratch.path()).env("GOFLAGS", "");
    let read = run.run().expect(0);
    let mut lines = Lines::new();
    let mut file = "";
    for line in read.stdout.lines() {
        if let Some((_, path)) = line.split_once(" work in ") {
            file = path.rsplit('/').next().unwrap_or(path);
        }
        let mut words = line.split_whitespace();
        if let (Some(count), Some(_), Some(place)) = (words.next(), words.next(), words.next())
            && let (Ok(count), Some((number, _))) = (count.parse(), place.split_once(':'))
        {
            lines.insert(format!("{file}:{number}"), count);
        }
    }
    lines
}

/// The lines of `expected`, with their counts in `found`.
fn those_of(expected: &Lines, found: &Lines) -> Lines {
    let count = |place: &String| Some((place.clone(), *found.get(place)?));
    expected.keys().filter_map(count).collect()
}

/// Each line without optimization has the count of gcov. One activation in four leaves inside a
/// call.
#[test]
fn lines_have_the_counts_of_gcov() {
    let counted = Counted::new("annotated-gcov", &["-O0"]);
    let expected = counted.by_gcov();
    assert!(expected.len() > 15, "{expected:?}");
    let text = annotation(&counted);
    assert_eq!(those_of(&expected, &lines_of(&text)), expected, "{text}");
}

/// Readers of other formats show the same counts.
#[test]
fn other_tools_show_the_counts_of_gcov() {
    let counted = Counted::new("annotated-tools", &["-O0"]);
    let expected = counted.by_gcov();
    let found = lines_by_callgrind(&counted);
    assert_eq!(those_of(&expected, &found), expected, "{found:?}");
    // Go shows no line that was not executed.
    let mut expected = expected;
    expected.retain(|_, count| *count > 0);
    let found = lines_by_go(&counted);
    assert_eq!(those_of(&expected, &found), expected, "{found:?}");
    // Lines of the inlined function are in the other file.
    let counted = Counted::new("annotated-inlined", &["-O2"]);
    let expected = counted.own();
    let found = lines_by_go(&counted);
    assert_eq!(those_of(&expected, &found), expected, "{found:?}");
}

/// Optimized code has the counts of the program itself, also of the lines of an inlined function.
#[test]
fn lines_have_the_counts_of_the_program() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-no-pie"], &["-Os"]] {
        let counted = Counted::new("annotated-own", flags);
        let expected = counted.own();
        assert!(expected.len() > 7, "{}", counted.output);
        let text = annotation(&counted);
        let found = those_of(&expected, &lines_of(&text));
        assert_eq!(found, expected, "{flags:?}: {text}");
        for part in [
            "own_lines.h:9  ",
            "own[__LINE__]++;",
            "header of loop",
            "call 0x",
            "<leaves>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("no text"), "{text}");
    }
}

/// The instructions are those that objdump prints: the same addresses, in the same order.
#[test]
fn instructions_are_those_of_objdump() {
    let counted = Counted::new("annotated-objdump", &["-O2"]);
    let text = annotation(&counted);
    let own = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("0x"));
    let own: Vec<(String, String)> = own
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect();
    let dump = Run::new("objdump").args(["-d", "--no-show-raw-insn", "-M", "intel"]);
    let dump = dump
        .arg("--disassemble=work")
        .arg(counted.scratch.file("own_lines"));
    let dump = dump.run().expect(0);
    let rows = dump
        .stdout
        .lines()
        .filter_map(|line| line.trim_start().split_once(":\t"));
    let rows = rows.filter_map(|(address, text)| {
        Some((
            address.to_owned(),
            // objdump has another name for a move of 64 bits.
            text.split_whitespace().next()?.replace("movabs", "mov"),
        ))
    });
    let all: Vec<(String, String)> = rows.collect();
    assert!(own.len() > 30, "{text}");
    for one in &own {
        assert!(all.contains(one), "{one:?}: {}", dump.stdout);
    }
    // Only padding is in no block.
    for one in all.iter().filter(|one| !own.contains(one)) {
        let is_padding = ["nop", "data16", "cs", "xchg"].contains(&one.1.as_str());
        assert!(is_padding, "{one:?}: {text}");
    }
}

/// Without the file, with another file, or without the source there is one note for each, and the
/// counts of the lines at which blocks begin.
#[test]
fn missing_files_are_named() {
    let counted = Counted::new("annotated-missing", &["-O2"]);
    let program = counted.scratch.file("own_lines");
    let source = counted.scratch.file("own_lines.c");
    let noted = |why: &str| {
        let text = annotation(&counted);
        assert_eq!(text.matches(why).count(), 1, "{why}: {text}");
        assert!(text.contains("header of loop"), "{text}");
        text
    };
    fs::write(&source, fs::read(&source).expect("a source")).expect("an own folder");
    let text = noted("own_lines.c: newer than the file of the module");
    assert!(
        text.contains("own_lines.c:2") && !text.contains("long i = 0"),
        "{text}"
    );
    fs::remove_file(&source).expect("an own folder");
    noted("own_lines.c: no such file or directory");
    let changed = "printf 'int main(void) { return 0; }' | gcc -x c -o \"$0\" -";
    let gcc = Run::new("bash").args(["-c", changed]).arg(&program);
    gcc.run().expect(0);
    noted("own_lines: it has another build id now");
    fs::write(&program, "no program").expect("an own folder");
    noted("no instructions: ");
    fs::remove_file(&program).expect("an own folder");
    let text = noted("own_lines: no such file or directory");
    assert!(!text.contains("0x1030"), "{text}");
    assert!(lines_of(&text).len() > 5, "{text}");
}

/// Profiles may come from anyone: blocks outside of the file have a note, and the number of
/// instructions is bounded.
#[test]
fn hostile_profiles_are_annotated_within_bounds() {
    let counted = Counted::new("annotated-hostile", &["-O2"]);
    let text = fs::read_to_string(&counted.file).expect("a profile");
    let profile: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let annotated = |profile: &serde_json::Value| {
        fs::write(&counted.file, profile.to_string()).expect("an own folder");
        let run = Run::ipath(["export", "--to", "annotate", "-o", "-"]).arg(&counted.file);
        let finished = run.run().expect(0);
        let kib = finished.cost.max_rss_kib;
        assert!(kib < 500_000, "{kib} KiB");
        finished.stdout
    };
    for (field, number) in [("size", u64::MAX), ("address", u64::MAX), ("size", 1 << 40)] {
        let mut other = profile.clone();
        other["inside"][0]["blocks"][1][field] = number.into();
        let text = annotated(&other);
        assert_eq!(
            text.matches("a block is not in the file").count(),
            1,
            "{text}"
        );
        assert!(text.contains("header of loop"), "{text}");
    }
    let mut many = profile.clone();
    many["inside"] = vec![profile["inside"][0].clone(); 6000].into();
    let text = annotated(&many);
    assert!(text.contains("no instructions: there are too many"));
    assert!(text.contains("call 0x"));
    let mut elsewhere = profile;
    for module in elsewhere["modules"].as_array_mut().expect("modules") {
        module["path"] = "/dev/zero".into();
    }
    let text = annotated(&elsewhere);
    assert!(text.contains("/dev/zero: not a regular file"), "{text}");
}

/// A profile without counts inside functions is refused in one line.
#[test]
fn a_profile_without_counts_is_refused() {
    let counted = Counted::new("annotated-none", &["-O2"]);
    let text = fs::read_to_string(&counted.file).expect("a profile");
    let mut profile: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    profile["inside"] = serde_json::json!([]);
    fs::write(&counted.file, profile.to_string()).expect("an own folder");
    let run = Run::ipath(["export", "--to", "annotate", "-o", "-"]).arg(&counted.file);
    let refused = run.run();
    assert!(
        refused.expect_error().contains("was not counted"),
        "{}",
        refused.report()
    );
    assert!(refused.hints().contains("--edges"), "{}", refused.report());
}
