//! `escape_in_names`: text from outside has no effect on a terminal, in any kind of output.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::pty::Pty;
use ipath_tests::target::Target;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

/// Sets a terminal's title, reverses the text direction, ends the line, and has bytes that are not
/// UTF-8.
const EVIL: &[u8] = b"ev\x1b]0;owned\x07\xe2\x80\xae\nil\x9b31m\xff";

/// `name`, preceded by text that no terminal may obey.
fn evil(name: &str) -> OsString {
    let mut bytes = EVIL.to_vec();
    bytes.extend(name.as_bytes());
    OsStr::from_bytes(&bytes).to_owned()
}

/// Like [`evil`], as a pattern, which must be valid UTF-8.
fn evil_text(name: &str) -> OsString {
    format!("ev\x1b]0;owned\x07\u{202e}\nil\u{9b}31m{name}").into()
}

/// The program with an evil file name and evil function names.
fn evil_program(scratch: &Scratch) -> PathBuf {
    let file = scratch.path().join(evil("program"));
    let mut command = Command::new("objcopy");
    for (from, to) in [("evil_called", "one"), ("evil_caller", "two")] {
        let mut change = OsString::from(format!("{from}="));
        change.push(evil_text(to));
        command.arg("--redefine-sym").arg(change);
    }
    let output = command.arg(program("escape.c")).arg(&file).output();
    let output = output.expect("start objcopy");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    file
}

/// True if a terminal may obey the character: a control character except the line feed, or a change
/// of the text direction.
fn is_active(c: char) -> bool {
    (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c)
}

fn assert_harmless(finished: &Finished) {
    for stream in [&finished.stdout, &finished.stderr] {
        assert!(!stream.contains(is_active), "{:?}", finished.report());
        // A name did not end its line either.
        let begins = |line: &str| line.starts_with("il");
        assert!(!stream.lines().any(begins), "{:?}", finished.report());
    }
}

#[test]
fn escape_in_names() {
    let scratch = Scratch::new("escape");
    let file = evil_program(&scratch);
    let mut target = Target::start(&file, [evil("argument")]).await_output("ready");
    let pid = target.pid().to_string();
    let profile = scratch.path().join(evil("profile"));
    let nowhere = scratch.path().join(evil("nowhere")).join("p.json");
    let run = |args: &[&str], more: &[&OsStr], code: i32, says: &str| {
        let finished = Run::ipath(args).args(more).run();
        assert_eq!(finished.code(), code, "{:?}", finished.report());
        let all = format!("{}{}", finished.stdout, finished.stderr);
        assert!(
            all.contains(says),
            "{args:?} should say {says}: {:?}",
            finished.report()
        );
        assert_harmless(&finished);
    };
    let shown = r"ev\x1b]0;owned\x07\u{202e}";
    run(&["list"], &[file.as_os_str()], 0, shown);
    run(
        &["list"],
        &[file.as_os_str(), OsStr::new("evil_calles")],
        1,
        "no function",
    );
    run(&["list", &pid, "*one"], &[], 0, shown);
    run(&["list"], &[nowhere.as_os_str()], 1, shown);
    run(&["doctor", &pid], &[], 0, shown);
    let attach = [
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "300ms",
        "--interval",
        "100ms",
    ];
    let of = |pattern: &'static str| ["-f", pattern].map(OsStr::new);
    run(&attach, &of("*!*one"), 0, shown);
    run(
        &attach,
        &[OsStr::new("-f"), &evil_text("none")],
        1,
        "ipath: ",
    );
    run(
        &attach,
        &[&of("*!*one")[..], &[OsStr::new("-o"), nowhere.as_os_str()]].concat(),
        1,
        shown,
    );
    run(
        &[&attach[..], &["--keep"]].concat(),
        &of("*!*one"),
        0,
        shown,
    );
    run(&["status", "-v"], &[], 0, shown);
    run(&["status", &pid], &[], 0, shown);
    run(&["add", &pid], &of("*!*two"), 0, shown);
    run(&["remove", &pid], &of("*two"), 0, shown);
    run(&["remove", &pid], &of("*none"), 1, shown);
    run(
        &[
            "top",
            &pid,
            "--no-tui",
            "--duration",
            "250ms",
            "--interval",
            "100ms",
        ],
        &[],
        0,
        shown,
    );
    run(&["snapshot", &pid, "-o"], &[profile.as_os_str()], 0, "");
    run(&["snapshot", &pid, "-o"], &[nowhere.as_os_str()], 1, shown);
    run(&["report"], &[profile.as_os_str()], 0, shown);
    run(&["report"], &[nowhere.as_os_str()], 1, shown);
    run(&["detach", &pid], &[], 0, "");
    run(
        &["attach", "999999999", "-f"],
        &[&evil_text("x")],
        1,
        "ipath: ",
    );
    let program = [OsStr::new("--"), nowhere.as_os_str()];
    run(&["run", "-f", "main"], &program, 1, shown);

    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "-f", "*!*one", "--interval", "50ms"]);
    let mut view = Pty::spawn(command, true);
    view.shows("one");
    view.send(b"q");
    assert_eq!(view.wait(), 0, "{}", view.report());
    let seen = view.seen();
    assert!(
        !seen.contains("\x1b]0;") && !seen.contains('\u{202e}'),
        "{seen:?}"
    );
    assert!(target.poll().is_none(), "{}", target.report());
    target.finish("ok calls ");
}
