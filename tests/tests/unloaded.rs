//! Libraries that go, and come back, or others in their place, while their functions are measured or about to be.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program_with;
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::racing::Running;
use ipath_tests::session::own_counts;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

const LIMIT: Duration = Duration::from_secs(60);

fn library() -> PathBuf {
    program_with("told_lib.c", &["-shared", "-fPIC"])
}

/// One whose code is another.
fn other() -> PathBuf {
    program_with("told_lib.c", &["-shared", "-fPIC", "-DOTHER"])
}

/// A program that takes a step whenever it is told to.
struct Told {
    target: Target,
    done: usize,
}

impl Told {
    fn to(steps: &[String]) -> Self {
        let program = program_with("told.c", &["-rdynamic"]);
        let target = Target::start(program, steps).await_output("ready");
        Self { target, done: 0 }
    }

    fn step(&mut self) {
        self.done += 1;
        let line = format!("done {}\n", self.done);
        self.target.signal(Signal::SIGUSR1);
        let is_done = |target: &Target| target.stdout().contains(&line);
        self.target.until(LIMIT, "taken its step", is_done);
    }

    fn steps(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    fn pid(&self) -> String {
        self.target.pid().to_string()
    }

    fn on(&self, arguments: &[&str]) -> Finished {
        Run::ipath([arguments[0], &self.pid()])
            .args(&arguments[1..])
            .run()
    }

    /// Ends it: how often it has called.
    fn end(mut self) -> u64 {
        self.target.signal(Signal::SIGTERM);
        let status = self.target.wait(LIMIT);
        assert!(status.success(), "{status}: {}", self.target.report());
        own_counts(&self.target.stdout())["later"]
    }

    /// Looks at the session that is in it until it ends.
    fn looked_at(&self, file: &Path) -> Target {
        let mut command = Command::new(ipath());
        command
            .args(["top", &self.pid(), "--no-tui", "-o"])
            .arg(file);
        Target::spawn(command).await_output("in all")
    }

    /// Watches it with these options until it is told to stop.
    fn watched(&self, options: &[&str], file: &Path) -> Target {
        let mut command = Command::new(ipath());
        command.args(["attach", &self.pid(), "--no-tui", "--interval", "50ms"]);
        command.args(options).arg("-o").arg(file);
        Target::spawn(command)
    }
}

fn load(path: &Path) -> String {
    format!("load:{}", path.display())
}

fn texts<const N: usize>(steps: [&str; N]) -> [String; N] {
    steps.map(str::to_owned)
}

/// The calls of `later` by the file and the build that it is in.
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

/// A command that goes on in the end whatever happens: what it traces could not be waited for.
struct GoesOn<'r>(&'r Running);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

/// Runs `attach` with these options and has it wait before it patches anything, while `meanwhile` happens.
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

/// What is not there any more is said to be gone, and not to be changed; and nothing is left.
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

/// The same where its functions may wait for it to come back.
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

/// What has come after it was looked for and before it could be seen to come.
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

/// A library that goes while it is measured, and one that comes back: both are said to be so, once.
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

/// `reloaded_library`: another library that comes to the place of one that waits, and the same one built anew, have functions and
/// calls of their own.
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
        // Built anew by then.
        [load(&place), call(11), unload.clone()],
        [load(&library()), call(13), unload],
    ]
    .concat();
    let mut told = Told::to(&steps);
    let options = ["-f", "later", "--pending", "-m", "count"];
    let mut watching = told.watched(&options, &file).await_output("in all");
    told.steps(9);
    // As a linker does, which often gets the same inode.
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

/// The calls of `note` by the library that makes them, and its function.
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

/// A library that is written over, and so has the name and the inode of the one before: no frame has the name of a function that the
/// library did not have then, while it is watched each has its own. The last one has also where nobody has looked while it was there.
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

/// One that is written over by a larger one without a build id, which is loaded elsewhere.
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
    // It looks meanwhile.
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
    // Where it has not looked, it has no name.
    let first = found.into_iter().collect::<Vec<_>>();
    let [((of, Some(caller)), 3)] = &first[..] else {
        let unnamed = [((place, None), 3)];
        return assert_eq!(first, unnamed);
    };
    assert_eq!((of, &caller[..]), (&place, "at_work"));
}

/// A library that nobody has looked at while it was loaded, and whose file has other permissions since, or no table of all symbols.
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

/// Frames of a library whose place another one has taken since are still its own, also where both call from the same address.
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

/// Nor has it the names of one that has come to its place and has not called.
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
        // It does not look until all of that has happened.
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
                // It looks while the other one is there.
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

/// Where nothing is in any more, what is added can wait all the same.
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

/// A library whose file gets another name and time while its functions are in: they are known, and come out as from any other.
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
    // Each looks at what is there.
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
