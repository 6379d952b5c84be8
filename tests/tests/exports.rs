//! Exports: the tool for each format opens it, and reads the totals of the profile.

use ipath_tests::command::Run;
use ipath_tests::exported::{Exported, measure, numbers};
use ipath_tests::place::Scratch;
use ipath_tests::schema;
use ipath_tests::tools;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// `go tool pprof` and the format's own definition read an export in the format `pprof`.
#[test]
fn pprof_is_read_by_go_and_by_its_definition() {
    let exported = Exported::new("pprof");
    let file = exported.file("pprof", &[]);
    let home = exported.scratch.path().to_owned();
    let go = Run::new("go").args(["tool", "pprof", "-raw"]).arg(&file);
    let go = go.env("HOME", &home).env("GOFLAGS", "").run().expect(0);
    let samples = go.stdout.split_once("Samples:\n").expect("samples").1;
    let samples = samples.split_once("Locations\n").expect("locations").0;
    assert!(
        samples.starts_with("count/calls wall/nanoseconds[dflt] cpu/nanoseconds\n"),
        "{samples}"
    );
    let mut sums = [0u64; 3];
    for line in samples.lines() {
        let Some((values, _)) = line.split_once(':') else {
            continue;
        };
        let values: Option<Vec<u64>> = values.split_whitespace().map(|n| n.parse().ok()).collect();
        for (sum, n) in sums.iter_mut().zip(values.unwrap_or_default()) {
            *sum += n;
        }
    }
    let totals = ["count", "wall", "cpu"].map(|metric| exported.total(metric));
    assert_eq!(sums, totals, "{}", go.report());
    for word in ["path:[incomplete]", "tail:[1 calls]", "Mappings"] {
        assert!(go.stdout.contains(word), "{word}: {}", go.report());
    }
    let build_id = exported.profile["modules"][0]["build_id"].as_str();
    assert!(
        go.stdout.contains(build_id.expect("a build id")),
        "{}",
        go.report()
    );

    let plain = exported.scratch.file("plain");
    let words = format!("gzip -dc {} > {}", file.display(), plain.display());
    Run::new("bash").args(["-c", &words]).run().expect(0);
    let proto = "/usr/share/gocode/src/github.com/google/pprof/proto";
    let decoded = Run::new("protoc")
        .args(["-I", proto, "--decode=perftools.profiles.Profile"])
        .arg(format!("{proto}/profile.proto"))
        .stdin(&plain)
        .run()
        .expect(0);
    let values = decoded
        .stdout
        .lines()
        .filter_map(|l| l.strip_prefix("  value: "));
    let values: Vec<u64> = values.map(|n| n.parse().expect("a number")).collect();
    let sum = |i: usize| values.iter().skip(i).step_by(3).sum::<u64>();
    assert_eq!([sum(0), sum(1), sum(2)], totals);
    // protoc prints unknown fields by their numbers.
    let is_unknown = |l: &str| l.trim_start().starts_with(|c: char| c.is_ascii_digit());
    assert!(
        !decoded.stdout.lines().any(is_unknown),
        "{}",
        decoded.report()
    );
}

/// Adds the control flow inside the first function to a profile: a loop, a line that was executed
/// six times, and one that was not. Its lines are those of `source`.
fn add_inside(profile: &mut Value, source: &Path) {
    let address = profile["functions"][0]["address"].as_u64();
    let address = address.expect("an address");
    let block = |offset: u64, line: u64, count: u64| {
        let address = address + offset;
        json!({"address": address, "size": 4, "file": source, "line": line, "count": count})
    };
    let edge = |kind: &str, from: Option<u64>, to: Option<u64>, count: u64| json!({"from": from, "to": to, "kind": kind, "count": count});
    profile["inside"] = json!([{
        "function": 0, "uncertain": 0,
        "blocks": [block(0, 1, 2), block(4, 2, 6), block(8, 3, 0), block(12, 5, 2)],
        "edges": [edge("entry", None, Some(0), 2), edge("fall", Some(0), Some(1), 2),
            edge("taken", Some(1), Some(1), 4), edge("fall", Some(1), Some(2), 0),
            edge("taken", Some(1), Some(3), 2), edge("fall", Some(2), Some(3), 0),
            edge("exit", Some(3), None, 2)],
        "loops": [{"header": 1, "parent": null, "file": source, "line": 2, "end_line": 2,
            "entries": 2, "iterations": 6}]
    }]);
}

/// `lcov` and `genhtml` read the counts of lines, branches and functions.
#[test]
fn lcov_reads_the_counts_inside_functions() {
    let mut exported = Exported::new("lcov");
    let without = exported.scratch.file("none");
    let refused = exported.export("lcov", &without, &[]).expect_error();
    assert!(refused.contains("no counts of source lines"), "{refused}");
    let source = exported.scratch.file("a.c");
    fs::write(&source, "one\ntwo\nthree\nfour\nfive\n").expect("an own folder");
    add_inside(&mut exported.profile, &source);
    schema::check(&exported.profile).expect("a profile");
    fs::write(&exported.file, exported.profile.to_string()).expect("an own folder");
    let file = exported.file("lcov", &[]);
    let branches = ["--rc", "lcov_branch_coverage=1"];
    let run = Run::new("lcov").arg("--summary").arg(&file).args(branches);
    let read = run.run().expect(0);
    for figure in ["(3 of 4 lines", "(1 of 1 function", "(2 of 3 branches"] {
        assert!(
            read.report().contains(figure),
            "{figure}: {}",
            read.report()
        );
    }
    let pages = exported.scratch.file("pages");
    let run = Run::new("genhtml").arg(&file).arg("-o").arg(&pages);
    run.run().expect(0);
}

/// Another reader of JSON Schema accepts the schema of profiles, and a profile by it.
#[test]
fn profiles_have_their_schema() {
    let exported = Exported::new("schema");
    let file = exported.file("json", &[]);
    let script = "
const Ajv = require('ajv'), fs = require('fs');
const [schema, file] = process.argv.slice(1).map(f => JSON.parse(fs.readFileSync(f)));
const check = new (Ajv.default || Ajv)({allowUnionTypes: true}).compile(schema);
if (!check(file)) { console.error(check.errors); process.exit(1); }
file.paths[0].other = 1;
if (check(file)) throw new Error('a field without a description is accepted');
";
    let packages = tools::node_modules();
    let run = Run::new("node").env("NODE_PATH", packages.as_os_str());
    let run = run.args(["-e", script]).arg(schema::file()).arg(&file);
    run.run().expect(0);
}

#[test]
fn speedscope_takes_it_by_its_schema() {
    let exported = Exported::new("speedscope");
    let file = exported.file("speedscope", &[]);
    let script = "
const Ajv = require('ajv'), fs = require('fs');
const [schema, file] = process.argv.slice(1).map(f => JSON.parse(fs.readFileSync(f)));
const check = new (Ajv.default || Ajv)({strict: false}).compile(schema);
if (!check(file)) { console.error(check.errors); process.exit(1); }
for (const p of file.profiles) {
    const sum = p.weights.reduce((a, b) => a + b, 0);
    if (sum !== p.endValue) throw new Error(p.name);
    console.log(p.name, sum);
}
// In the order of samples, each stack is in one piece, and siblings go from the heaviest to the
// lightest.
for (const p of file.profiles) {
    const blocks = new Map();
    let before = [];
    p.samples.forEach((stack, i) => stack.forEach((_, depth) => {
        const start = stack.slice(0, depth + 1).join(), above = stack.slice(0, depth).join();
        const isNew = before.slice(0, depth + 1).join() !== start;
        if (isNew && blocks.has(start)) throw new Error(p.name + ': ' + start + ' is in pieces');
        if (isNew) blocks.set(start, {above, weight: 0});
        blocks.get(start).weight += p.weights[i];
        if (depth === stack.length - 1) before = stack;
    }));
    const last = new Map();
    for (const {above, weight} of blocks.values()) {
        if (last.has(above) && last.get(above) < weight) throw new Error(p.name + ': lighter before heavier');
        last.set(above, weight);
    }
}
const seen = file.shared.frames.map(f => f.name);
if (!seen.includes('[callers unknown]') || !seen.some(n => n.endsWith('[tail calls]'))) throw new Error(seen);
";
    let packages = tools::node_modules();
    let schema = packages.join("speedscope/dist/release/file-format-schema.json");
    let run = Run::new("node").env("NODE_PATH", packages.as_os_str());
    let run = run.args(["-e", script]).arg(schema).arg(&file);
    assert_eq!(numbers(&run.run().expect(0)), exported.totals());
}

/// Prints the sum of the rectangles' own values in a flame graph, and their titles.
const RECTANGLES: &str = "
import sys, xml.etree.ElementTree as tree
root, svg = tree.parse(sys.argv[1]).getroot(), '{http://www.w3.org/2000/svg}'
print('own', sum(int(r.get('data-own', 0)) for r in root.iter(svg + 'rect')))
for title in root.iter(svg + 'title'):
    print('title', title.text)
";

/// An XML parser reads a flame graph, its rectangles add up, and it can be rendered.
#[test]
fn flame_graphs_are_pictures() {
    let exported = Exported::new("flamegraph");
    let baseline = exported.file.to_string_lossy().into_owned();
    for (metric, options) in [("wall", vec![]), ("count", vec!["--baseline", &baseline])] {
        let mut options = options;
        options.extend(["--metric", metric]);
        let file = exported.file("flamegraph", &options);
        let read = Run::new("python3")
            .args(["-c", RECTANGLES])
            .arg(&file)
            .run()
            .expect(0);
        let sum = numbers(&read)["own"] as f64;
        // Rectangles that are too narrow to see are left out.
        let total = exported.total(metric) as f64;
        assert!(sum <= total && sum > 0.95 * total, "{sum} of {total}");
        assert!(
            read.stdout.contains("[callers unknown]"),
            "{}",
            read.report()
        );
        let picture = exported.scratch.file("out.png");
        Run::new("rsvg-convert")
            .arg(&file)
            .arg("-o")
            .arg(&picture)
            .run()
            .expect(0);
        let bytes = fs::read(&picture).expect("a picture");
        // PNG 1.2, 11.2.2: IHDR begins with width and height.
        assert_eq!(bytes.get(16..20), Some(&1200u32.to_be_bytes()[..]));
    }
    let file = exported.file("flamegraph", &["--baseline", &baseline]);
    let text = fs::read_to_string(file).expect("a file");
    // A profile compared with itself has no changes.
    assert!(!text.contains("rgb(245,"), "{text}");
    assert!(text.contains("before"), "{text}");
}

#[test]
fn callgrind_annotate_reads_it() {
    let exported = Exported::new("callgrind");
    let file = exported.file("callgrind", &[]);
    let annotated = Run::new("callgrind_annotate").args([
        "--auto=no",
        "--threshold=100",
        "--inclusive=yes",
        "--tree=both",
    ]);
    let annotated = annotated.arg(&file).run().expect(0);
    assert_eq!(annotated.stderr, "", "{}", annotated.report());
    let grouped = |n: u64| {
        let digits = n.to_string();
        let parts = digits.as_bytes().rchunks(3).rev();
        let parts: Vec<_> = parts.map(String::from_utf8_lossy).collect();
        parts.join(",")
    };
    let mut lines = annotated.stdout.lines();
    let totals = lines
        .find(|line| line.contains("PROGRAM TOTALS"))
        .expect("totals");
    for metric in ["count", "wall", "cpu"] {
        let total = grouped(exported.total(metric));
        assert!(
            totals.contains(&format!("{total} (100.0%)")),
            "{}",
            annotated.report()
        );
    }
    // The functions' own values add up, according to callgrind_annotate.
    let own = Run::new("callgrind_annotate")
        .args(["--auto=no", "--threshold=100"])
        .arg(&file);
    let own = own.run().expect(0);
    let numbers = own
        .stdout
        .lines()
        .filter(|l| l.contains("many_paths") || l.contains("???:"));
    let firsts = numbers.filter_map(|l| {
        l.split_whitespace()
            .next()?
            .replace(',', "")
            .parse::<u64>()
            .ok()
    });
    assert_eq!(
        firsts.sum::<u64>(),
        exported.total("count"),
        "{}",
        own.report()
    );
    assert!(
        annotated.stdout.contains("[callers unknown]"),
        "{}",
        annotated.report()
    );
}

#[test]
fn csv_is_read_by_python() {
    let exported = Exported::new("csv");
    let file = exported.file("csv", &[]);
    let script = "
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], newline='')))
print('count', sum(int(r['count']) for r in rows))
for metric in ['wall', 'cpu']:
    print(metric, sum(int(r[metric + '_exclusive'] or 0) for r in rows))
assert [r['complete'] for r in rows].count('false') == 1, rows
assert [r['tail'] for r in rows].count('1') == 1, rows
";
    let run = Run::new("python3").args(["-c", script]).arg(&file);
    assert_eq!(numbers(&run.run().expect(0)), exported.totals());
}

/// Hatchet reads its own format and TAU's, and its sums are the profile's.
#[test]
fn hatchet_reads_its_own_and_the_files_of_tau() {
    let exported = Exported::new("hatchet");
    let literal = exported.file("hatchet", &[]);
    let tau = exported.file("tau", &[]);
    let script = "
import hatchet, json, sys
literal = hatchet.GraphFrame.from_literal(json.load(open(sys.argv[1])))
tau = hatchet.GraphFrame.from_tau(sys.argv[2])
for metric in ['wall', 'cpu']:
    sums = [int(g.dataframe[metric].sum()) for g in (literal, tau)]
    roots = [sum(int(g.dataframe.loc[r, metric + ' (inc)']) for r in g.graph.roots) for g in (literal, tau)]
    assert sums == roots and sums[0] == sums[1], (metric, sums, roots)
    print(metric, sums[0])
print('count', int(literal.dataframe['count'].sum()))
# The top of all, of TAU's own, is taken as called once.
assert int(tau.dataframe['Calls'].sum()) == int(literal.dataframe['count'].sum()) + 1
for g in (literal, tau):
    names = list(g.dataframe['name'])
    assert '[callers unknown]' in names and any('[tail calls]' in n for n in names), names
";
    let run = Run::new(tools::python()).args(["-W", "ignore", "-c", script]);
    let run = run.arg(&literal).arg(&tau);
    assert_eq!(numbers(&run.run().expect(0)), exported.totals());
}

/// The stacks in the Firefox Profiler's format lead to the names, and their weights add up.
#[test]
fn firefox_has_the_stacks_and_their_weights() {
    let exported = Exported::new("firefox");
    for metric in ["wall", "count"] {
        let file = exported.file("firefox", &["--metric", metric]);
        let text = fs::read_to_string(file).expect("a file");
        let made: Value = serde_json::from_str(&text).expect("JSON");
        let thread = &made["threads"][0];
        let (stacks, frames) = (&thread["stackTable"], &thread["frameTable"]);
        let strings = thread
            .get("stringArray")
            .unwrap_or(&made["shared"]["stringArray"]);
        let index = |list: &Value, i: usize| list[i].as_u64().map(|n| n as usize);
        let mut sum = 0.0;
        let samples = thread["samples"]["stack"].as_array().expect("samples");
        let mut names = Vec::new();
        for (i, stack) in samples.iter().enumerate() {
            sum += thread["samples"]["weight"][i].as_f64().expect("a weight");
            let mut at = stack.as_u64().map(|n| n as usize);
            while let Some(stack) = at {
                let frame = index(&stacks["frame"], stack).expect("a frame");
                let func = index(&frames["func"], frame).expect("a function");
                let name = index(&thread["funcTable"]["name"], func).expect("a name");
                names.push(strings[name].as_str().expect("a string").to_owned());
                at = index(&stacks["prefix"], stack);
            }
        }
        let (unit, kind) = if metric == "wall" {
            (1e6, "tracing-ms")
        } else {
            (1.0, "samples")
        };
        assert_eq!((sum * unit).round() as u64, exported.total(metric));
        assert_eq!(thread["samples"]["weightType"], kind);
        for name in ["[callers unknown]", "main", "leaf"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
    }
}

/// Values that a format cannot express are refused in one line, and a partly written folder is
/// removed.
#[test]
fn what_a_format_cannot_say_is_refused() {
    let exported = Exported::new("refused");
    let mut profile = exported.profile.clone();
    profile["paths"][0]["metrics"]["wall"]["exclusive"] = (-5).into();
    fs::write(&exported.file, profile.to_string()).expect("an own folder");
    let output = exported.scratch.file("out");
    for format in [
        "folded",
        "flamegraph",
        "speedscope",
        "callgrind",
        "firefox",
        "tau",
    ] {
        let refused = exported.export(format, &output, &["--metric", "wall"]);
        assert!(
            refused.expect_error().contains("negative"),
            "{format}: {}",
            refused.report()
        );
        assert!(!output.exists(), "{format}");
    }
    for format in ["pprof", "csv", "hatchet"] {
        exported.file(format, &["--metric", "wall"]);
    }
    for format in ["pprof", "flamegraph", "hatchet", "tau"] {
        let refused = exported.export(format, &output, &["--metric", "nonsense"]);
        assert!(
            refused.expect_usage().contains("no metric"),
            "{format}: {}",
            refused.report()
        );
    }
    let refused = exported.export("tau", Path::new("-"), &[]);
    assert!(
        refused.expect_error().contains("folder"),
        "{}",
        refused.report()
    );
    let refused = exported.export("tau", exported.scratch.path(), &["--metric", "count"]);
    assert!(
        refused.expect_error().contains("not empty"),
        "{}",
        refused.report()
    );
    let baseline = exported.file.to_string_lossy().into_owned();
    let refused = exported.export("csv", &output, &["--baseline", &baseline]);
    assert!(
        refused.expect_error().contains("baseline"),
        "{}",
        refused.report()
    );
    let left = fs::read_dir(exported.scratch.path()).expect("readable");
    let left = left.map(|e| e.expect("readable").file_name());
    assert!(
        !left
            .into_iter()
            .any(|name| name.to_string_lossy().starts_with('.'))
    );
}

/// A profile of 65,000 paths is exported within 300 MB.
#[test]
fn many_paths_take_little_memory() {
    let scratch = Scratch::new("large");
    let file = scratch.file("p.json");
    measure("16", &file);
    // Another process reads the profile: a command's peak memory is at least that of its parent.
    let script = "import json, sys; print('paths', len(json.load(open(sys.argv[1]))['paths']))";
    let read = Run::new("python3")
        .args(["-c", script])
        .arg(&file)
        .run()
        .expect(0);
    assert!(numbers(&read)["paths"] > 65_000, "{}", read.report());
    for format in FORMATS {
        let run = Run::ipath(["export", "--sites", "--to", format]).arg(&file);
        let output = scratch.file(&format!("out.{format}"));
        let finished = run.arg("-o").arg(output).run().expect(0);
        let kib = finished.cost.max_rss_kib;
        assert!(kib < 300_000, "{format}: {kib} KiB");
    }
}

const FORMATS: [&str; 10] = [
    "folded",
    "flamegraph",
    "speedscope",
    "pprof",
    "callgrind",
    "firefox",
    "csv",
    "hatchet",
    "tau",
    "html",
];
