//! The Python reader, installed from the wheel that the repository builds.

use ipath_tests::command::{Finished, Run};
use ipath_tests::place::{Scratch, workspace};
use ipath_tests::tools;
use std::fs;
use std::path::Path;

fn python<'a>(args: impl IntoIterator<Item = &'a str>) -> Run {
    Run::new(tools::python()).args(args)
}

/// Builds the wheel, and installs it into the folder `site`. Returns the ended command of pip.
fn install(scratch: &Scratch) -> Finished {
    let (source, wheels, site) = (
        scratch.file("source"),
        scratch.file("wheels"),
        scratch.file("site"),
    );
    let copied = Run::new("cp").arg("-r").arg(workspace().join("python"));
    copied.arg(&source).run().expect(0);
    let built = python(["-m", "build", "--no-isolation", "--wheel", "--outdir"]);
    built.arg(&wheels).arg(&source).run().expect(0);
    let wheel = fs::read_dir(&wheels)
        .expect("wheels")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.to_string_lossy().ends_with("-py3-none-any.whl"));
    let installed = python(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]);
    installed.arg(&site).arg(wheel.expect("a wheel")).run()
}

/// Writes two profiles of the demo to a new folder.
fn measured(folder: &Path) {
    fs::create_dir(folder).expect("an own folder");
    for (name, options) in [
        ("plain", &["--duration", "1s"][..]),
        ("threads", &["--duration", "500ms"]),
    ] {
        let file = folder.join(format!("{name}.json"));
        let demo = Run::ipath(["demo"]).args(options).arg("-o").arg(file);
        demo.run().expect(0);
    }
}

/// The wheel passes its own tests, including those on newly written profiles, and the check of its
/// types.
#[test]
fn the_wheel_passes_its_tests() {
    let scratch = Scratch::new("python");
    install(&scratch).expect(0);
    let profiles = scratch.file("profiles");
    measured(&profiles);
    let tests = scratch.file("source").join("tests");
    let run = python(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(&tests);
    let run = run
        .env("PYTHONPATH", scratch.file("site"))
        .env("IPATH_PROFILES", &profiles);
    let text = run.run().expect(0).report();
    assert!(text.contains(" passed"), "{text}");
    assert!(!text.contains("skipped"), "{text}");
    let types = python(["-m", "mypy", "--cache-dir=/dev/null", "--config-file"]);
    let source = scratch.file("source");
    compares_as_the_command(&scratch, &profiles);
    let types = types
        .arg(source.join("pyproject.toml"))
        .arg(source.join("src"));
    types.run().expect(0);
}

/// Prints both p-values of each path that is in both profiles, with its calls and sums.
const LIKELIHOODS: &str = "
import ipath_profile, sys
old, new = (ipath_profile.load(file) for file in sys.argv[1:])
table = ipath_profile.diff(old, new, 'wall').dropna(subset=['p_value'])
columns = ['old_count', 'new_count', 'old_sum', 'new_sum', 'p_value', 'p_value_alone']
for row in table[columns].itertuples(index=False):
    print(*(repr(float(value)) for value in row))
";

/// The reader computes the same p-values as `ipath diff`.
fn compares_as_the_command(scratch: &Scratch, profiles: &Path) {
    let [old, new] = ["plain.json", "threads.json"].map(|name| profiles.join(name));
    let read = python(["-c", LIKELIHOODS]).arg(&old).arg(&new);
    let read = read.env("PYTHONPATH", scratch.file("site")).run().expect(0);
    let told = Run::ipath(["diff", "--json", "--metric", "wall"]);
    let told = told.arg(&old).arg(&new).run().expect(0).json();
    let mut expected: Vec<Vec<f64>> = told["paths"]
        .as_array()
        .expect("paths")
        .iter()
        .filter(|path| path["p_value"].is_f64())
        .map(|path| {
            let number = |pointer: &str| {
                let value = path.pointer(pointer).and_then(serde_json::Value::as_f64);
                value.unwrap_or_else(|| panic!("no {pointer} in {path}"))
            };
            let pointers = ["/old/count", "/new/count", "/old/wall/sum", "/new/wall/sum"];
            let likely = ["/p_value", "/p_value_alone"];
            pointers.into_iter().chain(likely).map(number).collect()
        })
        .collect();
    let numbers = |line: &str| {
        line.split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect()
    };
    let mut found: Vec<Vec<f64>> = read.stdout.lines().map(numbers).collect();
    let order = |a: &Vec<f64>, b: &Vec<f64>| a.partial_cmp(b).expect("numbers");
    expected.sort_by(order);
    found.sort_by(order);
    assert!(
        !found.is_empty() && found.len() == expected.len(),
        "{found:?}"
    );
    for (one, other) in found.iter().zip(&expected) {
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs() + 1e-12;
        assert!(one.iter().zip(other).all(is_near), "{one:?}, not {other:?}");
    }
}
