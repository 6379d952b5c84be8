//! What `-o` names: `output_symlink`, pipes, devices, and a place where there is no room.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A profile of a program that has run.
fn profile(scratch: &Scratch) -> PathBuf {
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "-f", "step", "--no-tui", "-o"]).arg(&file);
    let run = run.arg("--").arg(program("endings.c")).args(["exit", "0"]);
    run.run().expect(0);
    file
}

fn export(profile: &Path, output: &Path) -> Finished {
    Run::ipath(["export", "--to", "folded"])
        .arg(profile)
        .arg("-o")
        .arg(output)
        .run()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let names = entries.map(|e| e.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A link where the output is to be was placed by somebody: it is replaced, and what it leads to
/// stays as it is.
#[test]
fn output_symlink() {
    let scratch = Scratch::new("symlink");
    let profile = profile(&scratch);
    let folder = scratch.file("folder");
    fs::create_dir(&folder).expect("an own folder");
    let (victim, output) = (folder.join("victim"), folder.join("out"));
    fs::write(&victim, "precious").expect("an own folder");
    symlink(&victim, &output).expect("an own folder");
    // Names that a temporary file could have, if it could be foreseen.
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
    let mixed = Run::ipath(["run", "-f", "step", "--no-tui", "-o", "-", "--", "true"]).run();
    assert!(
        mixed.expect_error().contains("standard output"),
        "{}",
        mixed.report()
    );
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

/// A limit on the size of files is an error like any other, not the end of ipath.
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
