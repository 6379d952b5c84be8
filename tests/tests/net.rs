//! Paths checked against the code: the instructions reveal paths that come from wrong unwind
//! tables.

use ipath_tests::command::Run;
use ipath_tests::compile::{build, source};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::racing::{Chance, rounds};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The function and the offset of each frame, the caller's first.
type Stack = Vec<(String, u64)>;

/// The frames of a path as in [`Stack`].
fn stack(profile: &Profile, path: &CallPath) -> Stack {
    let frame = |&index: &usize| {
        let frame = &profile.frames[index];
        let function = frame.function.clone().unwrap_or_default();
        (function, frame.offset.unwrap_or(frame.address))
    };
    path.stack.iter().map(frame).collect()
}

/// The assembly of a program with one falsified unwind row, and a description of the change.
fn made_wrong(assembly: &str, chance: &mut Chance) -> (String, String) {
    const ROWS: [&str; 4] = [
        ".cfi_def_cfa_offset",
        ".cfi_def_cfa ",
        ".cfi_offset",
        ".cfi_def_cfa_register",
    ];
    let mut lines: Vec<String> = assembly.lines().map(str::to_owned).collect();
    let is_row = |line: &str| ROWS.iter().any(|row| line.contains(row));
    // Rows of complete frames at calls.
    let frames: Vec<(usize, i64)> = (0..lines.len())
        .filter(|&at| lines[at].contains(".cfi_def_cfa_offset"))
        .filter_map(|at| Some((at, number_at_end(&lines[at])?)))
        .filter(|&(_, offset)| offset > 48)
        .collect();
    let rows: Vec<usize> = (0..lines.len()).filter(|&at| is_row(&lines[at])).collect();
    let kind = chance.below(6);
    let at = match kind {
        0..=2 => chance.of(&frames).0,
        _ => *chance.of(&rows),
    };
    let was = lines[at].trim().to_owned();
    let number = number_at_end(&was);
    match (kind, number) {
        // Larger by another frame, so that the return address of an outer frame may be taken.
        (0..=2, Some(offset)) => {
            let by = chance.of(&frames).1 * *chance.of(&[1, 1, 1, -1]);
            lines[at] = with_number(&was, offset + by);
        }
        // Another offset, by 8 to 4096 bytes.
        (3, Some(offset)) if !was.contains("register") => {
            let most = *chance.of(&[8, 64, 512]);
            let by = 8 * (1 + chance.below(most) as i64);
            lines[at] = with_number(&was, offset + by);
        }
        // Another register: rbx, rbp, rsp and r12 to r15 by their numbers.
        (4, _) if !was.contains(".cfi_def_cfa_offset") => {
            let register = chance.of(&[3, 6, 7, 12, 13, 14, 15]);
            let digits = was.find(|c: char| c.is_ascii_digit()).expect("a register");
            let rest = was[digits..].trim_start_matches(|c: char| c.is_ascii_digit());
            lines[at] = format!("\t{}{register}{rest}", &was[..digits]);
        }
        // The row begins a few instructions too late.
        _ => {
            let row = lines.remove(at);
            let to = (at + 1 + chance.below(8) as usize).min(lines.len() - 1);
            let end = lines[at..to]
                .iter()
                .position(|l| l.contains(".cfi_endproc"));
            lines.insert(end.map_or(to, |end| at + end), row);
        }
    }
    let text = lines.join("\n") + "\n";
    (text, format!("line {at}: {was}, now {}", lines[at].trim()))
}

/// The last operand of an unwind row; `None` if it is not a number.
fn number_at_end(row: &str) -> Option<i64> {
    row[row.rfind([' ', ',', '\t'])? + 1..].parse().ok()
}

/// An unwind row with another last operand.
fn with_number(row: &str, number: i64) -> String {
    let cut = row.rfind([' ', ',', '\t']).expect("an operand") + 1;
    format!("\t{}{number}", &row[..cut])
}

/// The numbers of calls of `work` by path: on paths that claim to be complete, and on paths that
/// the code contradicts.
fn paths(program: &Path, file: &Path) -> (BTreeMap<Stack, u64>, BTreeMap<Stack, u64>) {
    let ours = Program::new(program, [""; 0]).under_ipath(&["work"], "count", file);
    assert_eq!(ours.code(), 0, "{}", ours.report());
    let profile = Profile::read_contradicted(file);
    let mut found = (BTreeMap::new(), BTreeMap::new());
    for path in &profile.paths {
        let by_stack = match (path.complete, path.contradicted) {
            (true, _) => &mut found.0,
            (false, Some(_)) => &mut found.1,
            (false, None) => continue,
        };
        *by_stack.entry(stack(&profile, path)).or_default() += count(&path.metrics);
    }
    found
}

/// The path of the program with this assembly.
fn assembled(text: &str, scratch: &Scratch, name: &str) -> PathBuf {
    let file = scratch.file(&format!("{name}.S"));
    fs::write(&file, text).expect("written");
    let output = scratch.file(name);
    let gcc = Run::new("gcc").arg("-o").arg(&output).arg(&file);
    gcc.run().expect(0);
    output
}

/// Rows that are wrong by 8 to 4096 bytes, name another register or begin late. Of the calls on
/// wrong paths that the walk considers complete, at least 99 of 100 are caught. No call on a
/// correct path is.
#[test]
fn wrong_tables_are_seen_by_the_instructions() {
    let scratch = Scratch::new("wrong-tables");
    let made = Run::new("gcc")
        .args(["-O2", "-S", "-o"])
        .arg(scratch.file("framed.s"));
    made.arg(source("framed.c")).run().expect(0);
    let assembly = fs::read_to_string(scratch.file("framed.s")).expect("gcc has written it");
    let file = scratch.file("p.json");
    let (truth, contradicted) = paths(&assembled(&assembly, &scratch, "right"), &file);
    assert!(truth.len() > 20 && contradicted.is_empty(), "{truth:?}");
    let (mut caught, mut missed, mut tables) = (0, 0, 0);
    for seed in 1..=rounds(80) as u64 {
        let mut chance = Chance::seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (text, what) = made_wrong(&assembly, &mut chance);
        let (complete, contradicted) = paths(&assembled(&text, &scratch, "wrong"), &file);
        for stack in contradicted.keys() {
            assert!(
                !truth.contains_key(stack),
                "seed {seed}, {what}: {stack:?} is right"
            );
        }
        let mut missed_here = 0;
        for (stack, calls) in &complete {
            missed_here += calls.saturating_sub(truth.get(stack).copied().unwrap_or(0));
        }
        if missed_here > 0 {
            println!("seed {seed}, {what}: {missed_here} calls on wrong paths");
        }
        let caught_here: u64 = contradicted.values().sum();
        tables += u64::from(caught_here + missed_here > 0);
        caught += caught_here;
        missed += missed_here;
    }
    println!("{tables} tables with wrong paths: {caught} calls caught, {missed} missed");
    assert!(tables > 2 && caught > 0);
    assert!(
        missed * 100 <= caught + missed,
        "{caught} caught, {missed} missed"
    );
}

/// The report names the pair of frames and does not claim that nothing was lost.
#[test]
fn contradicted_paths_are_said() {
    let scratch = Scratch::new("contradicted");
    let program = build(&source("contradicted.S"), &[]);
    let file = scratch.file("p.json");
    let ours = Program::new(&program, [""; 0]).under_ipath(&["work"], "count,wall", &file);
    assert_eq!(ours.code(), 0, "{}", ours.report());
    let profile = Profile::read_contradicted(&file);
    let exactness = profile.exactness.as_ref().expect("checked");
    assert_eq!(exactness.contradicted, 10, "{exactness:?}");
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    assert!(report.contains("contradicted 10"), "{report}");
    let line = "the call before outer+0x";
    assert!(
        report.contains(line) && report.contains("cannot have led to inner+0x"),
        "{report}"
    );
    assert!(!report.contains("Nothing was lost"), "{report}");
}
