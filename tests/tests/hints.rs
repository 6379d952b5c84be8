//! Displayed commands work as shown when pasted into a shell, for all names that they contain.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::{Scratch, workspace};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Function names that end a quoted word and continue with shell syntax.
const EVIL: [&str; 3] = ["x'; touch pwned; echo '", "$(touch pwned)", "`touch pwned`"];

/// A program with one renamed function, and the address of that function in its file.
fn renamed(scratch: &Scratch, program: &Path, from: &str, to: &str) -> (PathBuf, String) {
    let file = scratch.file("renamed");
    Run::new("objcopy")
        .arg(format!("--redefine-sym={from}={to}"))
        .arg(program)
        .arg(&file)
        .run()
        .expect(0);
    let symbols = Run::new("nm").arg(&file).run().expect(0).stdout;
    let line = symbols.lines().find(|l| l.ends_with(to));
    let address = line.and_then(|l| l.split(' ').next()).expect("its address");
    let place = format!("renamed+0x{}", address.trim_start_matches('0'));
    (file, place)
}

/// The arguments that `ipath` would get if this line were pasted in a folder. Nothing else may
/// happen there.
fn pasted(folder: &Path, line: &str) -> Vec<String> {
    let script = format!("ipath() {{ printf '%s\\n' \"$@\"; }}; {line}");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &script]).current_dir(folder).output();
    let output = output.expect("start sh");
    assert!(output.status.success(), "{line}");
    assert!(!folder.join("pwned").exists(), "{line}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn names_in_hints_are_words_of_a_shell() {
    for evil in EVIL {
        let scratch = Scratch::new("hints");
        let small = program_with("remeasured.c", &["-g"]);
        let (file, place) = renamed(&scratch, &small, "small", evil);
        let target = Target::start(&file, ["4"]).await_output("ready");
        let pid = target.pid().to_string();
        Run::ipath(["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"])
            .args(["-m", "count", "-f", &place])
            .run()
            .expect(0);
        let refused = Run::ipath(["add", &pid, "-f", &place, "-m", "wall"])
            .run()
            .expect(1);
        let hints = refused.hints();
        let command = &hints[hints.find("`ipath remove").expect("a command") + 1..];
        let command = &command[..command.find("`, then `ipath add").expect("another one")];
        assert_eq!(
            pasted(scratch.path(), command),
            ["remove", &pid, "-f", evil],
            "{hints}"
        );
        let unknown = Run::ipath(["remove", &pid, "-f", "nothing"])
            .run()
            .expect(1);
        let hints = unknown.hints();
        let names = hints.trim().strip_prefix("instrumented are ");
        let names = names.expect("a list").to_owned();
        assert_eq!(pasted(scratch.path(), &format!("ipath {names}")), [evil]);
        Run::ipath(["detach", &pid]).run().expect(0);
        target.signal(Signal::SIGKILL);
    }
}

#[test]
fn names_near_what_was_meant_are_words_of_a_shell() {
    let scratch = Scratch::new("hints");
    let (file, _) = renamed(&scratch, &program("suggested.c"), "hot", "hot;touch pwned");
    let shown = file.display().to_string();
    let unknown = Run::ipath(["list", &shown, "hot;touch pwnd"])
        .run()
        .expect(1);
    let hints = unknown.hints();
    let near = hints.trim().strip_prefix("did you mean ");
    let near = near.and_then(|n| n.strip_suffix('?')).expect("a question");
    let given = pasted(scratch.path(), &format!("ipath {near}"));
    assert_eq!(given[0], "hot;touch pwned", "{hints}");
}

#[test]
fn suggested_commands_name_one_function() {
    let scratch = Scratch::new("hints");
    let (file, place) = renamed(&scratch, &program("suggested.c"), "hot", EVIL[0]);
    let target = Target::start(&file, ["cpu"]).await_output("ready");
    let pid = target.pid().to_string();
    let suggested = Run::ipath(["suggest", &pid, "--duration", "1s"]).run();
    let text = suggested.expect(0).stdout;
    let command = text.lines().find_map(|l| l.split_once("paths: "));
    let command = command.expect("what to do next").1;
    let expected = ["attach", &pid, "-f", &place];
    assert_eq!(pasted(scratch.path(), command), expected, "{text}");
    target.finish("ok");
}

/// A command with variable parts is always made by the type that quotes them.
#[test]
fn no_command_is_made_by_hand() {
    let help = Run::ipath(["--help"]).run().expect(0).stdout;
    let (_, commands) = help.split_once("Commands:\n").expect("a list");
    let commands: Vec<&str> = commands
        .lines()
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"attach"), "{help}");
    let mut folders = vec![workspace().join("mutator/src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|e| e != "rs") || path.ends_with("src/hint.rs") {
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).expect("text");
            for (at, _) in text.match_indices("ipath ") {
                let rest = &text[at + 6..];
                let command = &rest[..rest.find(['`', '"', '\n']).unwrap_or(rest.len())];
                let is_one = commands
                    .iter()
                    .any(|c| command.starts_with(&format!("{c} ")));
                let is_made = is_one && command.contains('{');
                assert!(!is_made, "{}: ipath {command}", path.display());
            }
        }
    }
    assert!(files > 100, "{files} files");
}
