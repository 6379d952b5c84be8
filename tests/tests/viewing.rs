//! The live view in a real terminal.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::listed;
use ipath_tests::target::Target;
use ipath_tests::terminal::Terminal;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A program that calls `leaf` on 2^`levels` paths.
fn many(levels: u32) -> Target {
    let levels = levels.to_string();
    Target::start(program("many_paths.c"), [&levels, "0", "500"]).await_output("ready")
}

/// A view of `leaf` in the program. When it ends, it prints the line `left=STATUS`.
fn view(target: &Target, more: &str) -> Terminal {
    let (own, pid) = (ipath(), target.pid());
    let command = format!(
        "cd /tmp; EDITOR=true {} attach {pid} -f leaf {more}; echo left=$?; sleep 600",
        own.display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["leaf", "CALLS"]);
    terminal
}

/// Ends the view, and returns the screen afterwards.
fn left(terminal: &Terminal) -> String {
    terminal.keys(&["q"]);
    terminal.shows(&["left=0"])
}

/// Ends the program, and returns its own number of calls.
fn own_calls(target: Target) -> u64 {
    let line = target.finish("ok calls ");
    line.trim()
        .rsplit(' ')
        .next()
        .expect("a number")
        .parse()
        .expect("a number")
}

/// Waits until the session of a program has this many paths.
fn await_paths(target: &Target, scratch: &Scratch, paths: usize) {
    let (pid, file) = (target.pid().to_string(), scratch.file("now.json"));
    for _ in 0..60 {
        let snapshot = Run::ipath(["snapshot", &pid, "-o"]).arg(&file);
        snapshot.run().expect(0);
        if Profile::read(&file).paths.len() >= paths {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("the program has not been on {paths} paths");
}

/// Every key, with 65,536 paths below one function: neither the screen nor the counts suffer.
#[test]
fn every_key_on_many_paths() {
    let target = many(16);
    let scratch = Scratch::new("viewing");
    let file = scratch.file("profile.json");
    let terminal = view(&target, &format!("--interval 200ms -o {}", file.display()));
    for keys in [
        &["Down", "Down", "Right", "Left", "Enter", "Space"][..],
        &["NPage", "PPage", "End", "Home", "g", "G", "j", "k"],
        &["o", "x", "s", "s", "r", "s", "m", "D", "D"],
        &["t", "t", "b", "t", "t"],
        &[
            "C", "Down", "Space", "Space", "Right", "Left", "a", "Escape",
        ],
        &["v", "NPage", "v", "NPage", "v"],
        &["/"],
        &["w", "a", "l", "k", "Enter", "n", "N"],
        &["f"],
        &["s", "h", "a", "r", "e", ":", "5", "%", "Enter"],
        &["BSpace", "z", "BSpace", "BSpace"],
        &["=", "Down", "=", "Escape"],
        &["y", "p", "p", "C-l"],
        &["?", "Down", "Up", "Escape"],
        &["w", "Escape"],
        &["a"],
        &["o", "t", "h", "Escape"],
        &["c", "Escape", "d", "n"],
        &["Home", "e"],
    ] {
        terminal.keys(keys);
        std::thread::sleep(Duration::from_millis(100));
    }
    terminal.keys(&["Escape", "Home"]);
    terminal.until("the view", |text| {
        text.contains("CALLS") && text.contains("leaf")
    });
    // All lines, down to the last one, at the smallest and the largest size.
    terminal.keys(&["-", "+", "End"]);
    for (width, height) in [(20, 5), (200, 60), (120, 40)] {
        terminal.resize(width, height);
        terminal.keys(&["PPage", "PPage", "NPage", "Home", "End"]);
        std::thread::sleep(Duration::from_millis(300));
    }
    terminal.shows(&["walk", "CALLS"]);
    await_paths(&target, &scratch, 1 << 16);
    left(&terminal);
    let mut profile = Profile::read(&file);
    // `e` replaces the patches of `leaf`, unless the program is too busy for it until the end.
    profile.losses.unseen.remove("replaced");
    profile.assert_lossless();
    assert_eq!(profile.paths.len(), 1 << 16);
    assert!(profile.calls("leaf") <= own_calls(target));
}

/// Messages about followed processes appear in the view, and are printed after it has ended.
#[test]
fn what_is_said_leaves_the_view_whole() {
    let scratch = Scratch::new("viewing");
    let [begins, goes_on] = ["begins", "goes_on"].map(|name| scratch.file(name));
    let until = |file: &Path| format!("while ! [ -e {} ]; do sleep 0.1; done", file.display());
    // The view starts before the program, so `leaf` is new to it.
    let script = format!(
        "{}; {} 1 1000000 500 & {}; while kill -0 $!; do ls >/dev/null; sleep 0.1; done",
        until(&begins),
        program("many_paths.c").display(),
        until(&goes_on)
    );
    let options = "--follow -f leaf -f 'ls!*' -m count --interval 200ms";
    let command = format!(
        "{} run {options} -- sh -c '{script}'; echo left=$?; sleep 600",
        ipath().display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["CALLS"]);
    fs::write(&begins, "").expect("write");
    terminal.shows(&["measured from now on: leaf"]);
    fs::write(&goes_on, "").expect("write");
    terminal.until("ls in the view", |text| {
        text.contains("ls is not measured") && !text.contains("ipath: follow")
    });
    terminal.keys(&["q"]);
    terminal.shows(&["ipath: follow", "ls is not measured"]);
}

/// Functions are found while the user types, and can be added. Changes by another terminal are
/// announced.
#[test]
fn functions_are_found_and_added() {
    let target = many(4);
    let pid = target.pid();
    let terminal = view(&target, "--interval 200ms");
    terminal.keys(&["a"]);
    terminal.shows(&["functions; Up and Down choose"]);
    terminal.keys(&["o", "t", "h", "e", "r"]);
    terminal.until("other in the list", |text| {
        let mut lines = text.lines();
        lines.any(|line| line.trim().starts_with("other") && line.contains("many_paths"))
    });
    terminal.keys(&["Enter"]);
    terminal.shows(&["added other"]);
    let pid_text = pid.to_string();
    Run::ipath(["add", &pid_text, "-f", "main"]).run().expect(0);
    terminal.shows(&["another command has added main"]);
    // From the selected frame: its caller, and the functions that the caller calls.
    terminal.keys(&["Home", "Down", "u"]);
    terminal.shows(&["added walk"]);
    terminal.keys(&["s", "/"]);
    terminal.keys(&["^leaf", "Enter"]);
    left(&terminal);
    assert_eq!(listed(pid), None);
    own_calls(target);
}

/// Uses the command as it is shipped, unlike the unit tests of its parts.
#[test]
fn names_are_searched_and_filtered() {
    let target = many(4);
    let terminal = view(&target, "--interval 200ms");
    terminal.keys(&["o", "Home", "/"]);
    terminal.keys(&["walk", "Enter"]);
    terminal.until("it found", |text| !text.contains("look for"));
    terminal.keys(&["f"]);
    terminal.keys(&["walk < main|WALK", "Enter"]);
    terminal.shows(&["nothing is left", "only through walk < main|WALK"]);
    terminal.keys(&["BSpace", "f"]);
    terminal.keys(&["wal.", "Enter"]);
    let text = terminal.shows(&["only through wal.", "leaf"]);
    assert!(!text.contains("too much"), "{text}");
    left(&terminal);
    own_calls(target);
}

/// The key `i` adds the functions that the selected one calls, after a question.
#[test]
fn callees_are_added() {
    let target = Target::start(program("many_paths.c"), ["4", "0", "500"]).await_output("ready");
    let (own, pid) = (ipath(), target.pid());
    let command = format!(
        "{} attach {pid} -f walk --interval 200ms; echo left=$?; sleep 600",
        own.display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["walk", "CALLS"]);
    terminal.keys(&["Home", "i"]);
    terminal.shows(&["add leaf? (y/n)"]);
    terminal.keys(&["y"]);
    terminal.shows(&["added leaf"]);
    // No question is asked if all of them are instrumented already.
    terminal.keys(&["Home", "i"]);
    terminal.shows(&["the functions that it calls are already instrumented"]);
    left(&terminal);
    own_calls(target);
}

/// Sampled shares are shown beside the measured functions, and a function chosen there is measured
/// as well.
#[test]
fn estimates_are_looked_at_beside_exact_figures() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let (own, pid) = (ipath(), target.pid());
    let command = format!(
        "{} attach {pid} -f mixed --interval 200ms; echo left=$?; sleep 600",
        own.display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["CALLS"]);
    terminal.keys(&["S"]);
    terminal.shows(&["Enter measure exactly", "hot", "estimates", "Esc goes back"]);
    terminal.keys(&["Escape"]);
    terminal.shows(&["CALLS", "MEAN"]);
    terminal.keys(&["S"]);
    terminal.shows(&["Enter measure exactly", "hot"]);
    terminal.keys(&["Enter"]);
    terminal.shows(&["CALLS", "hot"]);
    left(&terminal);
    target.finish("ok");
}

#[test]
fn a_stopped_program_is_said_to_be() {
    let target = many(4);
    let terminal = view(&target, "--interval 200ms");
    target.signal(Signal::SIGSTOP);
    terminal.shows(&["stopped by a signal"]);
    target.signal(Signal::SIGCONT);
    terminal.until("it running", |text| !text.contains("stopped by"));
    left(&terminal);
    own_calls(target);
}

#[test]
fn a_session_that_is_kept_is_said_to_be() {
    let target = many(4);
    let pid = target.pid().to_string();
    let terminal = view(&target, "--keep");
    let text = left(&terminal);
    assert!(text.contains(&format!("ipath detach {pid}")), "{text}");
    Run::ipath(["detach", &pid]).run().expect(0);
    own_calls(target);
}

/// A pipe without a reader is reported as such, and the view continues.
#[test]
fn a_pipe_without_a_reader_is_not_waited_for() {
    let target = many(4);
    let scratch = Scratch::public("fifo");
    let pipe = scratch.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("make a FIFO");
    let terminal = view(&target, "");
    terminal.keys(&["w", "C-u"]);
    terminal.keys(&[&pipe.display().to_string(), "Enter"]);
    terminal.shows(&["pipe: it has no reader"]);
    left(&terminal);
    own_calls(target);
}

/// A debugger that traces the program prevents the removal of the session. The message names it and
/// says what to do.
#[test]
fn who_traces_the_program_at_the_end_is_named() {
    let target = many(4);
    let pid = target.pid().to_string();
    let terminal = view(&target, "");
    let tracer = Target::start(program("tracer.c"), [&pid]).await_output("ready");
    terminal.keys(&["q"]);
    terminal.shows(&[
        &format!("is traced by {} (tracer", tracer.pid()),
        &format!("the session stays in: `ipath detach {pid}` takes it out once tracer"),
        "left=1",
    ]);
    drop(tracer);
    Run::ipath(["detach", &pid]).run().expect(0);
    own_calls(target);
}

/// The duration also ends the choice of functions.
#[test]
fn the_duration_ends_the_choice() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let (own, pid) = (ipath(), target.pid());
    let command = format!(
        "{} attach {pid} -f mixed --duration 10s; echo left=$?; sleep 600",
        own.display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["CALLS"]);
    terminal.keys(&["S"]);
    terminal.shows(&["Enter measure exactly"]);
    terminal.shows(&["left=0"]);
    assert_eq!(listed(pid), None);
    target.finish("ok");
}

/// Escape never ends the view.
#[test]
fn escape_only_cancels() {
    let target = many(4);
    let terminal = view(&target, "--interval 200ms");
    for _ in 0..3 {
        terminal.keys(&["Escape"]);
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = terminal.shows(&["CALLS", "leaf"]);
    assert!(!text.contains("left="), "{text}");
    left(&terminal);
    own_calls(target);
}

/// The view is drawn on a terminal whose creator has not set a size.
#[test]
fn a_terminal_without_a_size_is_drawn_on() {
    use ipath_tests::pty::Pty;
    use std::process::Command;
    let target = many(4);
    let mut command = Command::new("sh");
    command.args(["-c", "stty rows 0 cols 0; exec \"$0\" \"$@\""]);
    command.arg(ipath());
    command.args(["attach", &target.pid().to_string(), "-f", "leaf"]);
    let mut seated = Pty::spawn(command, true);
    seated.shows("walk");
    seated.shows("CALLS");
    seated.send(b"q");
    assert_eq!(seated.wait(), 0, "{}", seated.report());
    own_calls(target);
}

/// No colors if `NO_COLOR` is set, otherwise the terminal's own.
#[test]
fn no_color_is_obeyed() {
    use ipath_tests::pty::Pty;
    use std::process::Command;
    let target = many(4);
    for (no_color, has_colors) in [(Some("1"), false), (None, true)] {
        let mut command = Command::new(ipath());
        command.args(["attach", &target.pid().to_string(), "-f", "leaf"]);
        command.env_remove("NO_COLOR");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let mut seated = Pty::spawn(command, true);
        seated.shows("walk");
        seated.shows("CALLS");
        seated.send(b"q");
        assert_eq!(seated.wait(), 0, "{}", seated.report());
        let seen = seated.seen();
        let colors = ["\x1b[38;5;", "\x1b[31m", "\x1b[33m"];
        let found = colors.iter().any(|color| seen.contains(color));
        assert_eq!(found, has_colors, "{seen:?}");
    }
    own_calls(target);
}
