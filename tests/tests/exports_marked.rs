//! Marks in exports beside names and numbers: changes, and incomplete measurements.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder with exports.
struct Exports(Scratch);

impl Exports {
    /// Exports a profile, and returns the path of the result.
    fn file(&self, profile: &Path, format: &str, options: &[&str]) -> PathBuf {
        let output = self.0.file(&format!("out.{format}"));
        let run = Run::ipath(["export", "--to", format]).arg(profile);
        run.args(options).arg("-o").arg(&output).run().expect(0);
        output
    }

    /// Exports a profile, and returns the contents of the result.
    fn text(&self, profile: &Path, format: &str, options: &[&str]) -> String {
        fs::read_to_string(self.file(profile, format, options)).expect("a file of text")
    }

    /// The total value of each stack, including all stacks that it begins.
    fn stacks(&self, profile: &Path, metric: &str) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for line in self.text(profile, "folded", &["--metric", metric]).lines() {
            let (stack, value) = line.rsplit_once(' ').expect("a stack and a number");
            let value: i64 = value.parse().expect("a number");
            let ends = stack.match_indices(';').map(|(at, _)| at);
            for end in ends.chain([stack.len()]) {
                *sums.entry(stack[..end].to_owned()).or_default() += value;
            }
        }
        sums
    }

    /// The rectangles of a flame graph that compares two profiles.
    fn rectangles(&self, profile: &Path, baseline: &Path, metric: &str) -> Vec<Rectangle> {
        let baseline = baseline.to_string_lossy();
        let options = ["--baseline", &baseline, "--metric", metric];
        let file = self.file(profile, "flamegraph", &options);
        let read = Run::new("python3").args(["-c", RECTANGLES]).arg(&file);
        let read = read.run().expect(0);
        let rectangle = |line: &str| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [name, title, value, red, green, blue] = cells[..] else {
                panic!("{line}");
            };
            Rectangle {
                name: name.to_owned(),
                title: title.to_owned(),
                value: value.parse().expect("a number"),
                colour: [red, green, blue].map(|n| n.parse().expect("a number")),
            }
        };
        read.stdout.lines().map(rectangle).collect()
    }
}

/// A rectangle of a flame graph.
struct Rectangle {
    name: String,
    title: String,
    /// In the unit of the metric.
    value: i64,
    /// Red, green and blue, from 0 to 255.
    colour: [i64; 3],
}

/// Prints the name, title, value and color of each rectangle.
const RECTANGLES: &str = "
import re, sys, xml.etree.ElementTree as tree
svg = '{http://www.w3.org/2000/svg}'
for group in tree.parse(sys.argv[1]).getroot().iter(svg + 'g'):
    title, rectangle = group.find(svg + 'title').text, group.find(svg + 'rect')
    colour = re.fullmatch(r'rgb\\((\\d+),(\\d+),(\\d+)\\)', rectangle.get('fill')).groups()
    print(title.rsplit(': ', 1)[0], title, rectangle.get('data-value'), *colour, sep='\\t')
";

/// The file `name` with the profile of a program that spends as much time on each of two paths as
/// `left` and `right` say.
fn measure(scratch: &Scratch, name: &str, left: &str, right: &str) -> PathBuf {
    let file = scratch.file(name);
    let run = Run::ipath(["run", "--no-tui", "-f", "rest", "-m", "count,wall", "-o"]);
    let run = run.arg(&file).arg("--").arg(program("slower.c"));
    run.args(["20", left, right]).run().expect(0);
    file
}

/// Red is growth and blue is shrinkage. The color is deeper the larger the change is.
#[test]
fn differences_are_red_and_blue() {
    let exports = Exports(Scratch::new("differences"));
    // Ten times as long on one path and no time on the other: a busy machine cannot reverse that.
    let one = measure(&exports.0, "one.json", "10000", "50000");
    let other = measure(&exports.0, "other.json", "100000", "0");
    for (new, old, grown, shrunk) in [
        (&other, &one, "left", None),
        (&one, &other, "right", Some("left")),
    ] {
        let (before, after) = (exports.stacks(old, "wall"), exports.stacks(new, "wall"));
        let mut changes = Vec::new();
        let (mut red_ones, mut blue_ones) = (Vec::new(), Vec::new());
        for rectangle in exports.rectangles(new, old, "wall") {
            let Rectangle {
                name, value, title, ..
            } = &rectangle;
            let is_it = |(stack, sum): &(&String, &i64)| {
                stack.rsplit(';').next() == Some(name) && *sum == value
            };
            let (stack, now) = after.iter().find(is_it).expect("a stack of the profile");
            let change = now - before[stack];
            let [red, green, blue] = rectangle.colour;
            let is_red = red > green && green == blue;
            let is_blue = blue > red && red == green;
            assert_eq!(
                (is_red, is_blue),
                (change > 0, change < 0),
                "{stack} {change}"
            );
            assert!(title.ends_with(" a call"), "{title}");
            changes.push((change.abs(), red.min(blue)));
            if is_red {
                &mut red_ones
            } else {
                &mut blue_ones
            }
            .push(name.clone());
        }
        assert!(red_ones.iter().any(|name| name == grown), "{red_ones:?}");
        // A function that takes no time any more is too narrow to be drawn.
        let is_blue = |name: &str| blue_ones.iter().any(|blue| blue == name);
        assert!(shrunk.is_none_or(is_blue), "{blue_ones:?}");
        changes.sort();
        assert!(changes.windows(2).all(|w| w[0].1 >= w[1].1), "{changes:?}");
    }
    // Both profiles have the same calls.
    for rectangle in exports.rectangles(&one, &other, "count") {
        let [red, green, blue] = rectangle.colour;
        assert!(red == green && green == blue, "{}", rectangle.title);
    }
}

/// A run of twice the length has twice the calls and twice the time. No call costs more.
#[test]
fn equal_runs_of_different_length_are_grey() {
    let exports = Exports(Scratch::new("lengths"));
    let one = measure(&exports.0, "one.json", "1000", "1000");
    let text = fs::read_to_string(&one).expect("a profile");
    let mut twice: Value = serde_json::from_str(&text).expect("JSON");
    let double = |value: &mut Value| *value = (value.as_i64().expect("a number") * 2).into();
    for path in twice["paths"].as_array_mut().expect("paths") {
        let metrics = &mut path["metrics"];
        double(&mut metrics["count"]);
        double(&mut metrics["wall"]["sum"]);
        let buckets = metrics["wall"]["hist"].as_array_mut().expect("buckets");
        buckets.iter_mut().for_each(|bucket| double(&mut bucket[1]));
    }
    let other = exports.0.file("twice.json");
    fs::write(&other, twice.to_string()).expect("an own folder");
    let rectangles = exports.rectangles(&other, &one, "wall");
    assert!(rectangles.iter().any(|r| r.name == "rest"));
    for rectangle in rectangles {
        let [red, green, blue] = rectangle.colour;
        assert!(red == green && green == blue, "{}", rectangle.title);
    }
}

/// A function that was measured but not called before is new. A function that was not measured
/// before is not.
#[test]
fn functions_not_measured_before_are_not_new() {
    let exports = Exports(Scratch::new("unmeasured"));
    let measure = |name: &str, function: &str, rounds: &str| {
        let file = exports.0.file(name);
        let run = Run::ipath(["run", "--no-tui", "-f", function, "-m", "count", "-o"]);
        let run = run.arg(&file).arg("--").arg(program("slower.c"));
        run.args([rounds, "0", "0"]).run().expect(0);
        file
    };
    let new = measure("new.json", "rest", "20");
    let uncalled = measure("uncalled.json", "rest", "0");
    let unmeasured = measure("unmeasured.json", "left", "20");
    for (old, head, title, white) in [
        (&uncalled, "2 new, 0 vanished; by", ", new", false),
        (
            &unmeasured,
            "0 new, 0 vanished, 3 measured on one side only; by",
            ", not measured before",
            true,
        ),
    ] {
        let diff = Run::ipath(["diff"]).arg(old).arg(&new).run().expect(0);
        assert!(diff.stdout.contains(head), "{}", diff.report());
        let rectangles = exports.rectangles(&new, old, "count");
        assert!(!rectangles.is_empty());
        for Rectangle {
            title: said,
            colour,
            ..
        } in rectangles
        {
            assert!(said.ends_with(title), "{said}");
            assert_eq!(colour == [255, 255, 255], white, "{said}");
        }
    }
}

/// A function that stopped measuring a metric is marked in every form of output; others are not.
#[test]
fn functions_that_are_partly_measured_are_marked() {
    let exports = Exports(Scratch::new("partly"));
    let target = Target::start(program_with("remeasured.c", &["-g"]), ["1"]).await_output("ready");
    let session = Session::attach(target.pid(), &["work", "deep"]);
    target.signal(nix::sys::signal::Signal::SIGUSR1);
    let mut target = target.await_output("begun");
    let mut go_on = || {
        let was = session.snapshot().calls("work");
        let has_gone_on = |_: &Target| session.snapshot().calls("work") > was + 20;
        target.until(Duration::from_secs(60), "gone on", has_gone_on);
    };
    go_on();
    session.remove_metrics(&["work"], "wall").expect(0);
    go_on();
    let profile = exports.0.file("p.json");
    let pid = target.pid().to_string();
    let snapshot = Run::ipath(["snapshot", &pid, "-o"]).arg(&profile);
    snapshot.run().expect(0);
    session.detach();

    let text = fs::read_to_string(&profile).expect("a profile");
    let profile_value: Value = serde_json::from_str(&text).expect("JSON");
    let functions = profile_value["functions"].as_array().expect("functions");
    let changed: Vec<&Value> = functions
        .iter()
        .filter(|f| !f["measured"].is_null())
        .map(|f| &f["name"])
        .collect();
    assert_eq!(changed, ["work"]);
    for format in [
        "folded",
        "flamegraph",
        "speedscope",
        "callgrind",
        "firefox",
        "hatchet",
    ] {
        let text = exports.text(&profile, format, &[]);
        assert!(text.contains("work [partly measured]"), "{format}: {text}");
        assert!(!text.contains("deep [partly"), "{format}: {text}");
    }
    let tau = exports.file(&profile, "tau", &["--metric", "wall"]);
    let tau = fs::read_to_string(tau.join("profile.0.0.0")).expect("a file of TAU");
    assert!(tau.contains("work [partly measured]"), "{tau}");
    let rows = Run::new("python3")
        .args(["-c", WHOLLY])
        .arg(exports.file(&profile, "csv", &[]));
    assert_eq!(
        rows.run().expect(0).stdout,
        "deep ['true']\nwork ['false']\n"
    );
    let pprof = exports.file(&profile, "pprof", &[]);
    let go = Run::new("go").args(["tool", "pprof", "-raw"]).arg(pprof);
    let go = go.env("HOME", exports.0.path()).env("GOFLAGS", "");
    let go = go.run().expect(0);
    assert!(go.stdout.contains("measured:[partly]"), "{}", go.report());
    let page = exports.text(&profile, "html", &[]);
    assert!(
        page.contains("\"partly\":true") && page.contains("\"partly\":false"),
        "{page}"
    );

    let report = Run::ipath(["report"]).arg(&profile).run().expect(0);
    assert!(
        report.stdout.contains("not measured by every metric"),
        "{}",
        report.report()
    );
    let report = Run::ipath(["report", "--json"])
        .arg(&profile)
        .run()
        .expect(0);
    let said = report.json()["not_exact"].to_string();
    assert!(said.contains("not measured by every metric"), "{said}");
}

/// Prints the column `wholly_measured` of each function.
const WHOLLY: &str = "
import csv, sys
said = {}
for row in csv.DictReader(open(sys.argv[1], newline='')):
    said.setdefault(row['function'], set()).add(row['wholly_measured'])
for name in sorted(said):
    print(name, sorted(said[name]))
";
