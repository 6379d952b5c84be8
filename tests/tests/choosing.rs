//! `ipath attach` and `ipath run` without a function: they sample first, then offer functions to
//! choose.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::pty::Pty;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn target() -> Target {
    Target::start(program("suggested.c"), ["cpu"]).await_output("ready")
}

/// Takes `hot` from the functions to choose from. Which one has the most samples at first is a
/// matter of luck.
fn take_hot(seated: &mut Pty) {
    seated.shows("hot");
    seated.send(b"/hot");
    seated.shows("names with: hot");
    seated.send(b"\r");
    seated.forget();
    seated.send(b"\r");
    seated.shows("FUNCTION < CALLERS");
}

/// A target, its process id, and a terminal that shows its functions to choose from.
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
    take_hot(&mut seated);
    seated.shows("mixed < main");
    seated.send(b"q");
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    assert!(
        seated.seen().contains("Nothing was lost"),
        "{}",
        seated.report()
    );
    target.finish("ok");
}

/// A shell that waits for a program, which does the work.
fn wrapper() -> Target {
    let program = program("suggested.c").display().to_string();
    let script = format!("trap 'kill $!; wait $!; exit 0' TERM; {program} cpu & wait");
    Target::start("sh", ["-c", &script]).await_output("ready")
}

/// Leaves the terminal, and ends the wrapper.
fn leave(mut seated: Pty, target: Target) {
    seated.send(b"q");
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    target.signal(Signal::SIGTERM);
    target.finish("ok");
}

/// The choice lists functions of all processes, and the chosen one is measured in each of them.
#[test]
fn a_function_of_a_tree_is_chosen_and_measured() {
    let target = wrapper();
    let pid = target.pid().to_string();
    let mut seated = Pty::start(ipath(), ["attach", &pid, "--children"]);
    seated.shows("2 processes: ");
    take_hot(&mut seated);
    seated.shows("mixed < main");
    leave(seated, target);
}

/// A process that waits for its children gives no samples. The error names the children.
#[test]
fn who_does_the_work_is_said() {
    let target = wrapper();
    let pid = target.pid().to_string();
    let suggested = Run::ipath(["suggest", &pid]).run().expect(1);
    assert!(suggested.expect_error().contains("none of its threads"));
    let command = format!("`ipath suggest {pid} --children`");
    assert!(
        suggested.hints().contains(&command),
        "{}",
        suggested.report()
    );
    let mut seated = Pty::start(ipath(), ["attach", &pid]);
    seated.shows("a process that it has started");
    leave(seated, target);
}

#[test]
fn who_chooses_nothing_leaves_nothing() {
    let (target, pid, mut seated) = choosing();
    // The key undoes the choice and nothing else. Moving the cursor redraws its row.
    seated.shows("warm");
    seated.send(b" ");
    seated.shows("1 chosen");
    seated.forget();
    seated.send(b"\x1b");
    seated.until("drawn anything", |pty| !pty.seen().is_empty());
    seated.forget();
    seated.send(b"G");
    seated.send(b"g");
    seated.shows("hot");
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

/// `ipath run` of a shell command, without a function.
fn running(command: &str) -> Pty {
    Pty::start(ipath(), ["run", "--", "sh", "-c", command])
}

/// Ends the program that `ipath run` has started.
fn end_program(seated: &Pty) {
    let children = format!("/proc/{0}/task/{0}/children", seated.pid());
    let children = std::fs::read_to_string(children).expect("its children");
    let program = children.split_whitespace().next().expect("a child");
    let program = Pid::from_raw(program.parse().expect("a process id"));
    kill(program, Signal::SIGTERM).expect("it runs");
}

/// A shell that executes a program becomes it, and the program is sampled.
#[test]
fn run_lets_choose_while_the_program_runs() {
    let program = program("suggested.c").display().to_string();
    let mut seated = running(&format!("exec {program} cpu"));
    take_hot(&mut seated);
    seated.shows("hot");
    seated.send(b"q");
    seated.shows("Nothing was lost");
    end_program(&seated);
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    // The program's output in the meantime.
    assert!(seated.seen().contains("ok"), "{}", seated.report());
}

#[test]
fn run_ends_as_the_program_does_whatever_is_chosen() {
    let program = program("suggested.c").display().to_string();
    let mut seated = running(&format!(
        "{program} cpu & trap 'kill $!; wait $!; exit 7' TERM; wait"
    ));
    seated.shows("Enter measure exactly");
    seated.send(b"q");
    end_program(&seated);
    assert_eq!(seated.wait(), 7, "{}", seated.report());
    let mut seated = running("sleep 0.3; exit 6");
    assert_eq!(seated.wait(), 6, "{}", seated.report());
}

#[test]
fn run_without_a_terminal_begins_nothing() {
    let scratch = Scratch::new("choosing");
    let file = scratch.file("begun");
    let finished = Run::ipath(["run", "--", "touch"])
        .arg(&file)
        .run()
        .expect(1);
    let error = finished.expect_error();
    assert!(error.contains("no function is named"), "{error}");
    assert!(
        finished.hints().contains("ipath suggest PID"),
        "{}",
        finished.hints()
    );
    assert!(!file.exists(), "the program has run");
}

/// Keys go to the view: the program's input is empty, so it does not read them.
#[test]
fn run_leaves_the_keys_to_the_view() {
    let mut seated = running("cat; exit 3");
    assert_eq!(seated.wait(), 3, "{}", seated.report());
}

/// The last part of a program's output is kept while the view uses the terminal.
#[test]
fn run_keeps_the_last_of_a_flood() {
    let mut seated = running("yes | head -c 40000000; echo; echo the very end; exit 5");
    assert_eq!(seated.wait(), 5, "{}", seated.report());
    let seen = seated.seen();
    assert!(seen.contains("the very end"), "{}", seated.report());
    assert!(seen.contains("of the program's output are left out"));
}

/// Once the view has ended, signals from the terminal go to the program.
#[test]
fn run_leaves_interrupts_to_the_program() {
    let count = "n=0; trap 'n=$((n+1)); echo interrupt $n; [ $n = 2 ] && exit 6' INT; while :; do sleep 0.1; done";
    let mut seated = running(count);
    seated.shows("Enter measure exactly");
    seated.forget();
    seated.send(b"q");
    seated.shows("no function was chosen");
    for n in ["interrupt 1", "interrupt 2"] {
        seated.send(b"\x03");
        seated.shows(n);
    }
    assert_eq!(seated.wait(), 6, "{}", seated.report());
}
