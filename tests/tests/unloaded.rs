//! Libraries that are unloaded, loaded again, or replaced by others, while their functions are
//! measured or about to be.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::racing::Running;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use ipath_tests::told::{LIMIT, Told, library, other};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

fn load(path: &Path) -> String {
    format!("load:{}", path.display())
}

fn texts<const N: usize>(steps: [&str; N]) -> [String; N] {
    steps.map(str::to_owned)
}

/// The number of calls of `later` by file name and build id.
fn calls(profile: &Profile) -> BTreeMap<(String, Option<String>), u64> {
    let mut calls = BTreeMap::new();
    for function in profile.functions.iter().filter(|f| f.name == "later") {
        let module = &profile.modules[function.module];
        let name = module.path.rsplit('/').next().unwrap_or_default();
        let key = (name.to_owned(), module.build_id.clone());
        *calls.entry(key).or_default() += count(&function.totals);
    }
    calls
}

fn sum(profile: &Profile) -> u64 {
    calls(profile).values().sum()
}

/// Continues a stopped command when dropped: otherwise processes that it traces could not be waited
/// for.
struct GoesOn<'r>(&'r Running);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

/// Runs `attach` with these options and stops it before it patches anything, while `meanwhile`
/// runs. Returns its exit status and standard error.
fn amid_attach(
    told: &mut Told,
    options: &[&str],
    meanwhile: impl FnOnce(&mut Told),
) -> (i32, String) {
    let mut command = Command::new(faulty());
    command.env("IPATH_STOP_AT", "state active");
    let pid = told.pid();
    let given = [&["attach", &pid, "--no-tui"], options].concat();
    let attaching = Running::spawn(command, &given);
    let begun = Instant::now();
    while state_of(attaching.id()) != 'T' {
        assert!(begun.elapsed() < LIMIT, "it does not come to the step");
        sleep(Duration::from_millis(1));
    }
    let goes_on = GoesOn(&attaching);
    meanwhile(told);
    drop(goes_on);
    attaching.finish()
}

/// A library that is gone is reported as unloaded, not as changed. Nothing is left behind.
#[test]
fn unloaded_before_it_is_patched() {
    let [unload, call] = texts(["unload", "call:3"]);
    let mut told = Told::to(&[load(&library()), unload, load(&library()), call]);
    told.step();
    let once = ["-f", "later", "--duration", "1ms"];
    let (code, said) = amid_attach(&mut told, &once, Told::step);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("has been unloaded"), "{said}");
    assert!(said.contains("hint: --pending"), "{said}");
    assert_eq!(
        ProcessState::session_in(told.target.pid()),
        Vec::<String>::new()
    );
    told.steps(2);
    assert_eq!(told.end(), 3);
}

/// With `--pending` the functions of a library that is unloaded before it is patched wait for its
/// return, and are then counted.
#[test]
fn unloaded_before_it_waits() {
    let [unload, call] = texts(["unload", "call:3"]);
    let mut told = Told::to(&[load(&library()), unload, load(&library()), call]);
    told.step();
    let waiting = ["-f", "later", "--pending", "--keep", "--duration", "1ms"];
    let (code, said) = amid_attach(&mut told, &waiting, Told::step);
    assert_eq!(code, 0, "{said}");
    let scratch = Scratch::new("unloaded");
    let file = scratch.file("p.json");
    let mut top = told.looked_at(&file);
    told.steps(2);
    assert_eq!(told.end(), 3);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert_eq!(sum(&Profile::read(&file)), 3);
}

/// A library that is loaded after ipath looked for it, and before ipath could observe its loading,
/// is measured.
#[test]
fn loaded_before_it_waits() {
    let [call, again] = texts(["call:3", "call:4"]);
    let mut told = Told::to(&[load(&library()), call, again]);
    let scratch = Scratch::new("unloaded");
    let file = scratch.file("p.json");
    let kept = ["-f", "later", "--pending", "--keep", "--duration", "1ms"];
    let (code, said) = amid_attach(&mut told, &kept, Told::step);
    assert_eq!(code, 0, "{said}");
    let mut top = told.looked_at(&file);
    let pid = told.pid();
    let is_in = |_: &Target| {
        let status = Run::ipath(["status", &pid]).run().expect(0);
        let mut lines = status.stdout.lines();
        lines.any(|line| line.trim_start().starts_with("later ") && line.ends_with("  in"))
    };
    told.target.until(LIMIT, "its function put in", is_in);
    told.steps(2);
    assert_eq!(told.end(), 7);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert_eq!(sum(&Profile::read(&file)), 7);
}

/// Unloading a measured library is reported once. Its functions are not measured when it comes
/// back.
#[test]
fn what_is_unloaded_is_out() {
    let [unload, call] = texts(["unload", "call:3"]);
    let mut told = Told::to(&[
        load(&library()),
        call.clone(),
        unload,
        load(&library()),
        call,
    ]);
    told.step();
    let scratch = Scratch::new("unloaded");
    let file = scratch.file("p.json");
    let mut watching = told
        .watched(&["-f", "later", "-m", "count"], &file)
        .await_output("in all");
    told.steps(2);
    let said = "later is out: its library has been unloaded";
    watching.until(LIMIT, "said so", |w| w.stderr().contains(said));
    told.steps(2);
    let status = told.on(&["status"]).expect(0);
    assert!(
        !status.stdout.contains("text-changed"),
        "{}",
        status.report()
    );
    assert_eq!(told.end(), 6);
    assert!(watching.wait(LIMIT).success(), "{}", watching.report());
    assert_eq!(watching.stderr().matches(said).count(), 1);
    let profile = Profile::read(&file);
    assert_eq!(sum(&profile), 3);
    let notes = profile.session.notes.join("\n");
    assert!(notes.contains(said), "{notes}");
}

/// `reloaded_library`: another library at the address of a pending one, and a new build of the same
/// library, have their own functions and calls.
#[test]
fn others_in_the_same_place() {
    let [unload] = texts(["unload"]);
    let call = |times: u32| format!("call:{times}");
    let scratch = Scratch::new("unloaded");
    let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
    fs::copy(library(), &place).expect("a copy");
    let steps = [
        [load(&place), call(3), unload.clone()],
        [load(&other()), call(5), unload.clone()],
        [load(&place), call(7), unload.clone()],
        // The file is a new build at this step.
        [load(&place), call(11), unload.clone()],
        [load(&library()), call(13), unload],
    ]
    .concat();
    let mut told = Told::to(&steps);
    let options = ["-f", "later", "--pending", "-m", "count"];
    let mut watching = told.watched(&options, &file).await_output("in all");
    told.steps(9);
    // As a linker does. The new file often gets the same inode.
    fs::remove_file(&place).expect("an own file");
    fs::copy(other(), &place).expect("a copy");
    told.steps(6);
    assert_eq!(told.end(), 39);
    assert!(watching.wait(LIMIT).success(), "{}", watching.report());
    let profile = Profile::read(&file);
    let [one, two] = [library(), other()].map(|path| {
        let notes = Run::new("readelf").arg("-n").arg(&path).run().expect(0);
        let id = notes.stdout.split("Build ID: ").nth(1).expect("a build id");
        id.lines().next().map(|id| id.trim().to_owned())
    });
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let expected = BTreeMap::from([
        ((name(&place), one.clone()), 10),
        ((name(&place), two.clone()), 11),
        ((name(&library()), one), 13),
        ((name(&other()), two), 5),
    ]);
    assert_eq!(calls(&profile), expected, "{}", watching.report());
    assert!(profile.refused.is_empty(), "{:?}", profile.refused);
}

/// The number of calls of `note` by the library and the function that make them. The function is
/// `None` if it has no name.
fn callers(profile: &Profile) -> BTreeMap<(String, Option<String>), u64> {
    let mut callers = BTreeMap::new();
    let is_note = |path: &&CallPath| profile.functions[path.function].name == "note";
    for path in profile.paths.iter().filter(is_note) {
        let frame = &profile.frames[path.stack[0]];
        let module = frame.module.expect("of a file");
        let module = profile.modules[module].path.clone();
        *callers.entry((module, frame.function.clone())).or_default() += count(&path.metrics);
    }
    callers
}

/// A library file is overwritten, so name and inode stay the same. No frame gets the name of a
/// function from the other version, and while a command watches each frame has its own name. The
/// last version's frames have names even if no command watched while it was loaded.
#[test]
fn frames_of_what_was_built_before() {
    for (pending, looking) in [(true, true), (false, true), (false, false)] {
        let [unload] = texts(["unload"]);
        let call = |times: u32| format!("call:{times}");
        let scratch = Scratch::new("unloaded");
        let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
        fs::copy(library(), &place).expect("a copy");
        let steps = [
            [load(&place), call(3), unload.clone()],
            [load(&place), call(5), unload],
        ];
        let mut told = Told::to(&steps.concat());
        let also: &[&str] = if pending {
            &["--pending", "-f", "later"]
        } else {
            &[]
        };
        let options = [&["-f", "note", "-m", "count"], also].concat();
        let mut watching = told.watched(&options, &file).await_output("in all");
        told.steps(3);
        if !looking {
            watching.signal(Signal::SIGSTOP);
        }
        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        let before = inode(&place);
        fs::copy(other(), &place).expect("written over");
        assert_eq!(inode(&place), before);
        told.steps(3);
        assert_eq!(told.end(), 8);
        if !looking {
            watching.signal(Signal::SIGCONT);
        }
        assert!(watching.wait(LIMIT).success(), "{}", watching.report());
        let profile = Profile::read(&file);
        let found = callers(&profile);
        let name = place.display().to_string();
        let of = |name: &str, caller: &str| (name.to_owned(), Some(caller.to_owned()));
        let wrong = found.keys().filter(|(_, caller)| {
            let is = |name| caller.as_deref() == Some(name);
            !(caller.is_none() || is("at_work") || is("at_other_work"))
        });
        assert_eq!(wrong.count(), 0, "{found:?}");
        let known = |caller| found.get(&of(&name, caller)).copied().unwrap_or_default();
        let unnamed = found
            .get(&(name.clone(), None))
            .copied()
            .unwrap_or_default();
        let (first, second) = (known("at_work"), known("at_other_work"));
        assert!(first == 3 || first == 0, "{found:?}");
        assert_eq!(second, 5, "{found:?}");
        assert_eq!(first + second + unnamed, 8, "{found:?}");
    }
}

/// A library file is overwritten by another build of equal size, and gets the old modification time
/// (`cp -p`, `install -p`, builds with clamped times). Each build is measured by its own code.
#[test]
fn rewritten_library_with_its_old_time_is_measured_by_its_own_code() {
    let scratch = Scratch::new("unloaded");
    let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
    let builds = [library(), other()].map(|build| fs::read(build).expect("a library"));
    let size = builds.iter().map(Vec::len).max().expect("two builds");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let put = |build: &[u8]| {
        let mut bytes = build.to_vec();
        bytes.resize(size, 0);
        fs::write(&place, bytes).expect("written over");
        let library = fs::File::options().write(true).open(&place);
        let library = library.expect("a library");
        library.set_modified(time).expect("an old time");
    };
    put(&builds[0]);
    let [three, five, unload] = texts(["call:3", "call:5", "unload"]);
    let first = [load(&place), three, unload.clone()];
    let second = [load(&place), five, unload];
    let rounds = 6;
    let steps: Vec<String> = (0..rounds)
        .flat_map(|_| [&first, &second])
        .flatten()
        .cloned()
        .collect();
    let mut told = Told::to(&steps);
    let options = ["--pending", "-f", "later", "-m", "count"];
    let mut watching = told.watched(&options, &file).await_output("in all");
    for _ in 0..rounds {
        for build in &builds {
            put(build);
            told.steps(3);
        }
    }
    assert_eq!(told.end(), 8 * rounds);
    assert!(watching.wait(LIMIT).success(), "{}", watching.report());
    let found = calls(&Profile::read(&file));
    let counts: Vec<u64> = found.values().copied().collect();
    assert!(
        counts == [3 * rounds, 5 * rounds] || counts == [5 * rounds, 3 * rounds],
        "{found:?}"
    );
}

/// A library file is overwritten by a larger one without a build id, which is loaded elsewhere.
/// Frames of the first one have their own names or none.
#[test]
fn frames_of_what_is_larger_than_before() {
    let larger = [
        "-shared",
        "-fPIC",
        "-DOTHER",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=0x40000",
    ];
    let larger = program_with("told_lib.c", &larger);
    let scratch = Scratch::new("unloaded");
    let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
    fs::copy(library(), &place).expect("a copy");
    let [three, five, unload] = texts(["call:3", "call:5", "unload"]);
    let mut told = Told::to(&[load(&place), three, unload, load(&place), five]);
    let options = ["-f", "note", "-m", "count"];
    let mut watching = told.watched(&options, &file).await_output("in all");
    told.steps(2);
    // Time for the command to read the maps.
    sleep(Duration::from_millis(300));
    told.step();
    fs::copy(larger, &place).expect("written over");
    told.steps(2);
    watching.signal(Signal::SIGINT);
    assert!(watching.wait(LIMIT).success(), "{}", watching.report());
    assert_eq!(told.end(), 8);
    let mut found = callers(&Profile::read(&file));
    let place = place.display().to_string();
    let second = found.remove(&(place.clone(), Some("at_other_work".to_owned())));
    assert_eq!(second, Some(5), "{found:?}");
    // If the command had not read them, there is no name.
    let first = found.into_iter().collect::<Vec<_>>();
    let [((of, Some(caller)), 3)] = &first[..] else {
        let unnamed = [((place, None), 3)];
        return assert_eq!(first, unnamed);
    };
    assert_eq!((of, &caller[..]), (&place, "at_work"));
}

/// Frames of a library that no command saw while it was loaded have their names, even if its file
/// has since got other permissions or lost its full symbol table.
#[test]
fn frames_of_what_has_been_touched_since() {
    for touch in [&["chmod", "700"], &["strip", "--strip-all"]] {
        let scratch = Scratch::new("unloaded");
        let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
        fs::copy(library(), &place).expect("a copy");
        let [call, unload] = texts(["call:3", "unload"]);
        let mut told = Told::to(&[load(&place), call, unload]);
        let kept = ["attach", "-f", "note", "-m", "count", "--keep", "--no-tui"];
        told.on(&[&kept[..], &["--duration", "1ms"]].concat())
            .expect(0);
        told.steps(3);
        let place = place.display().to_string();
        Run::new(touch[0]).args([touch[1], &place]).run().expect(0);
        told.on(&["detach", "-o", &file.display().to_string()])
            .expect(0);
        assert_eq!(told.end(), 3);
        let found = callers(&Profile::read(&file));
        let caller = (place, Some("at_work".to_owned()));
        assert_eq!(found, BTreeMap::from([(caller, 3)]), "{touch:?}");
    }
}

/// Frames of a library are still its own after another one took its place, even if both call from
/// the same address.
#[test]
fn frames_of_what_was_there_before() {
    for watched in [true, false] {
        let [unload] = texts(["unload"]);
        let call = |times: u32| format!("call:{times}");
        let steps = [
            [load(&library()), call(3), unload.clone()],
            [load(&other()), call(5), unload.clone()],
            [load(&library()), call(7), unload.clone()],
            [load(&other()), call(11), unload],
        ];
        let mut told = Told::to(&steps.concat());
        let scratch = Scratch::new("unloaded");
        let file = scratch.file("p.json");
        let mut watching = watched.then(|| {
            let options = ["-f", "note", "-m", "count"];
            told.watched(&options, &file).await_output("in all")
        });
        if !watched {
            let kept = ["attach", "-f", "note", "-m", "count", "--keep", "--no-tui"];
            told.on(&[&kept[..], &["--duration", "1ms"]].concat())
                .expect(0);
        }
        told.steps(12);
        match &mut watching {
            Some(watching) => watching.signal(Signal::SIGINT),
            None => drop(
                told.on(&["detach", "-o", &file.display().to_string()])
                    .expect(0),
            ),
        }
        if let Some(watching) = &mut watching {
            watching.wait(LIMIT);
        }
        assert_eq!(told.end(), 26);
        let profile = Profile::read(&file);
        let path = |path: PathBuf| path.display().to_string();
        let expected = BTreeMap::from([
            ((path(library()), Some("at_work".to_owned())), 10),
            ((path(other()), Some("at_other_work".to_owned())), 16),
        ]);
        assert_eq!(callers(&profile), expected);
        profile.assert_lossless();
    }
}

/// Frames of an unloaded library do not get names from a library that took its place and has made
/// no call.
#[test]
fn frames_of_what_was_there_before_one_that_is_silent() {
    for (written_over, watched) in [(false, false), (true, false), (false, true), (true, true)] {
        let scratch = Scratch::new("unloaded");
        let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
        fs::copy(library(), &place).expect("a copy");
        let next = if written_over { place.clone() } else { other() };
        let [three, unload] = texts(["call:3", "unload"]);
        let mut told = Told::to(&[load(&place), three, unload, load(&next)]);
        let options = ["-f", "note", "-m", "count"];
        // The watching command reads nothing until all of this has happened.
        let watching = watched.then(|| {
            let watching = told.watched(&options, &file).await_output("in all");
            watching.signal(Signal::SIGSTOP);
            watching
        });
        if !watched {
            let kept = ["attach", "--keep", "--no-tui", "--duration", "1ms"];
            told.on(&[&kept[..], &options].concat()).expect(0);
        }
        told.steps(3);
        if written_over {
            fs::copy(other(), &place).expect("written over");
        }
        told.step();
        match watching {
            Some(mut watching) => {
                watching.signal(Signal::SIGCONT);
                // It reads the maps while the other library is loaded.
                sleep(Duration::from_millis(200));
                watching.signal(Signal::SIGINT);
                assert!(watching.wait(LIMIT).success(), "{}", watching.report());
            }
            None => drop(
                told.on(&["detach", "-o", &file.display().to_string()])
                    .expect(0),
            ),
        }
        assert_eq!(told.end(), 3);
        let name = (!written_over).then(|| "at_work".to_owned());
        let caller = (place.display().to_string(), name);
        let found = callers(&Profile::read(&file));
        assert_eq!(found, BTreeMap::from([(caller, 3)]), "{watched}");
    }
}

/// A pending pattern can be added even if no function is instrumented any more.
#[test]
fn what_waits_is_added_where_nothing_is_in() {
    let [call, unload] = texts(["call:3", "unload"]);
    let mut told = Told::to(&[load(&library()), unload, load(&library()), call]);
    told.step();
    told.on(&[
        "attach",
        "-f",
        "later",
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
    ])
    .expect(0);
    told.on(&["remove", "-f", "later"]).expect(0);
    told.step();
    told.on(&["add", "-f", "later", "--pending"]).expect(0);
    let scratch = Scratch::new("unloaded");
    let file = scratch.file("p.json");
    let mut top = told.looked_at(&file);
    told.steps(2);
    assert_eq!(told.end(), 3);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert_eq!(sum(&Profile::read(&file)), 3);
}

/// A library file is renamed and touched while its functions are instrumented. They keep their
/// names, and are removed like any others.
#[test]
fn renamed_while_it_is_in() {
    let scratch = Scratch::new("unloaded");
    let (place, renamed) = (scratch.file("one.so"), scratch.file("two.so"));
    fs::copy(library(), &place).expect("a copy");
    let [call] = texts(["call:3"]);
    let mut told = Told::to(&[load(&place), call.clone(), call.clone(), call]);
    told.step();
    let kept = [
        "-f",
        "later",
        "--pending",
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
    ];
    told.on(&[&["attach"], &kept[..]].concat()).expect(0);
    told.step();
    fs::rename(&place, &renamed).expect("an own file");
    let file = fs::File::options().write(true).open(&renamed);
    let touched = file.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH));
    touched.expect("an own file");
    told.on(&["add", "-f", "later"]).expect(0);
    // Every command reads the current state.
    let file = scratch.file("p.json");
    let mut top = Command::new(ipath());
    top.args(["top", &told.pid(), "--no-tui", "--duration", "100ms", "-o"]);
    top.arg(&file);
    let mut top = Target::spawn(top);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    told.step();
    let last = scratch.file("q.json");
    let last_name = last.display().to_string();
    told.on(&["detach", "-o", &last_name]).expect(0);
    assert_eq!(sum(&Profile::read(&last)), 6);
    told.step();
    assert_eq!(told.end(), 9);
}
