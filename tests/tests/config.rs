//! The file of defaults: its location, its allowed contents, and the precedence of arguments.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::{Session, listed};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Writes a file of defaults.
fn write(file: &Path, text: &str) {
    let folder = file.parent().expect("it is in a folder");
    fs::create_dir_all(folder).expect("an own folder");
    fs::write(file, text).expect("an own folder");
    // Independent of the umask.
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).expect("an own file");
}

/// `ipath` with a file of defaults.
fn with(file: &Path, args: &[&str]) -> Run {
    // `Run::ipath` may name metrics itself.
    Run::new(ipath()).args(args).env("IPATH_CONFIG", file)
}

/// Standard error of a command that failed with status 2 and without output: one line about the
/// file of defaults, and at most one hint.
fn said(finished: Finished) -> String {
    let finished = finished.expect(2);
    assert_eq!(finished.stdout, "", "{}", finished.report());
    let lines: Vec<&str> = finished.stderr.lines().collect();
    let about = lines
        .iter()
        .filter(|l| l.starts_with("ipath: read "))
        .count();
    let hints = lines.iter().filter(|l| l.starts_with("hint: ")).count();
    assert!(
        about == 1 && hints <= 1 && about + hints == lines.len(),
        "{}",
        finished.report()
    );
    finished.stderr
}

/// Measures a program with a file of defaults, writes the profile to `output`, and returns it.
fn measure(config: &Path, options: &[&str], output: &Path) -> Profile {
    let run = with(config, &["run", "--no-tui", "-f", "step"]).args(options);
    let run = run.arg("-o").arg(output).arg("--");
    run.arg(program("endings.c"))
        .args(["exit", "0"])
        .run()
        .expect(0);
    Profile::read(output)
}

#[test]
fn tests_read_no_file_of_the_developers() {
    let named = std::env::var_os("IPATH_CONFIG");
    assert!(
        named.is_some_and(|name| name.is_empty()),
        "run tests by cargo: .cargo/config.toml sets IPATH_CONFIG"
    );
}

#[test]
fn defaults_hold_where_the_arguments_say_nothing() {
    let scratch = Scratch::new("defaults");
    let (config, output) = (scratch.file("config.toml"), scratch.file("p.json"));
    let metrics = |profile: &Profile| {
        let function = profile.function("step").expect("step");
        ["wall", "cpu", "blocked"].map(|metric| function.totals.get(metric).is_some())
    };
    write(
        &config,
        "metric = ['wall', 'cpu']\ndepth = 1\n\n[report]\nquiet = true\ndepth = 1\n",
    );
    let profile = measure(&config, &[], &output);
    assert_eq!(metrics(&profile), [true, true, false]);
    let profile = measure(&config, &["-m", "count"], &output);
    assert_eq!(metrics(&profile), [false; 3]);

    let report = |options: &[&str]| {
        let run = with(&config, &["report"]).arg(&output).args(options);
        run.run().expect(0).stdout
    };
    let plain = Run::ipath(["report", "--quiet", "--depth", "1"]).arg(&output);
    assert_eq!(report(&[]), plain.run().expect(0).stdout);
    let json = Run::ipath(["report", "--json"]).arg(&output).run();
    assert_eq!(report(&["--json", "--depth", "24"]), json.expect(0).stdout);
}

/// The XDG Base Directory Specification gives the location of the file of defaults; `IPATH_CONFIG`
/// takes precedence.
#[test]
fn it_is_where_the_specification_has_it() {
    let scratch = Scratch::new("xdg");
    let profile = scratch.file("p.json");
    measure(Path::new(""), &[], &profile);
    let (home, xdg) = (scratch.file("home"), scratch.file("xdg"));
    let wrong = |name: &str| format!("{name} = 1\n");
    write(&home.join(".config/ipath/config.toml"), &wrong("in-home"));
    write(&xdg.join("ipath/config.toml"), &wrong("in-xdg"));
    let own = scratch.file("own.toml");
    write(&own, &wrong("in-own"));
    let report = |variables: &[(&str, &Path)]| {
        let run = Run::new("env").args(["-u", "IPATH_CONFIG", "-u", "XDG_CONFIG_HOME"]);
        let set = |(name, value): &(&str, &Path)| format!("{name}={}", value.display());
        let run = run.args(variables.iter().map(set));
        run.arg(ipath()).arg("report").arg(&profile).run()
    };
    let home = ("HOME", home.as_path());
    let found = |variables: &[(&str, &Path)], word: &str| {
        let line = said(report(variables));
        assert!(line.contains(word), "{line}");
    };
    found(&[home], "in-home");
    found(
        &[home, ("XDG_CONFIG_HOME", Path::new("relative"))],
        "in-home",
    );
    let xdg = ("XDG_CONFIG_HOME", xdg.as_path());
    found(&[home, xdg], "in-xdg");
    found(&[home, xdg, ("IPATH_CONFIG", &own)], "in-own");
    report(&[home, xdg, ("IPATH_CONFIG", Path::new(""))]).expect(0);
    // The file is optional, unless it is named.
    let nowhere = scratch.file("nowhere");
    report(&[("HOME", &nowhere)]).expect(0);
    let named = [home, ("IPATH_CONFIG", nowhere.as_path())];
    found(&named, "no such file");
}

/// A faulty file changes nothing, and commands that end a session still work.
#[test]
fn a_wrong_file_stops_before_anything_is_done() {
    let scratch = Scratch::new("wrong");
    let config = scratch.file("config.toml");
    let counter = scratch.file("counter").display().to_string();
    let busy = program("busy.c");
    let target = Target::start(busy, ["1", "300", &counter]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let attach = ["attach", &pid, "-f", "step", "--duration", "100ms"];
    for (text, words) in [
        ("depht = 3\n", "config.toml:1: there is no key 'depht'"),
        (
            "\n[attach]\nlimit = 3\n",
            ":3: there is no key 'limit' in [attach]",
        ),
        ("depth = 'deep'\n", ":1: depth: invalid value 'deep'"),
        (
            "depth = true\n",
            ":1: depth: a string or a number is expected",
        ),
        ("no-tui = 1\n", ":1: no-tui: true or false is expected"),
        (
            "[run]\nno-tui = 1\n",
            ":2: no-tui: true or false is expected",
        ),
        ("depth = \n", "config.toml:1: "),
        ("\u{1b}[31mred = 1\n", "config.toml:1: "),
    ] {
        write(&config, text);
        let line = said(with(&config, &attach).run());
        assert!(line.contains(words), "{line}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    assert_eq!(listed(target.pid()), None);
    before.assert_unchanged(target.pid());
    // Commands without defaults ignore the file, and so does help.
    with(&config, &["status"]).run().expect(0);
    with(&config, &["attach", "--help"]).run().expect(0);
    let mistyped = with(&config, &["attach", "--dept", "3"]).run().expect(2);
    assert!(
        mistyped.stderr.starts_with("error: "),
        "{}",
        mistyped.report()
    );
    let session = Session::attach(target.pid(), &["step"]);
    with(&config, &["snapshot", &pid, "-o", "-"])
        .run()
        .expect(0);
    with(&config, &["detach", &pid]).run().expect(0);
    drop(session);
    before.assert_unchanged(target.pid());
}

/// Other users must not control how programs are measured, especially if root measures.
#[test]
fn a_file_that_others_may_write_is_refused() {
    const NOBODY: u32 = ipath_tests::command::NOBODY;
    let scratch = Scratch::public("config");
    let (config, profile) = (scratch.file("config.toml"), scratch.file("p.json"));
    measure(Path::new(""), &[], &profile);
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o644)).expect("an own file");
    write(&config, "[report]\nquiet = true\n");
    let report = || with(&config, &["report"]).arg(&profile);
    let mode = |mode| fs::set_permissions(&config, fs::Permissions::from_mode(mode)).expect("own");
    let refused = |run: Run, words: &str| {
        let line = said(run.run());
        assert!(line.contains(words), "{line}");
    };
    report().run().expect(0);
    for writable in [0o664, 0o646, 0o666] {
        mode(writable);
        refused(report(), "users other than its owner may write to it");
    }
    mode(0o644);
    chown(&config, Some(NOBODY), None).expect("tests run as root");
    refused(report(), "belongs to user 65534");
    // A link is treated as its target.
    let link: PathBuf = scratch.file("link.toml");
    std::os::unix::fs::symlink(&config, &link).expect("an own folder");
    refused(
        with(&link, &["report"]).arg(&profile),
        "belongs to user 65534",
    );
    chown(&config, Some(0), None).expect("tests run as root");
    with(&link, &["report"]).arg(&profile).run().expect(0);
    // A FIFO must not block.
    let fifo = scratch.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("an own folder");
    refused(with(&fifo, &["report"]).arg(&profile), "not a regular file");
    refused(
        with(scratch.path(), &["report"]).arg(&profile),
        "is a directory",
    );

    // As an ordinary user: root's file is used, and an unreadable file is reported.
    let copy = scratch.file("ipath");
    fs::copy(ipath(), &copy).expect("an own folder");
    let as_nobody = || {
        let run = Run::new(&copy).env("IPATH_CONFIG", &config);
        run.arg("report").arg(&profile).as_nobody()
    };
    as_nobody().run().expect(0);
    mode(0o600);
    refused(as_nobody(), "permission denied");
    // A folder that the user cannot search, such as another user's $HOME, hides whether the file
    // exists. That is an error only if the file is named.
    let home = scratch.file("home");
    fs::create_dir(&home).expect("an own folder");
    write(&home.join("ipath/config.toml"), "[report]\nquiet = 1\n");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("an own folder");
    let in_home = |variable: &str, value: &Path| {
        let run = Run::new("env").args(["-u", "IPATH_CONFIG"]);
        let run = run
            .arg(format!("{variable}={}", value.display()))
            .arg(&copy);
        run.arg("report").arg(&profile).as_nobody()
    };
    in_home("XDG_CONFIG_HOME", &home).run().expect(0);
    refused(
        in_home("IPATH_CONFIG", &home.join("ipath/config.toml")),
        "permission denied",
    );
}
