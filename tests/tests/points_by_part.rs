//! Points that are named by source lines, blocks and loops, compared with the program's own counts.
//! counts.

use ipath_tests::command::Run;
use ipath_tests::compile::{program_with, source};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const CALLS: u64 = 40;

/// The number of the line of the program with this mark.
fn line(mark: &str) -> usize {
    let text = fs::read_to_string(source("lines.c")).expect("the program's source");
    let found = text.lines().position(|line| line.contains(mark));
    found.expect("a line with the mark") + 1
}

/// The executions of each point, by the function of its name.
fn executions(profile: &Profile) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for function in &profile.functions {
        let (name, _) = function
            .name
            .split_once("+0x")
            .expect("the name of a point");
        let counts = found.entry(name.to_owned()).or_default();
        counts.push(count(&function.totals));
    }
    found
}

fn measured(program: &Path, places: &[String]) -> BTreeMap<String, Vec<u64>> {
    let scratch = Scratch::new("points_by_part");
    let file = scratch.file("p.json");
    let mut run = Run::ipath(["run", "--no-tui", "-o"]).arg(&file);
    for place in places {
        run = run.args(["--at", place]);
    }
    let run = run.arg("--").arg(program).arg(CALLS.to_string());
    run.run().expect(0);
    executions(&Profile::read(&file))
}

/// Each copy of an inlined line is a point in the function that contains it.
#[test]
fn points_by_line_are_what_the_program_executes() {
    for flags in [&["-g"][..], &["-g", "-gdwarf-4", "-fno-omit-frame-pointer"]] {
        let program = program_with("lines.c", flags);
        for file in ["lines.c", "programs/lines.c", "lines*!lines.c"] {
            let step = format!("{file}:{}", line("step:"));
            let found = measured(&program, &[step]);
            let expected = [("thrice", 3 * CALLS), ("five", 5 * CALLS)];
            let expected = expected.map(|(name, calls)| (name.to_owned(), vec![calls]));
            assert_eq!(found, BTreeMap::from(expected), "{flags:?}: {file}");
        }
        let branches = ["fourth:", "other:"].map(|mark| format!("lines.c:{}", line(mark)));
        let found = measured(&program, &branches);
        let mut choose = found["choose"].clone();
        choose.sort_unstable();
        assert_eq!(choose, [CALLS / 4, CALLS - CALLS / 4], "{found:?}");
    }
}

#[test]
fn points_by_line_come_and_go() {
    let program = program_with("lines.c", &["-g"]);
    let [step, fourth] = ["step:", "fourth:"].map(|mark| format!("lines.c:{}", line(mark)));
    let target = Target::start(&program, ["1000", "wait"]);
    let mut target = target.await_output("ready");
    let pid = target.pid().to_string();
    let keep = ["--keep", "--no-tui", "--duration", "1ms"];
    Run::ipath(["attach", &pid, "--at", &step])
        .args(keep)
        .run()
        .expect(0);
    Run::ipath(["add", &pid, "--at", &fourth]).run().expect(0);
    let removed = Run::ipath(["remove", &pid, "--at", &step]).run().expect(0);
    for name in ["thrice+0x", "five+0x"] {
        assert!(removed.stdout.contains(name), "{}", removed.report());
    }
    let session = Session::of(target.pid());
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(60), "its end", |t| {
        t.stdout().contains("ok")
    });
    let found = executions(&session.detach());
    assert_eq!(found["choose"], [250], "{found:?}");
    assert_eq!((&found["thrice"], &found["five"]), (&vec![0], &vec![0]));
}

/// A line without code is refused with the lines near it that have code, an unknown file by name.
#[test]
fn points_by_line_that_has_no_code_are_refused() {
    let program = program_with("lines.c", &["-g"]);
    let first = line("static inline");
    let refused = |place: String| {
        let run = Run::ipath(["run", "--no-tui", "--at", &place, "--"]).arg(&program);
        let refused = run.arg("1").run();
        let said = refused.expect_error();
        assert!(
            said.contains(&format!("no instruction matches '{place}'")),
            "{said}"
        );
        refused.stderr
    };
    let said = refused(format!("lines.c:{}", first - 1));
    let near = format!("lines near it with code: {first}, ");
    assert!(said.contains(&near), "{said}");
    let said = refused("nosuch.c:5".to_owned());
    assert!(
        said.contains("no debug information of the process names nosuch.c"),
        "{said}"
    );
}

/// The function `name` of a program, with its blocks and loops.
fn listed(program: &Path, name: &str) -> Value {
    let list = Run::ipath(["list", "--blocks", "--json"])
        .arg(program)
        .arg(name);
    let mut listing: Value = serde_json::from_str(&list.run().expect(0).stdout).expect("JSON");
    listing["functions"][0]["inside"].take()
}

/// Every block of a function is a point. As many executions enter a block as leave it.
#[test]
fn points_by_block_conserve_the_flow() {
    let program = program_with("lines.c", &["-g"]);
    for (name, calls) in [("choose", CALLS), ("thrice", CALLS)] {
        let inside = listed(&program, name);
        let blocks = inside["blocks"].as_array().expect("blocks");
        assert!(blocks.len() > 2, "{inside}");
        let scratch = Scratch::new("points_by_part");
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "-o"]).arg(&file);
        let run = run.args(["--at", &format!("{name}:blocks"), "--"]);
        run.arg(&program).arg(CALLS.to_string()).run().expect(0);
        let report = Run::ipath(["report"]).arg(&file).run().expect(0);
        assert!(report.stdout.contains(", lines.c:"), "{}", report.report());
        let profile = Profile::read(&file);
        let executions = |block: &Value| {
            let address = block["address"].as_u64().expect("an address");
            let mut points = profile.functions.iter();
            let point = points.find(|point| point.address == address);
            count(
                &point
                    .unwrap_or_else(|| panic!("no point at {address:#x}"))
                    .totals,
            )
        };
        let counts: Vec<u64> = blocks.iter().map(executions).collect();
        assert_eq!(counts[0], calls, "{counts:?}");
        let successors = |block: &Value| {
            let to = block["to"].as_array().expect("numbers").iter();
            to.map(|n| n.as_u64().expect("a number") as usize)
                .collect::<Vec<_>>()
        };
        for (number, block) in blocks.iter().enumerate() {
            let to = successors(block);
            // All that leaves a block enters one that has no other predecessor, or leaves more.
            let is_alone = |&to: &usize| {
                blocks
                    .iter()
                    .filter(|b| successors(b).contains(&to))
                    .count()
                    == 1
            };
            let after: u64 = to.iter().map(|&to| counts[to]).sum();
            if to.iter().all(is_alone) && !to.is_empty() {
                assert_eq!(counts[number], after, "block{number}: {counts:?}: {inside}");
            } else if !to.is_empty() {
                assert!(
                    counts[number] <= after,
                    "block{number}: {counts:?}: {inside}"
                );
            }
        }
        let left = blocks
            .iter()
            .zip(&counts)
            .filter(|(block, _)| successors(block).is_empty());
        assert_eq!(
            left.map(|(_, count)| count).sum::<u64>(),
            calls,
            "{counts:?}"
        );
    }
}

/// A loop's header is executed once for each iteration, in each function that has the loop.
#[test]
fn points_by_loop_count_iterations() {
    let program = program_with("lines.c", &["-g"]);
    let loops = ["thrice:loop0", "five:loop0"].map(str::to_owned);
    let found = measured(&program, &["thrice:loops".to_owned(), loops[1].clone()]);
    assert_eq!(found, measured(&program, &loops));
    assert_eq!(found["thrice"], [3 * CALLS]);
    assert_eq!(found["five"], [5 * CALLS]);
    // The same by the address of the function, as in a stripped program.
    let address = listed(&program, "five")["blocks"][0]["address"].as_u64();
    let file = program.file_name().expect("a name").to_string_lossy();
    let place = format!("{file}+{:#x}:loop0", address.expect("an address"));
    assert_eq!(measured(&program, &[place])["five"], [5 * CALLS]);
    for place in ["five:loop1", "five:block99"] {
        let run = Run::ipath(["run", "--no-tui", "--at", place, "--"]).arg(&program);
        let refused = run.arg("1").run();
        let said = refused.expect_error();
        assert!(
            said.contains(&format!("no instruction matches '{place}'")),
            "{said}"
        );
        assert!(
            refused.stderr.contains("loops: 1, both numbered from 0"),
            "{}",
            refused.stderr
        );
    }
}
