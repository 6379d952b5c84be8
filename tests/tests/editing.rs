//! `E`: the user's editor gets the terminal. Events that end the session end it then, too.

use ipath_tests::compile::program_with;
use ipath_tests::dump::family;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::pty::Pty;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Text that shows that the view has drawn the table.
const DRAWN: &str = " help";

/// A target whose calls have source lines, and an editor, which is a script.
struct Edited {
    target: Target,
    before: ProcessState,
    scratch: Scratch,
}

impl Edited {
    /// Starts the target. The editor runs this script, in which `FOLDER` stands for its folder.
    fn new(script: &str) -> Self {
        let target = Target::start(program_with("busy.c", &["-g"]), ["1", "600"]);
        let target = target.await_output("ready");
        let before = ProcessState::of(target.pid());
        let scratch = Scratch::new("editing");
        let editor = scratch.file("editor");
        let folder = editor.parent().expect("a folder").display().to_string();
        let script = format!("#!/bin/sh\necho $$ > {folder}/pid\n{script}\n");
        fs::write(&editor, script.replace("FOLDER", &folder)).expect("write in an own folder");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&editor, mode).expect("an own file");
        Self {
            target,
            before,
            scratch,
        }
    }

    fn attach(&self, more: &[&str]) -> Command {
        let mut command = Command::new(ipath());
        let pid = self.target.pid().to_string();
        command.args(["attach", &pid, "-f", "step", "--interval", "50ms"]);
        command.args(more).env_remove("VISUAL");
        command.env("EDITOR", self.scratch.file("editor"));
        command
    }

    /// Waits for the view, and lets it start the editor at a call.
    fn edit(&self, view: &mut Pty, says: &str) {
        view.shows(DRAWN);
        // A row below `step`. The order and number of rows depend on the calls so far.
        draws(view, "├─");
        view.send(b"+");
        view.send(b"j");
        // The details of the row show the source line of the call.
        draws(view, "busy.c:");
        view.forget();
        view.send(b"E");
        view.shows(says);
    }

    /// The process id of the editor, which has been started.
    fn editor(&self) -> Pid {
        let pid = fs::read_to_string(self.scratch.file("pid")).expect("it has started");
        Pid::from_raw(pid.trim().parse().expect("a process id"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Checks that the target is as before the session, and ends it.
    fn assert_clean(self) {
        self.before.assert_unchanged(self.target.pid());
        self.target.finish("ok calls ");
    }
}

/// Redraws the whole screen until it contains a text. Incremental output may contain only pieces of
/// it.
fn draws(view: &mut Pty, text: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        view.forget();
        view.send(b"\x0c");
        view.shows(DRAWN);
        if view.seen().contains(text) {
            return;
        }
        assert!(Instant::now() < end, "no {text}:\n{}", view.report());
    }
}

#[test]
fn what_ends_the_session_ends_it_beside_an_editor() {
    for (way, more) in [
        ("signal", &[][..]),
        ("terminal", &[]),
        ("time", &["--duration", "10s"]),
    ] {
        let edited = Edited::new("trap 'kill $!; exit 3' HUP; sleep 600 & echo editing; wait");
        let mut view = Pty::spawn(edited.attach(more), true);
        let before = view.termios();
        edited.edit(&mut view, "editing");
        match way {
            "signal" => view.signal(Signal::SIGTERM),
            "terminal" => view.hang_up(),
            _ => {}
        }
        assert_eq!(view.wait(), 0, "{way}: {}", view.report());
        if way != "terminal" {
            assert_eq!(view.termios(), before, "{way}");
        }
        assert!(kill(edited.editor(), None).is_err(), "{way}: it goes on");
        edited.assert_clean();
    }
}

#[test]
fn the_end_of_the_program_ends_the_view_beside_an_editor() {
    let edited = Edited::new("echo editing; exec sleep 600");
    let mut view = Pty::spawn(edited.attach(&[]), true);
    edited.edit(&mut view, "editing");
    edited.target.signal(Signal::SIGKILL);
    assert_eq!(view.wait(), 0, "{}", view.report());
    assert!(view.seen().contains("step"), "{}", view.report());
}

/// An editor that does not end loses the terminal, and its terminal settings are undone.
#[test]
fn an_editor_that_does_not_end_is_left() {
    let edited = Edited::new("trap '' HUP TERM; stty raw -echo; echo editing; exec sleep 600");
    let mut view = Pty::spawn(edited.attach(&[]), true);
    let before = view.termios();
    edited.edit(&mut view, "editing");
    view.signal(Signal::SIGTERM);
    let code = view.wait();
    let killed = kill(edited.editor(), Signal::SIGKILL);
    assert_eq!(code, 0, "{}", view.report());
    assert_eq!(killed, Ok(()), "it has ended");
    assert_eq!(view.termios(), before);
    edited.assert_clean();
}

/// Ctrl-C typed in the editor does not end the view.
#[test]
fn ctrl_c_is_the_editors() {
    let edited =
        Edited::new("trap 'echo got it; exit 0' INT; echo editing; while :; do sleep 0.1; done");
    let mut view = Pty::spawn(edited.attach(&[]), true);
    edited.edit(&mut view, "editing");
    view.forget();
    view.send(b"\x03");
    view.shows("got it");
    view.shows(DRAWN);
    view.send(b"q");
    assert_eq!(view.wait(), 0, "{}", view.report());
    edited.assert_clean();
}

/// Ctrl-Z in the editor, which stops its job or only itself: the shell gets the terminal, and all
/// processes continue together.
#[test]
fn an_editor_that_stops_has_ipath_stop() {
    for stop in ["kill -TSTP 0", "kill -STOP $$"] {
        let script = format!("echo editing; {stop}; echo edited; echo done > FOLDER/done");
        let edited = Edited::new(&script);
        let mut command = Command::new("bash");
        command.args(["--norc", "-i"]);
        let attach = edited.attach(&[]);
        let words = std::iter::once(attach.get_program()).chain(attach.get_args());
        let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
        command.env_remove("VISUAL");
        command.env("EDITOR", edited.file("editor"));
        let mut shell = Pty::spawn(command, true);
        shell.send(format!("{}\n", words.join(" ")).as_bytes());
        edited.edit(&mut shell, "editing");
        shell.shows("Stopped");
        assert!(!edited.file("done").exists(), "{stop}");
        shell.forget();
        shell.send(b"fg\n");
        shell.shows("edited");
        shell.shows(DRAWN);
        shell.forget();
        shell.send(b"q");
        shell.shows("\x1b[?1049l");
        shell.send(b"echo left=$?\n");
        shell.shows("left=0");
        assert_eq!(family(shell.pid()).len(), 1, "{stop}: {}", shell.report());
        edited.assert_clean();
    }
}
