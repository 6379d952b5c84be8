//! `ipath attach` without a function: samples first, and one to choose.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::ipath;
use ipath_tests::pty::Pty;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;

fn target() -> Target {
    Target::start(program("suggested.c"), ["cpu"]).await_output("ready")
}

/// A target, its process id, and who has been shown what is to choose there.
fn choosing() -> (Target, String, Pty) {
    let target = target();
    let pid = target.pid().to_string();
    let mut seated = Pty::start(ipath(), ["attach", &pid]);
    seated.shows("hot");
    (target, pid, seated)
}

#[test]
fn a_function_is_chosen_and_measured() {
    let (target, _, mut seated) = choosing();
    seated.shows("Enter measure exactly");
    seated.shows("samples");
    seated.forget();
    seated.send(b"\r");
    seated.shows("FUNCTION < CALLERS");
    seated.shows("hot");
    seated.send(b"q");
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    assert!(
        seated.seen().contains("Nothing was lost"),
        "{}",
        seated.report()
    );
    target.finish("ok");
}

#[test]
fn who_chooses_nothing_leaves_nothing() {
    let (target, pid, mut seated) = choosing();
    // It takes back what is chosen, and no more.
    seated.send(b"\x1b");
    seated.forget();
    seated.shows("%");
    seated.send(b"q");
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    let error = Run::ipath(["detach", &pid]).run().expect(1).expect_error();
    assert!(error.contains("no session"), "{error}");
    target.finish("ok");
}

#[test]
fn a_target_that_ends_ends_the_choice() {
    let (target, _, mut seated) = choosing();
    target.signal(Signal::SIGKILL);
    assert_eq!(seated.wait(), 1, "{}", seated.report());
    assert!(
        seated.seen().contains("the process has ended"),
        "{}",
        seated.report()
    );
}

#[test]
fn without_a_terminal_it_is_said_what_to_do() {
    let target = target();
    let pid = target.pid().to_string();
    let finished = Run::ipath(["attach", &pid]).run().expect(1);
    let error = finished.expect_error();
    assert!(error.contains("no function is named"), "{error}");
    assert!(
        finished.hints().contains(&format!("ipath suggest {pid}")),
        "{}",
        finished.hints()
    );
    target.finish("ok");
}
