//! A library of 150 MB: listing one name, and attaching to a process that has loaded it, stay
//! cheap.

use ipath_tests::command::{Finished, Run};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn sysroot() -> PathBuf {
    PathBuf::from(
        Run::new("rustc")
            .args(["--print", "sysroot"])
            .run()
            .expect(0)
            .stdout
            .trim(),
    )
}

fn driver() -> PathBuf {
    let libraries = fs::read_dir(sysroot().join("lib")).expect("the toolchain's libraries");
    let mut paths = libraries.flatten().map(|entry| entry.path());
    let found = paths.find(|p| p.display().to_string().contains("librustc_driver"));
    found.expect("the toolchain has a librustc_driver")
}

/// The linkage name and the virtual address of a function of the library, from the middle of what
/// nm prints.
fn some_function(library: &PathBuf) -> (String, u64) {
    let symbols = Run::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .run()
        .expect(0)
        .stdout;
    let mut functions = symbols.lines().filter_map(|line| line.split_once(" T "));
    let (address, name) = functions
        .clone()
        .nth(functions.by_ref().count() / 2)
        .expect("functions");
    (
        name.to_owned(),
        u64::from_str_radix(address, 16).expect("an address"),
    )
}

/// Checks processor time and memory. Elapsed time would depend on the machine's load.
fn check_cost(finished: &Finished) {
    let (cpu, mib) = (finished.cost.cpu, finished.cost.max_rss_kib / 1024);
    println!("{cpu:?}, {mib} MiB");
    assert!(
        cpu < Duration::from_secs(2) && mib < 600,
        "{cpu:?}, {mib} MiB\n{}",
        finished.report()
    );
}

#[test]
fn list_large_stays_within_its_time_and_memory() {
    let library = driver();
    let size = fs::metadata(&library).expect("the library").len();
    assert!(size > 100_000_000, "{} has {size} bytes", library.display());
    let (name, address) = some_function(&library);
    let finished = Run::ipath(["list", "--json"])
        .arg(&library)
        .arg(&name)
        .run()
        .expect(0);
    let functions = finished.json()["functions"].clone();
    assert_eq!(functions[0]["address"], address, "{functions}");
    check_cost(&finished);
}

/// rustc that reads its source from a pipe which stays open, killed at the end.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn attach_to_a_process_with_a_large_library() {
    let scratch = Scratch::new("large");
    let rustc = Command::new(sysroot().join("bin/rustc"))
        .args([
            "-",
            "--crate-name",
            "waiting",
            "--emit",
            "metadata",
            "--out-dir",
        ])
        .arg(scratch.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut rustc = Waiting(rustc.expect("start rustc"));
    let pid = rustc.0.id();
    std::thread::sleep(Duration::from_millis(500));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("rustc is running");
    assert!(maps.contains("librustc_driver"), "{maps}");
    let before = ProcessState::of(pid);
    let (name, _) = some_function(&driver());
    let finished = Run::ipath(["attach", &pid.to_string(), "-f", &name, "--no-tui"])
        .args(["--duration", "100ms", "-o"])
        .arg(scratch.file("p.json"))
        .run()
        .expect(0);
    check_cost(&finished);
    let profile = Profile::read(&scratch.file("p.json"));
    assert!(
        profile.functions.iter().any(|f| f.linkage == name),
        "{:?}",
        profile.functions
    );
    before.assert_unchanged(pid);
    // It continues from where it was: an empty library compiles.
    let mut input = rustc.0.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"#![crate_type = \"lib\"]").expect("write to rustc");
    drop(input);
    assert!(rustc.0.wait().expect("wait for rustc").success());
}
