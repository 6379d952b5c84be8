//! Measuring from another program with the library: the profile equals the target's own counts.

use std::ffi::OsString;
use std::time::Duration;

use ipath_profile::Profile;
use ipath_session::{Error, Options, attach, launch};
use ipath_tests::compile::program;
use ipath_tests::session::own_counts;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LIMIT: Duration = Duration::from_secs(60);

/// The number of calls of a function; 0 if it is not in the profile.
fn calls(profile: &Profile, name: &str) -> u64 {
    let function = profile.functions.iter().find(|f| f.name == name);
    function.map_or(0, |f| f.totals.counts.count)
}

/// The number of rounds that the target has run.
fn rounds(target: &Target) -> usize {
    target.stdout().lines().filter(|l| *l == "round").count()
}

/// Lets the target run one round.
fn go_round(target: &mut Target) {
    let before = rounds(target);
    target.signal(Signal::SIGUSR1);
    target.until(LIMIT, "went a round", |t| rounds(t) > before);
}

#[test]
fn functions_of_a_running_process_are_measured() {
    let mut target = Target::start(program("rounds.c"), [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let mut measured = attach(target.pid(), &Options::of_functions(["inner"])).expect("attached");
    go_round(&mut target);
    assert_eq!(calls(&measured.profile(), "inner"), 2000);
    measured.add(&["outer"]).expect("added");
    go_round(&mut target);
    let profile = measured.profile();
    assert_eq!(
        (calls(&profile, "inner"), calls(&profile, "outer")),
        (4000, 1000)
    );
    measured.remove(&["inner"]).expect("taken out");
    go_round(&mut target);
    let profile = measured.detach().expect("detached");
    profile.check().expect("it fits together");
    assert_eq!(
        (calls(&profile, "inner"), calls(&profile, "outer")),
        (4000, 2000)
    );
    before.assert_unchanged(target.pid());
    target.signal(Signal::SIGTERM);
    assert!(target.wait(LIMIT).success());
    assert_eq!(own_counts(&target.stdout())["outer"], 3000);
}

/// Dropping a session removes it.
#[test]
fn nothing_stays_of_what_is_dropped() {
    let mut target = Target::start(program("rounds.c"), [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    drop(attach(target.pid(), &Options::of_functions(["inner"])).expect("attached"));
    before.assert_unchanged(target.pid());
    let none = attach(target.pid(), &Options::of_functions(["no_such_function"]));
    assert!(
        matches!(none, Err(Error::NoFunction(_))),
        "{:?}",
        none.err()
    );
    before.assert_unchanged(target.pid());
    target.signal(Signal::SIGTERM);
    assert!(target.wait(LIMIT).success());
}

#[test]
fn a_program_is_measured_from_its_first_instruction() {
    let command: Vec<OsString> = vec![program("rounds.c").into(), "3".into()];
    let (mut child, mut measured) =
        launch(&command, &Options::of_functions(["inner"])).expect("launched");
    let end = std::time::Instant::now() + LIMIT;
    while calls(&measured.profile(), "inner") < 6000 {
        assert!(
            std::time::Instant::now() < end,
            "it does not come to its end"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let profile = measured.detach().expect("detached");
    assert_eq!(calls(&profile, "inner"), 6000);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it runs");
    assert!(child.wait().expect("it is a child").success());
}
