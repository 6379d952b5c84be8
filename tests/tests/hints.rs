//! Displayed commands work as shown when pasted into a shell, for all names that they contain.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::ipath;
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
        let names = hints.trim().strip_prefix("instrumented functions: ");
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
    let mut folders = vec![workspace().join("mutator")];
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

/// Screens and reports show names without namespaces, with folded templates, or without a trait.
#[test]
fn names_as_a_screen_shows_them_are_patterns() {
    let in_cpp = |name: &str| Run::ipath(["list"]).arg(program("shop.cc")).arg(name).run();
    let in_rust = |name: &str| Run::ipath(["list"]).arg(program("shop.rs")).arg(name).run();
    for found in [
        in_cpp("LruCache<long, Item>::get"),
        in_rust("Store<...>::look_up"),
        in_rust("<Store<...> as Lookup<...>>::look_up"),
    ] {
        let found = found.expect(0).stdout;
        assert!(found.contains("1 functions:"), "{found}");
    }
    // Several functions look like that, so none is chosen.
    let several = in_cpp("LruCache<...>::get").expect(1).hints();
    assert!(several.contains("did you mean"), "{several}");
    assert!(several.contains("LruCache<long,"), "{several}");
    // The last component alone names nothing. The hint is a form that does.
    for (alone, hint) in [
        (in_cpp("price_of_basket_"), "shop::price_of_basket"),
        (in_rust("look_up"), "look_up"),
    ] {
        let given = alone.expect(1).hints();
        assert!(given.contains("did you mean"), "{given}");
        assert!(given.contains(hint), "{given}");
    }
}

/// A process can be named instead of given by id. A file with that name takes precedence.
#[test]
fn list_takes_the_name_of_a_process() {
    let scratch = Scratch::new("list-name");
    // The kernel keeps a name of this length whole.
    let name = format!("lst-{}", std::process::id());
    let server = scratch.file(&name);
    fs::copy(program("named.c"), &server).expect("a copy");
    let target = Target::start(&server, [] as [&str; 0]).await_output("ready");
    let list = |folder: &Scratch| {
        let there = Run::new("env").arg("-C").arg(folder.path());
        there.arg(ipath()).args(["list", &name]).run()
    };
    let elsewhere = Scratch::new("list-elsewhere");
    let found = list(&elsewhere).expect(0).stdout;
    assert!(found.contains(&server.display().to_string()), "{found}");
    fs::create_dir(elsewhere.file(&name)).expect("a folder");
    list(&elsewhere).expect(0);
    fs::remove_dir(elsewhere.file(&name)).expect("no folder");
    fs::write(elsewhere.file(&name), "text").expect("a file");
    assert!(list(&elsewhere).expect_error().contains("list"));
    drop(target);
}
