//! Commands in the help, the README, the tutorial and the recipes work as printed.

use ipath_tests::command::{Finished, NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::page::{Block, blocks};
use ipath_tests::place::{Scratch, ipath, workspace};
use ipath_tests::profile::Profile;
use ipath_tests::receiver::Receiver;
use ipath_tests::target::Target;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The command lines in the examples of a command's help.
fn examples(command: &str) -> Vec<String> {
    let help = Run::ipath([command, "--help"]).run().expect(0).stdout;
    let from = help.lines().skip_while(|line| !line.starts_with("Example"));
    let lines = from.map(|line| line.trim_start_matches("Example: ").trim());
    let typed = lines.filter(|line| line.starts_with("ipath "));
    typed.map(str::to_owned).collect()
}

/// Runs a line as a user types it. A command that would run forever is ended as by Ctrl-C after 8
/// seconds. `4242` stands for the pid.
fn typed(line: &str, folder: &Path, pid: u32) -> Finished {
    const AS_FAR_AS_CTRL_C: &str = "timeout --preserve-status --signal=INT 8";
    let line = line.replace("4242", &pid.to_string());
    let is_endless = line.starts_with("ipath attach") || line.contains("--every");
    let line = if is_endless {
        format!("{AS_FAR_AS_CTRL_C} {line}")
    } else {
        line
    };
    let own = ipath();
    let bin = own.parent().expect("a folder").display();
    let script = format!(
        "cd '{}' && PATH=\"{bin}:$PATH\" && {line}",
        folder.display()
    );
    let run = Run::new("sh").args(["-c", &script]);
    run.env("HOME", folder).run()
}

#[test]
fn examples_in_the_help_work_as_printed() {
    let scratch = Scratch::new("documented");
    let folder = scratch.path();
    let built = program("named.c");
    let target = Target::start(&built, [] as [&str; 0]).await_output("ready");
    let pid = target.pid();
    fs::create_dir_all(folder.join(".local/share/bash-completion/completions")).expect("a folder");
    fs::write(folder.join("words.txt"), "three\none\ntwo\n").expect("a file");
    fs::copy(&built, folder.join("app")).expect("a copy");
    for name in ["p", "old", "before", "after", "rank0", "rank1"] {
        let file = folder.join(format!("{name}.json"));
        let attach = Run::ipath(["attach", &pid.to_string(), "-f", "MPI_Wait"]);
        let attach = attach
            .args(["-f", "solve", "--duration", "300ms", "-o"])
            .arg(file);
        attach.run().expect(0);
    }
    let receiver = Receiver::start(&[]);
    let mut count = 0;
    let mut try_all = |command: &str| {
        let all = examples(command);
        assert!(!all.is_empty(), "{command} has no example");
        for line in all {
            let line = line.replace("./app", "./app 4");
            let line = line.replace("http://127.0.0.1:4040", &receiver.address());
            let line = line.replace("http://127.0.0.1:7070", &receiver.address());
            let done = typed(&line, folder, pid);
            let code = done.code();
            // `diff` found a slowdown above its limit, which is not a failure.
            let is_told = command == "diff" && code == 3;
            assert!(code == 0 || is_told, "{line}: {}", done.report());
            count += 1;
        }
    };
    for command in [
        "attach",
        "run",
        "list",
        "suggest",
        "report",
        "export",
        "diff",
        "merge",
        "completions",
        "man",
    ] {
        try_all(command);
    }
    let begin = Run::ipath(["attach", &pid.to_string(), "-f", "solve", "--keep"]);
    begin.args(["--duration", "100ms"]).run().expect(0);
    for command in [
        "status", "top", "push", "add", "remove", "snapshot", "detach", "doctor", "demo",
    ] {
        try_all(command);
    }
    assert!(count >= 27, "{count} examples");
}

/// The user that types the commands of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// The user of the tests.
    Own,
    /// An ordinary user, if the tests run as root.
    Nobody,
}

/// Types the blocks of a page into one shell, once as each user, after the commands `before`, in a
/// folder with the built command and the examples. Returns for each user the ended shell, and the
/// folder.
fn typed_page(page: &str, before: &str) -> Vec<(Finished, Scratch)> {
    let is_root = nix::unistd::geteuid().is_root();
    let users = if is_root {
        &[User::Own, User::Nobody][..]
    } else {
        &[User::Own]
    };
    let blocks = blocks(page);
    users
        .iter()
        .map(|user| {
            let can = |block: &&Block| match block.needs.as_deref() {
                None | Some("MPI") => true,
                Some("root") => is_root && *user == User::Own,
                Some(other) => panic!("{page}:{}: needs {other}", block.line),
            };
            let typed = blocks.iter().filter(can);
            let typed: String = typed.map(|block| &*block.commands).collect();
            let scratch = Scratch::public("page");
            let done = type_in(&format!("{before}\n{typed}"), &scratch, *user);
            (done, scratch)
        })
        .collect()
}

/// Types commands into a shell, which must succeed.
///
/// # Panics
/// If a command fails.
fn type_in(commands: &str, scratch: &Scratch, user: User) -> Finished {
    let folder = scratch.path();
    let bin = folder.join("target/release");
    fs::create_dir_all(&bin).expect("a folder");
    fs::copy(ipath(), bin.join("ipath")).expect("a copy");
    let copy = Run::new("cp").arg("-r").arg(workspace().join("examples"));
    copy.arg(folder.join("examples")).run().expect(0);
    if user == User::Nobody {
        let own = Run::new("chown").args(["-R", &NOBODY.to_string()]);
        own.arg(folder).run().expect(0);
    }
    // Background jobs end even if a later command fails.
    let script = format!(
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT; cd '{}' && set -e\n{commands}",
        folder.display(),
    );
    let run = Run::new("bash")
        .args(["-c", &script])
        .env("HOME", folder)
        .limit(Duration::from_secs(240));
    let run = match user {
        User::Own => run,
        User::Nobody => run.as_nobody(),
    };
    run.run().expect(0)
}

fn has_written(scratch: &Scratch, files: &[&str], done: &Finished) {
    for file in files {
        let file = scratch.file(file);
        assert!(file.exists(), "{}: {}", file.display(), done.report());
    }
}

fn has_said(done: &Finished, words: &[&str]) {
    for word in words {
        assert!(done.stdout.contains(word), "{word}: {}", done.report());
    }
}

/// Puts the built command on the path.
const ON_THE_PATH: &str = "PATH=$PWD/target/release:$PATH";

/// Each command of the tutorial succeeds, and the output names the culprits.
#[test]
fn the_tutorial_ends_at_both_culprits() {
    for (done, scratch) in typed_page("docs/guide/tutorial.md", ON_THE_PATH) {
        let culprits = [
            "hash_lookup",
            "find_customer",
            "exchange_corners",
            "refine_corners",
        ];
        has_said(&done, &culprits);
        let files = [
            "slow.json",
            "fixed.json",
            "changed.svg",
            "search.json",
            "all.json",
        ];
        has_written(&scratch, &files, &done);
    }
}

/// tests/run builds the command by the first line of the page. Here the command is built already,
/// and `cargo` is a stub.
#[test]
fn the_readme_ends_at_the_culprit() {
    let built = r#"
        cargo() {
            case "$*" in
            "build --release") ;;
            "run --release -- demo") target/release/ipath demo ;;
            *) return 1 ;;
            esac
        }
        mkdir tests && ln -s /bin/true tests/run # is running"#;
    for (done, scratch) in typed_page("README.md", built) {
        has_said(
            &done,
            &["demo_find", "MPI_Wait", "exchange_corners", "halo.c:81"],
        );
        has_written(&scratch, &["rank0.json", "rank1.json", "all.json"], &done);
    }
}

#[test]
fn recipes_work_as_printed() {
    for (done, scratch) in typed_page("docs/guide/recipes.md", ON_THE_PATH) {
        let words = [
            "malloc",
            "put_in_order",
            "hash_lookup",
            "stat",
            "ledger",
            "cc1",
            "_json",
        ];
        has_said(&done, &words);
        let files = [
            "heap.json",
            "large.json",
            "lock.json",
            "errors.json",
            "threads.json",
            "build.json",
            "plugin.json",
        ];
        has_written(&scratch, &files, &done);
        holder_has_its_time(&Profile::read(&scratch.file("lock.json")));
    }
}

/// Checks that most CPU time belongs to the function that holds the lock. A tail call does not end
/// it.
fn holder_has_its_time(profile: &Profile) {
    let of = |name: &str| {
        let mut functions = profile.functions.iter();
        functions.find(|f| f.linkage == name).expect("measured")
    };
    let cpu = |name: &str| of(name).totals["cpu"]["sum"].as_u64().expect("ns");
    for name in ["post", "put_in_order"] {
        assert_eq!(of(name).tail, 0, "{name}");
    }
    assert!(2 * cpu("put_in_order") > cpu("post"), "{profile:?}");
}
