//! Completions and manual pages.

use ipath_tests::command::Run;
use ipath_tests::place::Scratch;
use std::collections::BTreeSet;
use std::fs;

/// The commands that the help lists.
fn commands() -> BTreeSet<String> {
    let help = Run::ipath(["--help"]).run().expect(0).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // Longer texts go on further to the right.
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

/// Completions are what their shell takes, and have every command.
#[test]
fn completions_have_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = Run::ipath(["completions", shell]).run().expect(0).stdout;
        for command in commands() {
            assert!(text.contains(&command), "{shell} lacks {command}");
        }
    }
    let script = format!(
        "source <({} completions bash); COMP_WORDS=(ipath det); COMP_CWORD=1; _ipath ipath det ipath; \
         echo \"${{COMPREPLY[*]}}\"",
        ipath_tests::place::ipath().display()
    );
    let found = Run::new("bash")
        .args(["-c", &script])
        .run()
        .expect(0)
        .stdout;
    assert_eq!(found.trim(), "detach");
}
