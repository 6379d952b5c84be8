//! Points at each instruction of programs that are hard to patch: the programs notice nothing, and
//! the counts equal gdb's.

use ipath_tests::compile::program_with;
use ipath_tests::exact::assert_output_kept;
use ipath_tests::oracle;
use ipath_tests::pointed::{at, check_with_gdb, disassembled, instructions, run_with, site};
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use ipath_tests::symbols::Site;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// The address ranges of a program's functions, according to nm.
fn functions(program: &Path) -> Vec<Range<u64>> {
    let mut nm = Command::new("nm");
    let listed = nm.args(["-S", "--defined-only"]).arg(program).output();
    let text = listed.expect("nm").stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let range = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[start, size, "T" | "t" | "W" | "w", _] = &fields[..] else {
            return None;
        };
        let [start, size] = [start, size].map(|n| u64::from_str_radix(n, 16).ok());
        Some(start?..start? + size?)
    };
    text.lines().filter_map(range).collect()
}

/// The addresses of all instructions in functions, except those with a repeat prefix, for which gdb
/// counts every repetition.
fn all_instructions(program: &Path) -> Vec<u64> {
    let functions = functions(program);
    let is_inside = |at: u64| functions.iter().any(|range| range.contains(&at));
    let all = disassembled(program, "-j.text").into_iter();
    let all = all.filter(|(at, text)| is_inside(*at) && !text.starts_with("rep"));
    all.map(|(at, _)| at).collect()
}

/// The largest number of points that get a breakpoint of gdb.
const SITES: usize = 60;
/// The largest number of passes of such a point. A pass takes gdb about 50 us.
const PASSES: u64 = 400;

/// Checks that gdb counts as many passes of some of the points.
fn count_with_gdb(program: &Program, profile: &Profile, addresses: &[u64]) {
    let functions = profile.functions.iter();
    let counted: BTreeMap<u64, u64> = functions.map(|f| (f.address, count(&f.totals))).collect();
    let few = addresses
        .iter()
        .filter(|at| counted.get(at).is_some_and(|&n| n <= PASSES));
    let few: Vec<u64> = few.copied().collect();
    let step = few.len().div_ceil(SITES).max(1);
    let name = program.path.file_name().expect("a name").to_string_lossy();
    let sites: Vec<Site> = few
        .iter()
        .step_by(step)
        .map(|&address| site(&program.path, address))
        .collect();
    let found = oracle::counts(program, &sites);
    let mut theirs: BTreeMap<u64, u64> = sites.iter().map(|site| (site.address, 0)).collect();
    for path in &found.paths {
        *theirs.entry(sites[path.site].address).or_default() += path.hits;
    }
    let ours = theirs.keys().map(|at| (*at, counted[at])).collect();
    assert_eq!(theirs, ours, "{name}");
    println!("{name}: {}", found.summary());
}

/// Checks all instructions of a program at once: alone, with breakpoints where nothing else has
/// room, and with all functions. At most `most` percent may be refused.
fn check(source: &str, most: usize) {
    let path = program_with(source, &[]);
    let program = Program::new(&path, [""; 0]);
    let all = all_instructions(&path);
    let plain = program.plain();
    let name = path.file_name().expect("a name").to_string_lossy();
    let functions = format!("{name}!*");
    for more in [&[][..], &["--allow-trap"], &["-f", &functions]] {
        let mut arguments = at(&path, all.iter().copied());
        arguments.extend(more.iter().map(|&more| more.to_owned()));
        let (ours, profile) = run_with(&program, &arguments);
        assert_output_kept(&plain, &ours);
        let refused = profile.refused.iter().filter_map(|r| r["address"].as_u64());
        let refused: Vec<u64> = refused.filter(|at| all.contains(at)).collect();
        println!(
            "{source} {more:?}: {} of {} refused",
            refused.len(),
            all.len()
        );
        assert!(
            refused.len() * 100 <= all.len() * most,
            "{source} {more:?}: {refused:x?}"
        );
        // `_start` has no caller.
        let is_point = |path: &&CallPath| profile.functions[path.function].point;
        let mut of_points = profile.paths.iter().filter(is_point);
        assert!(of_points.all(|path| path.complete), "{source} {more:?}");
        if more.is_empty() {
            count_with_gdb(&program, &profile, &all);
        }
    }
}

#[test]
fn where_branches_go_into_windows() {
    check("branch_into_window.c", 15);
}

#[test]
fn where_jump_tables_go_into_windows() {
    check("jump_table_into_window.c", 40);
}

#[test]
fn where_landing_pads_are_in_windows() {
    check("landing_pad_into_window.cc", 20);
}

#[test]
fn where_gotos_are_computed() {
    check("computed_goto.c", 20);
}

#[test]
fn where_data_is_in_code() {
    check("data_in_code.c", 50);
}

#[test]
fn where_functions_have_cold_parts() {
    check("cold_part.c", 10);
}

#[test]
fn where_functions_leave_by_jumps() {
    check("tail_exits.c", 25);
}

#[test]
fn where_exceptions_pass() {
    check("exceptions.cc", 6);
}

#[test]
fn where_frames_are_realigned() {
    check("realigned.c", 55);
}

#[test]
fn where_threads_go_many_ways() {
    check("paths.cc", 5);
}

/// Walks that need all registers: those of the callers come from the function's saved registers.
#[test]
fn called_from_realigned_frames() {
    let program = Program::new(&program_with("realigned.c", &["-O0"]), [""; 0]);
    check_with_gdb(&program, "work");
    let program = Program::new(&program_with("realigned.c", &[]), [""; 0]);
    check_with_gdb(&program, "work");
}

/// Points in a static program are passed as often, and on the same paths, as gdb finds.
#[test]
fn in_a_static_program() {
    let program = Program::new(&program_with("points.c", &["-static"]), ["2", "6"]);
    check_with_gdb(&program, "recurse");
}

/// Points in C++ code with exceptions are passed as often, and on the same paths, as gdb finds.
#[test]
fn in_cpp_with_exceptions() {
    let program = Program::new(&program_with("paths.cc", &[]), [""; 0]);
    check_with_gdb(&program, "_ZN8geometry4areaEl");
}

/// Go functions: no unwind tables, and stacks that move between two points of one call.
#[test]
fn in_go_programs_notice_nothing_and_paths_are_complete() {
    let program = Program::new(&program_with("paths.go", &[]), [""; 0]);
    let plain = program.plain().expect(0);
    for (function, calls) in own_counts(&plain.stdout) {
        let all = instructions(&program.path, &function);
        let (ours, profile) = run_with(&program, &at(&program.path, all.iter().copied()));
        assert_output_kept(&plain, &ours);
        let counted = |at: u64| {
            let mut functions = profile.functions.iter();
            functions
                .find(|f| f.address == at)
                .map(|f| count(&f.totals))
        };
        // After growing the stack, the function is entered again.
        println!("{function}: {calls} calls, {:?} entered", counted(all[0]));
        assert!(counted(all[0]) >= Some(calls), "{function}");
        let known = all.iter().filter(|&&at| counted(at).is_some()).count();
        assert!(
            known * 2 > all.len(),
            "{function}: {known} of {}",
            all.len()
        );
        assert_eq!((profile.losses.missed, profile.losses.overflow), (0, 0));
        profile.assert_complete("every path ends at a root of Go's");
    }
}
