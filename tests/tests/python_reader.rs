//! The reader in Python, as the wheel that the repository builds.

use ipath_tests::command::{Finished, Run};
use ipath_tests::place::{Scratch, workspace};
use ipath_tests::tools;
use std::fs;
use std::path::Path;

fn python<'a>(args: impl IntoIterator<Item = &'a str>) -> Run {
    Run::new(tools::python()).args(args)
}

/// The wheel, unpacked into a folder.
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

/// Its own tests, among them those on profiles that the program has just written, and its types.
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
    let types = types
        .arg(source.join("pyproject.toml"))
        .arg(source.join("src"));
    types.run().expect(0);
}
