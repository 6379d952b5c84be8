//! Names that do not denote an ordinary function: resolvers, entries of linkage tables, the
//! kernel's code.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::target::Target;
use std::time::Duration;

/// The numbers in the program's last line: calls of `chosen` and of `sin`.
fn calls(line: &str) -> (u64, u64) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse().expect(line);
    (number(2), number(4))
}

/// The number of calls of the first function of this name.
///
/// # Panics
/// If the profile has none.
fn counted(profile: &Profile, name: &str) -> u64 {
    assert!(profile.function(name).is_some(), "{name} is not in");
    profile.calls(name)
}

#[test]
fn ifunc_counts_the_chosen_implementation() {
    // Bound at the first call, and at startup, which is the default of some compilers.
    for binding in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        let program = program_with("ifunc.c", &[binding, "-lm"]);
        let scratch = Scratch::new("ifunc");
        let file = scratch.file("p.json");
        let plain = Run::new(&program).arg("100").run().expect(0);
        let (chosen, sines) = calls(plain.stdout.trim());
        let ours = Run::ipath(["run", "--no-tui", "-f", "chosen", "-f", "sin", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&program)
            .arg("100")
            .run()
            .expect(0);
        assert!(ours.stdout.starts_with(&plain.stdout), "{}", ours.report());
        let profile = Profile::read(&file);
        assert_eq!(counted(&profile, "chosen"), chosen, "{binding}");
        assert_eq!(counted(&profile, "sin"), sines, "{binding}");
        assert!(profile.paths.iter().all(|p| p.complete), "{binding}");
    }
}

/// Calls of the implementations that are bound in a running program are counted.
#[test]
fn ifunc_of_a_running_program() {
    for flags in [&["-lm"][..], &["-static", "-lm"]] {
        let program = program_with("ifunc.c", flags);
        let target = Target::start(&program, ["50", "60"]).await_output("ready");
        let scratch = Scratch::new("ifunc-attach");
        let file = scratch.file("p.json");
        let pid = target.pid().to_string();
        Run::ipath(["attach", &pid, "--no-tui", "--duration", "300ms"])
            .args(["-f", "chosen", "-f", "sin", "-o"])
            .arg(&file)
            .run()
            .expect(0);
        let profile = Profile::read(&file);
        let (chosen, sines) = (counted(&profile, "chosen"), counted(&profile, "sin"));
        // One call of `sin` per two of `chosen`. The session begins and ends somewhere in between.
        assert!(
            sines > 0 && chosen.abs_diff(2 * sines) <= 4,
            "{flags:?}: {chosen} and {sines}"
        );
        let line = target.finish("ok chosen ");
        assert!(calls(&line).0 >= chosen, "{line}");
    }
}

#[test]
fn an_ifunc_that_has_never_been_called() {
    // Its slot is resolved at the first call. ipath runs the resolver itself, and the target
    // continues.
    let program = program_with("busy.c", &["-Wl,-z,lazy", "-lm"]);
    let target = Target::start(&program, ["2", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    for _ in 0..20 {
        let made = Run::ipath(["attach", &pid, "--no-tui", "--duration", "5ms"])
            .args(["-f", "libc.so.6!strcasestr", "-f", "libc.so.6!strspn"])
            .run()
            .expect(0);
        assert!(
            !made.stderr.contains("not instrumented"),
            "{}",
            made.report()
        );
    }
    target.finish("ok calls ");
}

#[test]
fn plt_name_hints_at_the_library_function() {
    let program = program_with("ifunc.c", &["-lm"]);
    let name = program.file_name().expect("a file").to_string_lossy();
    let refused = Run::ipath(["run", "--no-tui", "-f", &format!("{name}!puts"), "--"])
        .arg(&program)
        .run();
    refused.expect_error();
    assert!(
        refused.hints().contains("libc.so.6!puts"),
        "{}",
        refused.report()
    );
    let scratch = Scratch::new("plt");
    let file = scratch.file("p.json");
    Run::ipath(["run", "--no-tui", "-f", "libc.so.6!puts", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .args(["10", "0.001"])
        .run()
        .expect(0);
    assert_eq!(Profile::read(&file).calls("puts"), 1);
}

#[test]
fn vdso_functions_are_refused_by_name() {
    let target = Target::start(program("busy.c"), ["1", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    for name in ["__vdso_clock_gettime", "gettimeofday"] {
        let refused = Run::ipath(["attach", &pid, "--no-tui", "-f", name])
            .limit(Duration::from_secs(20))
            .run();
        let line = refused.expect_error();
        assert!(line.contains(&format!("{name} (vdso)")), "{line}");
    }
    target.finish("ok calls ");
}

/// The kernel truncates a program's name inside a character, so the name in /proc is not valid
/// UTF-8. The program can be measured, sampled and examined nevertheless.
#[test]
fn name_that_is_no_text() {
    use ipath_tests::snapshot::ProcessState;
    let scratch = Scratch::new("name");
    // The limit of 15 bytes cuts the last character after its first byte.
    let file = scratch.file("abcdefghijklmn\u{fc}");
    std::fs::copy(program("busy.c"), &file).expect("a copy");
    let target = Target::start(&file, ["1", "600"]).await_output("ready");
    let comm = std::fs::read(format!("/proc/{}/comm", target.pid())).expect("a name");
    assert!(String::from_utf8(comm).is_err(), "its name is text");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    Run::ipath([
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "300ms",
        "-f",
        "step",
    ])
    .run()
    .expect(0);
    before.assert_unchanged(target.pid());
    Run::ipath(["suggest", &pid, "--duration", "500ms"])
        .run()
        .expect(0);
    Run::ipath(["doctor", &pid]).run().expect(0);
    target.finish("ok calls ");
}
