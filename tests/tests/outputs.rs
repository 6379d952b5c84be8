//! The destination of `-o`: `output_symlink`, pipes, devices, and a full file system.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Runs a program, and returns the path of its profile.
fn profile(scratch: &Scratch) -> PathBuf {
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "-f", "step", "--no-tui", "-o"]).arg(&file);
    let run = run.arg("--").arg(program("endings.c")).args(["exit", "0"]);
    run.run().expect(0);
    file
}

/// Exports a profile in the format `folded`. Returns the ended command.
fn export(profile: &Path, output: &Path) -> Finished {
    Run::ipath(["export", "--to", "folded"])
        .arg(profile)
        .arg("-o")
        .arg(output)
        .run()
}

/// The sorted names of a folder's entries.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let names = entries.map(|e| e.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A link that another user placed at the output's path is replaced, and its target is unchanged.
#[test]
fn output_symlink_is_replaced_and_its_target_unchanged() {
    let scratch = Scratch::new("symlink");
    let profile = profile(&scratch);
    let folder = scratch.file("folder");
    fs::create_dir(&folder).expect("an own folder");
    let (victim, output) = (folder.join("victim"), folder.join("out"));
    fs::write(&victim, "precious").expect("an own folder");
    symlink(&victim, &output).expect("an own folder");
    // Names that a temporary file would have if they were predictable.
    for name in [".out.tmp", ".out.1.tmp", "out.tmp"] {
        symlink(&victim, folder.join(name)).expect("an own folder");
    }
    export(&profile, &output).expect(0);
    assert_eq!(fs::read_to_string(&victim).expect("readable"), "precious");
    assert!(fs::symlink_metadata(&output).expect("there").is_file());
    assert!(
        fs::read_to_string(&output)
            .expect("readable")
            .contains("step ")
    );
    let left = names(&folder);
    assert_eq!(left, [".out.1.tmp", ".out.tmp", "out", "out.tmp", "victim"]);
    symlink("/dev/null", folder.join("to-device")).expect("an own folder");
    export(&profile, &folder.join("to-device")).expect(0);
    assert!(
        fs::symlink_metadata(folder.join("to-device"))
            .expect("there")
            .is_file()
    );
}

#[test]
fn output_to_standard_output() {
    let scratch = Scratch::new("standard");
    let profile = profile(&scratch);
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let finished = export(&profile, Path::new(name)).expect(0);
        assert!(
            finished.stdout.contains("main;"),
            "{name}: {}",
            finished.report()
        );
    }
    // A pipe, as of a shell's process substitution.
    let words = format!(
        "{} export --to folded {} -o >(cat; echo end) | cat",
        ipath().display(),
        profile.display()
    );
    let shell = Run::new("bash").args(["-c", &words]).run().expect(0);
    assert!(
        shell.stdout.contains("step ") && shell.stdout.contains("end"),
        "{}",
        shell.report()
    );
    // The profile of a session follows the program's own output, and nothing else does.
    let run = Run::ipath(["run", "-f", "step", "-o", "-", "--"]).arg(program("endings.c"));
    let finished = run.args(["exit", "0"]).run().expect(0);
    let at = finished.stdout.find("{\"schema\"").expect("a profile");
    let own: Value = serde_json::from_str(&finished.stdout[at..]).expect("JSON to the end");
    assert!(own["functions"][0]["totals"]["count"].as_u64() > Some(0));
    let plain = Run::new(program("endings.c")).args(["exit", "0"]).run();
    assert_eq!(finished.stdout[..at], plain.stdout);
}

/// With `-o`, standard output contains only the program's own output:
/// `ipath run -o P -- gzip -c F > G`.
#[test]
fn run_with_a_file_leaves_standard_output_to_the_program() {
    let scratch = Scratch::new("intact");
    let (data, packed, file) = (
        scratch.file("data"),
        scratch.file("data.gz"),
        scratch.file("p.json"),
    );
    let mut random = 1u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 60) as u8
    })
    .take(4 << 20)
    .collect();
    fs::write(&data, &bytes).expect("an own folder");
    for more in [
        "",
        "--interval 10ms",
        "--format json",
        "--format jsonl --interval 10ms",
    ] {
        let words = format!(
            "{} run {more} -o {} -f 'libc.so*!write' -- gzip -c {} > {packed}",
            ipath().display(),
            file.display(),
            data.display(),
            packed = packed.display(),
        );
        Run::new("sh").args(["-c", &words]).run().expect(0);
        let unpack = format!("gzip -dc {} | cmp - {}", packed.display(), data.display());
        Run::new("sh").args(["-c", &unpack]).run().expect(0);
        assert!(Profile::read(&file).calls("write") > 0, "{more}");
    }
    // The reader stops reading, which the program has to handle.
    let words = format!(
        "{} run -o {} -f 'libc.so*!write' -- gzip -c {} | head -c 10 > {}",
        ipath().display(),
        file.display(),
        data.display(),
        packed.display(),
    );
    Run::new("sh").args(["-c", &words]).run().expect(0);
    assert!(Profile::read(&file).calls("write") > 0);
}

/// `--quiet` applies to the commands that watch.
#[test]
fn quiet_commands_print_nothing() {
    let scratch = Scratch::new("quiet");
    let file = scratch.file("p.json");
    let quiet = Run::ipath(["demo", "--quiet", "--duration", "300ms", "-o"]).arg(&file);
    assert_eq!(quiet.run().expect(0).stdout, "");
    assert!(Profile::read(&file).calls("demo_find") > 0);
    let own = Run::ipath(["demo", "--duration", "300ms", "-o", "-"]).run();
    assert_eq!(own.expect(0).json()["schema"], "ipath-profile/1");
}

#[test]
fn output_to_pipes_and_devices() {
    let scratch = Scratch::new("pipes");
    let profile = profile(&scratch);
    export(&profile, Path::new("/dev/null")).expect(0);
    let full = export(&profile, Path::new("/dev/full"));
    assert!(
        full.expect_error().contains("no space left"),
        "{}",
        full.report()
    );
    let fifo = scratch.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("an own folder");
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::read_to_string(fifo).expect("readable"))
    };
    export(&profile, &fifo).expect(0);
    assert!(reader.join().expect("no panic").contains("step "));
    assert_eq!(names(scratch.path()), ["fifo", "p.json"]);
    assert!(Profile::read(&profile).calls("step") > 0);
}

/// Exceeding the limit on the size of files is an ordinary error, and does not kill ipath.
#[test]
fn output_beyond_the_limit_of_files() {
    let scratch = Scratch::new("limit");
    let profile = profile(&scratch);
    let output = scratch.file("out");
    fs::write(&output, "what was there").expect("an own folder");
    let words = format!(
        "ulimit -f 1; trap '' XFSZ; exec {} export --to json {} -o {}",
        ipath().display(),
        profile.display(),
        output.display()
    );
    let shell = Run::new("bash").args(["-c", &words]).run();
    assert!(
        shell.expect_error().contains("too large"),
        "{}",
        shell.report()
    );
    assert_eq!(
        fs::read_to_string(&output).expect("readable"),
        "what was there"
    );
    assert_eq!(names(scratch.path()), ["out", "p.json"]);
}
