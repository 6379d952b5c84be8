//! Helpful messages: modules by any of their names, partial matches, files for other machines, and
//! one line per session.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::redis;
use ipath_tests::target::Target;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn busy() -> Target {
    Target::start(program("busy.c"), ["1", "600"]).await_output("ready")
}

/// An executable mapped file whose DT_SONAME differs from its file name. Returns both names.
fn with_other_name(pid: u32) -> (String, String) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let code = maps.lines().filter(|l| l.contains(" r-xp "));
    let files: BTreeSet<&str> = code.filter_map(|l| Some(&l[l.find('/')?..])).collect();
    let own_name = |file: &str| {
        let text = Run::new("readelf").args(["-d", "-W", file]).run().stdout;
        let line = text.lines().find(|l| l.contains("(SONAME)"))?;
        Some(line.split_once('[')?.1.trim_end_matches(']').to_owned())
    };
    let is_other = |file: &str, name: &str| Path::new(file).file_name() != Some(name.as_ref());
    let found = files.iter().find_map(|file| {
        let name = own_name(file).filter(|name| is_other(file, name))?;
        Some(((*file).to_owned(), name))
    });
    found.expect("a library whose file is called by its version")
}

#[test]
fn modules_are_known_by_all_their_names() {
    let scratch = Scratch::new("messages");
    let server = redis::serving(&scratch);
    let pid = server.pid().to_string();
    let list = |pattern: &str| Run::ipath(["list", &pid, pattern]).run();
    // In Debian it is a link to another file.
    for name in ["redis-server", "redis-*"] {
        let listed = list(&format!("{name}!keysCommand")).expect(0).stdout;
        assert!(listed.contains("keysCommand  "), "{listed}");
    }
    let (file, own) = with_other_name(server.pid());
    let listed = list(&format!("{own}!*")).expect(0).stdout;
    assert!(
        listed
            .lines()
            .all(|l| l.contains(&file) || l.contains(" functions: ")),
        "{own}: {listed}"
    );
}

#[test]
fn modules_that_are_not_there_are_answered_with_those_that_are() {
    let target = busy();
    let pid = target.pid().to_string();
    for operation in ["list", "attach"] {
        let mut arguments = vec![operation, &pid];
        arguments.extend(match operation {
            "list" => &["libnone.so*!step"][..],
            _ => &["-f", "libnone.so*!step"],
        });
        let finished = Run::ipath(arguments).run().expect(1);
        let error = finished.expect_error();
        assert!(
            error.contains("no module of that name for 'libnone.so*!step'"),
            "{error}"
        );
        assert!(
            finished.hints().contains("libc.so.6"),
            "{}",
            finished.hints()
        );
    }
    target.finish("ok calls ");
}

#[test]
fn what_is_found_is_shown_beside_what_is_not() {
    let target = busy();
    let pid = target.pid().to_string();
    let finished = Run::ipath(["list", &pid, "step", "nothing_is_called_so"])
        .run()
        .expect(1);
    assert!(finished.stdout.starts_with("step  "), "{}", finished.stdout);
    let error = finished.expect_error();
    assert!(error.contains("'nothing_is_called_so'"), "{error}");
    target.finish("ok calls ");
}

#[test]
fn files_of_other_machines_are_named() {
    let scratch = Scratch::new("messages");
    let file = scratch.file("other");
    let mut bytes = fs::read(program("busy.c")).expect("an ELF file");
    for (machine, name) in [
        (183_u16, "AArch64"),
        (243, "RISC-V"),
        (9999, "machine 9999"),
    ] {
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        fs::write(&file, &bytes).expect("an own file");
        let shown = file.display().to_string();
        let error = Run::ipath(["list", &shown]).run().expect(1).expect_error();
        assert!(
            error.contains("not an x86-64 ELF file") && error.contains(name),
            "{error}"
        );
    }
}

#[test]
fn who_ends_what_is_not_there_is_not_told_to_begin() {
    let target = busy();
    let pid = target.pid().to_string();
    let hints = |arguments: &[&str]| Run::ipath(arguments).run().expect(1).hints();
    assert!(hints(&["detach", &pid]).contains("ipath status"));
    assert!(hints(&["remove", &pid, "-f", "step"]).contains("ipath status"));
    assert!(hints(&["add", &pid, "-f", "step"]).contains("ipath attach"));
    target.finish("ok calls ");
}

#[test]
fn more_than_there_is_room_for_is_said_at_once() {
    let scratch = Scratch::new("messages");
    let server = redis::serving(&scratch);
    let pid = server.pid().to_string();
    let finished = Run::ipath(["attach", &pid, "-f", "*"]).run().expect(1);
    let error = finished.expect_error();
    assert!(
        error.contains("functions match, and a session has room for"),
        "{error}"
    );
    assert!(!finished.hints().contains("--yes"), "{}", finished.hints());
}

#[test]
fn sessions_take_a_line_each() {
    let target = busy();
    let pid = target.pid().to_string();
    let functions = ["-f", "busy*!step", "-f", "busy*!main"];
    let begin = ["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
    Run::ipath(begin).args(functions).run().expect(0);
    let of = |arguments: &[&str]| {
        let text = Run::ipath(arguments).run().expect(0).stdout;
        let begins = text
            .lines()
            .skip_while(|l| !l.starts_with(&format!("{pid}  ")));
        let own = begins
            .enumerate()
            .take_while(|(n, l)| *n == 0 || l.starts_with(' '));
        own.map(|(_, line)| line.to_owned()).collect::<Vec<_>>()
    };
    let short = of(&["status"]);
    assert_eq!(short.len(), 1, "{short:?}");
    assert!(short[0].contains("step"), "{short:?}");
    for full in [of(&["status", "-v"]), of(&["status", &pid])] {
        assert!(full.iter().any(|l| l.contains("    step  ")), "{full:?}");
    }
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}

/// A hint gives the reason why a correctly spelled name is not found.
#[test]
fn what_is_stripped_or_an_address_of_a_file_is_said() {
    let scratch = Scratch::new("messages");
    let whole = program("busy.c");
    let stripped = scratch.file("stripped").display().to_string();
    let shown = whole.display().to_string();
    let strip = ["--strip-all", &shown, &stripped];
    Run::new("objcopy").args(strip).run().expect(0);
    let target = Target::start(&stripped, ["1", "600"]).await_output("ready");
    let hints = |arguments: &[&str]| {
        let run = Run::ipath(arguments).env("DEBUGINFOD_URLS", "");
        run.run().expect(1).hints()
    };
    let pid = target.pid().to_string();
    for place in [pid.as_str(), stripped.as_str()] {
        let said = hints(&["list", place, "add_left"]);
        assert!(said.contains("stripped is stripped"), "{said}");
    }
    target.finish("ok calls ");
    let target = busy();
    let pid = target.pid().to_string();
    let symbols = Run::new("nm").arg(&shown).run().expect(0).stdout;
    let line = symbols.lines().find(|l| l.ends_with(" T step"));
    let address = line.and_then(|l| l.split(' ').next()).expect("its address");
    let address = address.trim_start_matches('0');
    let said = hints(&["list", &pid, &format!("0x{address}")]);
    let file = whole.file_name().and_then(|n| n.to_str()).expect("a name");
    assert!(said.contains(&format!("{file}+0x{address}")), "{said}");
    target.finish("ok calls ");
}

/// If an instrumented function cannot measure a metric, it is not reported as missing.
#[test]
fn what_is_in_is_not_said_to_be_out() {
    let target = Target::start(program_with("busy.c", &["-g"]), ["1", "600"]);
    let target = target.await_output("ready");
    let pid = target.pid().to_string();
    let functions = ["-f", "busy*!step", "-f", "busy*!mix"];
    let begin = ["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
    Run::ipath(begin).args(functions).run().expect(0);
    let add = |metric: &str| {
        let add = Run::ipath(["add", &pid, "-m", metric]);
        add.args(functions).run()
    };
    // They have two arguments and one argument.
    let error = add("arg5").expect(1).expect_error();
    assert!(error.contains("can be measured that way: "), "{error}");
    let added = add("arg2").expect(0);
    assert!(
        added.stderr.contains("mix: not changed: ") && added.stdout.contains("arg2: step"),
        "{}",
        added.report()
    );
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}

#[test]
fn programs_of_other_machines_are_not_given_to_a_shell() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("messages");
    let file = scratch.file("other");
    let mut bytes = fs::read(program("busy.c")).expect("an ELF file");
    bytes[18..20].copy_from_slice(&183_u16.to_le_bytes());
    fs::write(&file, &bytes).expect("an own file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("an own file");
    let shown = file.display().to_string();
    let finished = Run::ipath(["run", "-f", "main", "--", &shown])
        .run()
        .expect(1);
    let error = finished.expect_error();
    assert!(error.contains("AArch64"), "{error}");
}

/// Suggestions for a pattern without a match: a name of any library in any case, or a name in a
/// library that is loaded later.
#[test]
fn what_may_have_been_meant_is_said() {
    let program = program("sleeper.c").display().to_string();
    let hints = |pattern: &str| {
        let run = Run::ipath(["run", "-f", pattern, "--", &program, "1"]);
        run.run().expect(1).hints()
    };
    let case = hints("NANOSLEEP");
    assert!(case.starts_with("did you mean nanosleep"), "{case}");
    // A library may have a similar name, but the cause is that the program is stripped.
    let of_stripped = Run::ipath(["run", "-f", "main", "--", "true"]);
    let of_stripped = of_stripped.run().expect(1).hints();
    assert!(of_stripped.contains("true is stripped"), "{of_stripped}");
    for pattern in ["NANOSLEEP", "of_no_library_at_all", "libnone.so!what"] {
        let said = hints(pattern);
        assert!(said.contains("--pending it waits for a library"), "{said}");
    }
}

#[test]
fn what_means_nothing_is_refused_before_anything_starts() {
    let of_metric = Run::ipath(["run", "-m", "wal", "-f", "main", "--", "true"])
        .run()
        .expect(2);
    assert!(
        of_metric.hints().contains("did you mean wall?"),
        "{}",
        of_metric.hints()
    );
    for arguments in [
        &["run", "--when", "foo > 1", "-f", "main", "--", "true"][..],
        &["run", "-f", "/(/", "--", "true"],
        &["run", "-f", "", "--", "true"],
    ] {
        let finished = Run::ipath(arguments).run();
        assert!(!finished.expect_usage().is_empty(), "{arguments:?}");
    }
    for arguments in [
        &["run", "--", "true"][..],
        &["run", "--search", "--format", "jsonl", "--", "true"],
    ] {
        let finished = Run::ipath(arguments).run().expect(1);
        assert!(!finished.expect_error().is_empty(), "{arguments:?}");
    }
    // A missing file is a different error.
    let error = Run::ipath(["run", "--", "/no/such"])
        .run()
        .expect(1)
        .expect_error();
    assert!(error.contains("no such file"), "{error}");
}

#[test]
fn what_is_no_profile_is_answered_with_where_they_come_from() {
    for file in ["/tmp", "/etc/passwd"] {
        let finished = Run::ipath(["report", file]).run().expect(1);
        assert!(
            finished.hints().contains("ipath run -o"),
            "{file}: {}",
            finished.hints()
        );
    }
    let listed = Run::ipath(["list", "/etc/passwd"]).run().expect(1);
    assert!(
        listed.hints().contains("a program, a library"),
        "{}",
        listed.hints()
    );
}

#[test]
fn status_names_what_is_measured_now() {
    let target = busy();
    let pid = target.pid().to_string();
    Run::ipath([
        "attach",
        &pid,
        "-f",
        "step",
        "-m",
        "wall,cpu",
        "--keep",
        "--duration",
        "100ms",
        "--no-tui",
    ])
    .run()
    .expect(0);
    let status = || Run::ipath(["status", &pid]).run().expect(0).stdout;
    assert!(status().contains("count,wall,cpu"), "{}", status());
    Run::ipath(["remove", &pid, "-f", "step", "-m", "cpu"])
        .run()
        .expect(0);
    assert!(!status().contains("cpu"), "{}", status());
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}
