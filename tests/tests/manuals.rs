//! Completions and manual pages.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::pty::Pty;
use ipath_tests::target::Target;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// The commands that the help lists.
fn commands() -> BTreeSet<String> {
    let help = Run::ipath(["--help"]).run().expect(0).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Longer texts continue further to the right.
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let first = names.filter_map(|line| line.split_whitespace().next());
    first
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = Scratch::new("man");
    let folder = scratch.file("man1");
    Run::ipath(["man", "-o"]).arg(&folder).run().expect(0);
    let pages = fs::read_dir(&folder).expect("pages");
    let pages: BTreeSet<String> = pages
        .map(|page| {
            page.expect("a page")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut expected: BTreeSet<String> =
        commands().iter().map(|c| format!("ipath-{c}.1")).collect();
    assert!(expected.len() > 15, "{expected:?}");
    expected.insert("ipath.1".to_owned());
    assert_eq!(pages, expected);
    let page = fs::read_to_string(folder.join("ipath-attach.1")).expect("a page");
    for part in [
        ".TH ipath-attach 1",
        ".SH SYNOPSIS",
        "\\-\\-duration",
        "Examples:",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let whole = Run::ipath(["man"]).run().expect(0).stdout;
    assert!(whole.contains(".TH ipath 1"), "{whole}");
}

/// whatis(1) shows NAME: one line of one clause.
#[test]
fn manual_pages_have_a_name_of_one_line() {
    let scratch = Scratch::new("names");
    let folder = scratch.file("man1");
    Run::ipath(["man", "-o"]).arg(&folder).run().expect(0);
    for page in fs::read_dir(&folder).expect("pages") {
        let text = fs::read_to_string(page.expect("a page").path()).expect("a page");
        let lines = text.lines().skip_while(|line| *line != ".SH NAME").skip(1);
        let name: Vec<&str> = lines.take_while(|line| !line.starts_with(".SH")).collect();
        let [line] = name[..] else {
            panic!("{name:?}");
        };
        let (_, what) = line.split_once(" \\- ").expect("a name and what it is");
        assert!(what.len() <= 100 && !what.contains(". "), "{line}");
    }
}

/// The candidates of bash for the last of these words. `kind` is COMP_TYPE.
fn in_bash(scratch: &Scratch, words: &[&str], kind: u32) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let script = format!(
        "cd '{}'; PATH='{}':$PATH; source <(ipath completions bash)
         COMP_WORDS=({}); COMP_CWORD={last}; COMP_TYPE={kind}
         $(complete -p ipath | sed 's/.*-F \\([^ ]*\\).*/\\1/') ipath {} {}
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        scratch.path().display(),
        ipath().parent().expect("a folder").display(),
        quoted.join(" "),
        quoted[last],
        quoted[last - 1],
    );
    let found = Run::new("bash").args(["-c", &script]).run().expect(0);
    assert_eq!(found.stderr, "", "{}", found.report());
    found.stdout.lines().map(str::to_owned).collect()
}

/// The COMP_TYPE that inserts a candidate (bash(1)).
const TAB: u32 = 9;
/// The COMP_TYPE that lists all candidates.
const LISTED: u32 = 63;

#[test]
fn bash_completes_processes_metrics_formats_and_functions() {
    let scratch = Scratch::new("completed");
    let built = program("named.c");
    fs::copy(&built, scratch.file("app")).expect("a copy");
    let target = Target::start(&built, [] as [&str; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = Run::ipath([
        "attach",
        &pid,
        "-f",
        "solve",
        "--duration",
        "100ms",
        "-m",
        "cpu",
        "-o",
    ]);
    attach.arg(scratch.file("p.json")).run().expect(0);
    let ask = |words: &[&str]| in_bash(&scratch, words, TAB);
    let has = |words: &[&str], expected: &[&str]| {
        let found = ask(words);
        for one in expected {
            assert!(
                found.iter().any(|found| found == one),
                "{words:?}: {one}: {found:?}"
            );
        }
    };
    assert_eq!(ask(&["ipath", "det"]), ["detach"]);
    let all: BTreeSet<String> = ask(&["ipath", ""]).into_iter().collect();
    assert!(all.is_superset(&commands()), "{all:?}");
    // A process by its id, with its name beside it in a list, and by its name.
    assert_eq!(ask(&["ipath", "attach", &pid])[0], pid);
    let listed = in_bash(&scratch, &["ipath", "attach", "-p", ""], LISTED);
    let shown = format!("{pid}  (");
    let own = listed.iter().find(|line| line.starts_with(&shown));
    assert!(own.is_some_and(|line| line.contains("named")), "{listed:?}");
    has(&["ipath", "top", "bas"], &["bash"]);
    // Metrics, also after a comma, and metrics of a profile.
    has(
        &["ipath", "attach", &pid, "-m", "c"],
        &["count", "cpu", "context-switches"],
    );
    assert_eq!(
        ask(&["ipath", "attach", &pid, "-m", "wall,blo"]),
        ["wall,blocked", "wall,block-io"]
    );
    assert_eq!(
        ask(&["ipath", "report", "p.json", "--metric", "c"]),
        ["count", "cpu"]
    );
    let formats = ["flamegraph", "folded", "firefox"];
    has(&["ipath", "export", "p.json", "--to", "f"], &formats);
    // Functions of a process, of the program to run, of a file, and of a profile.
    for words in [
        &["ipath", "attach", &pid, "-f", "sol"][..],
        &["ipath", "list", "app", "sol"],
        &["ipath", "list", &pid, "sol"],
        &["ipath", "report", "p.json", "--function", "sol"],
    ] {
        has(words, &["solve"]);
    }
    has(
        &["ipath", "attach", &pid, "-f", "MPI_Wait,sol"],
        &["MPI_Wait,solve"],
    );
    has(&["ipath", "attach", &pid, "-f", "mallo"], &["malloc"]);
    // Bash splits words at the equals sign.
    has(&["ipath", "attach", &pid, "--func", "=", "sol"], &["solve"]);
    has(&["ipath", "attach", &pid, "--func", "="], &["solve"]);
    // File names for arguments that are files.
    assert_eq!(ask(&["ipath", "report", "p.j"]), ["p.json"]);
    assert_eq!(ask(&["ipath", "list", "ap"]), ["app"]);
}

/// Names with characters that are special in the shell are completed with backslashes, or inside a
/// quote. The command accepts them.
#[test]
fn bash_completes_names_of_templates() {
    let scratch = Scratch::new("templates");
    fs::copy(program("shop.cc"), scratch.file("app")).expect("a copy");
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    command.env("INPUTRC", "/dev/null").env("PS1", "$ ");
    command.current_dir(scratch.path());
    let folder = ipath().parent().expect("a folder").display().to_string();
    command.env("PATH", format!("{folder}:/usr/bin:/bin"));
    let mut bash = Pty::spawn(command, true);
    bash.send(
        b"bind 'set enable-bracketed-paste off'; source <(ipath completions bash); echo re''ady\n",
    );
    bash.shows("ready");
    for start in [
        r"shop::cache::LruCache\<long",
        "'shop::cache::LruCache<long",
        "\"shop::cache::LruCache<long",
    ] {
        bash.forget();
        // The common part, and after the method's name the rest.
        bash.send(format!("ipath list app {start}\t").as_bytes());
        bash.shows("hash");
        bash.send(b"g\t\n");
        bash.shows("1 function");
        assert!(
            bash.seen().contains("LruCache<long, shop::Item"),
            "{}",
            bash.seen()
        );
    }
    // Bash passes no text of a word that ends with a colon.
    bash.forget();
    bash.send(b"ipath list app shop::cache::\t");
    bash.shows("LruCache");
    // Ctrl-U empties the line.
    bash.send(b"\x15");
    bash.send(b"exit\n");
    assert_eq!(bash.wait_unread(), 0);
}

/// zsh and fish show the name of a process beside its id. Their scripts use the same variable to
/// ask.
#[test]
fn zsh_and_fish_get_processes_with_their_names() {
    let target = Target::start(program("named.c"), [] as [&str; 0]).await_output("ready");
    let pid = target.pid().to_string();
    for (shell, separator) in [("zsh", ':'), ("fish", '\t')] {
        let script = Run::ipath(["completions", shell]).run().expect(0).stdout;
        assert!(
            script.contains(&format!("IPATH_COMPLETE={shell}"))
                || script.contains(&format!("IPATH_COMPLETE=\"{shell}\"")),
            "{script}"
        );
        let asked = Run::ipath(["--", "ipath", "attach", &pid]);
        let asked = asked
            .env("IPATH_COMPLETE", shell)
            .env("_CLAP_COMPLETE_INDEX", "2");
        let found = asked.run().expect(0).stdout;
        let start = format!("{pid}{separator}");
        let line = found.lines().find(|line| line.starts_with(&start));
        assert!(
            line.is_some_and(|line| line.contains("named")),
            "{shell}: {found}"
        );
    }
}
