//! SIGKILL ends ipath at each step of changing metrics, repeatedly in one session: the functions
//! stay instrumented, and at the end each call has been counted once.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::faulty::faulty;
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::{Session, own_counts};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::time::Duration;

const FUNCTIONS: [&str; 3] = ["work", "deep", "tail"];

/// The metrics of a function, according to the profile.
fn measured(profile: &Profile, name: &str) -> Vec<String> {
    let function = profile.function(name).expect("in the session");
    let all = || profile.metrics.iter().map(|m| m.name.clone()).collect();
    function.measured.clone().unwrap_or_else(all)
}

/// Kills the command at each step in turn, and completes it afterwards. After each step, `back`
/// undoes the change. Returns how often the command died.
fn kill_at_every_step(
    target: &mut Target,
    session: &Session,
    [command, back]: [(&str, &str); 2],
) -> u64 {
    let pid = target.pid().to_string();
    let functions = FUNCTIONS.iter().flat_map(|f| ["-f", f]);
    let mut died = 0;
    for step in 1.. {
        let killed = Run::new(faulty())
            .args([command.0, &pid, "-m", command.1])
            .args(functions.clone())
            .env("IPATH_DIE_AT", step.to_string())
            .limit(Duration::from_secs(60))
            .run();
        let what = format!("{command:?} step {step}:\n{}", killed.report());
        assert!(target.poll().is_none(), "{what}\n{}", target.report());
        let through = killed.code() == 0;
        assert!(through || killed.code() == 128 + libc::SIGKILL, "{what}");
        died += u64::from(!through);
        // Whatever state it finds, the next command produces the requested one.
        for (next, metrics) in [command, back] {
            let done = Run::ipath([next, &pid, "-m", metrics])
                .args(functions.clone())
                .run();
            let is_so = done.stderr.contains("does not measure")
                || done.stderr.contains("none of the functions measures");
            assert!(done.code() == 0 || is_so, "{}\n{what}", done.report());
            assert!(
                !done.stderr.contains("taken out"),
                "{}\n{what}",
                done.report()
            );
            let profile = session.snapshot();
            for name in FUNCTIONS {
                let has = |metric: &str| measured(&profile, name).iter().any(|m| m == metric);
                let wanted = next == "add";
                assert!(
                    metrics.split(',').all(|m| has(m) == wanted),
                    "{name}\n{what}"
                );
            }
        }
        if through {
            return died;
        }
    }
    died
}

#[test]
fn functions_stay_in_where_ipath_is_killed() {
    // Build before the target starts.
    faulty();
    let target = Target::start_nice(program("remeasured.c"), ["2"]).await_output("ready");
    let (session, attached) = Session::try_attach(target.pid(), &FUNCTIONS, "count");
    attached.expect(0);
    target.signal(Signal::SIGUSR1);
    let mut target = target.await_output("begun");
    let (add, remove) = ("add", "remove");
    for (deed, steps) in [
        ([(add, "wall"), (remove, "wall")], 30),
        ([(add, "arg1"), (remove, "arg1")], 10),
    ] {
        let died = kill_at_every_step(&mut target, &session, deed);
        assert!(died >= steps, "{deed:?}: only {died} steps");
    }
    session.add_metrics(&FUNCTIONS, "wall,arg1").expect(0);
    let died = kill_at_every_step(&mut target, &session, [(remove, "wall"), (add, "wall")]);
    assert!(died >= 20, "only {died} steps");
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("idle");
    let calls = own_counts(&target.stdout());
    let profile = session.detach();
    target.finish("ok");
    profile.assert_lossless();
    for name in FUNCTIONS {
        let function = profile.function(name).expect("in the session");
        assert_eq!(count(&function.totals), calls[name], "{name}");
    }
}
