//! The source positions of functions whose library file is replaced or cut after it was loaded.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn library(also: &[&str]) -> PathBuf {
    let flags = ["-shared", "-fPIC", "-g"];
    program_with("told_lines_lib.c", &[&flags, also].concat())
}

/// A program that takes one step at each signal.
struct Told(Target, usize);

impl Told {
    fn to(steps: &[&str]) -> Self {
        let program = program_with("told.c", &["-rdynamic"]);
        Self(Target::start(program, steps).await_output("ready"), 0)
    }

    fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.1 += 1;
            let line = format!("done {}\n", self.1);
            self.0.signal(Signal::SIGUSR1);
            let is_done = |target: &Target| target.stdout().contains(&line);
            self.0.until(LIMIT, "taken its step", is_done);
        }
    }

    fn end(mut self) {
        self.0.signal(Signal::SIGTERM);
        let status = self.0.wait(LIMIT);
        assert!(status.success(), "{status}: {}", self.0.report());
    }

    /// Starts `ipath attach` with these options, which counts calls and writes the profile to
    /// `file`. Returns once it has printed a summary.
    fn watched(&self, function: &[&str], file: &Path) -> Target {
        let mut command = Command::new(ipath());
        command.args(["attach", &self.0.pid().to_string(), "--no-tui"]);
        command.args(["--interval", "50ms", "-m", "count"]);
        command.args(function).arg("-o").arg(file);
        Target::spawn(command).await_output("in all")
    }
}

/// The build id of a file; `None` if it has none.
fn build_id(path: &Path) -> Option<String> {
    let notes = Run::new("readelf").arg("-n").arg(path).run().expect(0);
    let id = notes.stdout.split("Build ID: ").nth(1)?;
    id.lines().next().map(|id| id.trim().to_owned())
}

/// The functions of a library that is replaced by a new build, as by a package manager, have the
/// positions of their own build.
#[test]
fn functions_of_each_build_have_its_own_lines() {
    for also in [&[][..], &["-Wl,--build-id=none"]] {
        let one = library(also);
        let two = library(&[also, &["-DOTHER"]].concat());
        let scratch = Scratch::new("source_lines");
        let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
        let next = scratch.file("next.so");
        fs::copy(&one, &place).expect("a copy");
        fs::copy(&two, &next).expect("a copy");
        let load = format!("load:{}", place.display());
        let mut told = Told::to(&[&load, "call:3", "unload", &load, "call:5"]);
        let mut watching = told.watched(&["--pending", "-f", "later"], &file);
        told.steps(3);
        fs::rename(&next, &place).expect("an own file");
        told.steps(2);
        watching.signal(Signal::SIGINT);
        assert!(watching.wait(LIMIT).success(), "{}", watching.report());
        told.end();
        let profile = Profile::read(&file);
        let ids = [&one, &two].map(|library| build_id(library));
        let mut is_found = [false; 2];
        for function in profile.functions.iter().filter(|f| f.name == "later") {
            let calls = count(&function.totals);
            let index = usize::from(calls == 5);
            assert_eq!(calls, [3, 5][index], "{:?}", profile.functions);
            is_found[index] = true;
            let module = &profile.modules[function.module];
            assert_eq!(module.build_id, ids[index], "{:?}", profile.modules);
            let name = |file: &String| file.rsplit('/').next().map(str::to_owned);
            let position = function.file.as_ref().and_then(name).zip(function.line);
            let expected = [("told_lines_lib.c", 29), ("other_lines.c", 1019)];
            let (name, line) = expected[index];
            let is_right = position == Some((name.to_owned(), line));
            // The build that is not mapped any more may have no position.
            assert!(
                is_right || (index == 0 && position.is_none()),
                "{index}: {position:?}"
            );
        }
        assert_eq!(is_found, [true; 2], "{:?}", profile.functions);
    }
}

/// The debug information of a library is read in part while the library is loaded. Its file is cut
/// before the rest is read.
#[test]
fn functions_of_a_library_that_is_cut_have_no_wrong_lines() {
    for size in [0, 4096, 4200, 8192, 12288] {
        let scratch = Scratch::new("source_lines");
        let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
        fs::copy(library(&[]), &place).expect("a copy");
        let load = format!("load:{}", place.display());
        let mut told = Told::to(&[&load, "call:1", "call:100", "unload"]);
        let mut watching = told.watched(&["-f", "note"], &file);
        told.steps(2);
        // Time for the command to read what is on the first path.
        sleep(Duration::from_millis(300));
        watching.signal(Signal::SIGSTOP);
        told.steps(2);
        let cut = fs::File::options().write(true).open(&place);
        cut.and_then(|file| file.set_len(size))
            .expect("an own file");
        watching.signal(Signal::SIGCONT);
        sleep(Duration::from_millis(200));
        watching.signal(Signal::SIGINT);
        assert!(
            watching.wait(LIMIT).success(),
            "{size}: {}",
            watching.report()
        );
        told.end();
        let said = watching.stderr();
        assert!(!said.contains("internal error"), "{said}");
        let profile = Profile::read(&file);
        profile.assert_lossless();
        assert_eq!(profile.calls("note"), 101, "{said}");
        for frame in &profile.frames {
            let Some(file) = frame.file.as_ref().filter(|f| f.ends_with("_lib.c")) else {
                continue;
            };
            let line = match frame.function.as_deref() {
                Some("near_work") => 14,
                Some("far_work") => 20,
                Some("later") => 30,
                other => panic!("{size}: {other:?} has the position {file}:{:?}", frame.line),
            };
            assert_eq!(frame.line, Some(line), "{size}: {:?}", frame.function);
        }
    }
}
