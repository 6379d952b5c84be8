//! The displayed name of a program: the name by which it was started, and the title that it sets.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::session::Session;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use std::os::unix::fs::symlink;

#[test]
fn titles_are_shown_as_they_are_meant() {
    for mode in ["within", "spaces", "beyond"] {
        let filler = "x".repeat(3000);
        let arguments = [mode, "--first", &filler, ""];
        let target = Target::start(program("titled.c"), arguments).await_output("ready");
        let pid = target.pid().to_string();
        let scratch = Scratch::new("titles");
        let file = scratch.file("p.json").display().to_string();
        Session::attach(target.pid(), &["work"]);
        let status = Run::ipath(["status"]).run().expect(0).stdout;
        let of_it = status.lines().find(|l| l.starts_with(&format!("{pid}  ")));
        Run::ipath(["detach", &pid, "-o", &file]).run().expect(0);
        let profile = Profile::read(scratch.file("p.json").as_path());
        let text = Run::ipath(["report", &file]).run().expect(0).stdout;
        let head = text.lines().next().unwrap_or_default().to_owned();
        let title = "titled: worker *:6379";
        for line in [of_it.unwrap_or_default(), head.as_str()] {
            assert!(
                line.contains(title) && line.contains("/titled"),
                "{mode}: {line}"
            );
            assert!(line.len() < 400, "{mode}: {line}");
        }
        match mode {
            // The text that it wrote there itself.
            "beyond" => assert!(profile.target.args[0].starts_with(title)),
            _ => assert_eq!(profile.target.args, [title], "{mode}"),
        }
        target.finish("ok");
    }
}

/// Empty arguments are kept.
#[test]
fn arguments_are_those_of_the_start() {
    let scratch = Scratch::new("titles");
    let file = scratch.file("p.json");
    let shown = file.display().to_string();
    let program = program("paths.c").display().to_string();
    let arguments = [program.as_str(), "a b", "", ""];
    let mut run = vec!["run", "-f", "main", "-m", "count", "-o", &shown, "--"];
    run.extend(arguments);
    // The program counts its arguments.
    Run::ipath(run).run().expect(3);
    assert_eq!(Profile::read(&file).target.args, arguments);
}

/// A link through which the program was started names its module, even from another folder.
#[test]
fn links_name_the_program() {
    let scratch = Scratch::new("titles");
    let link = scratch.file("another-name");
    symlink(program("busy.c"), &link).expect("an own folder");
    let target = Target::start(&link, ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let listed = Run::ipath(["list", &pid, "another-name!step"])
        .run()
        .expect(0)
        .stdout;
    assert!(listed.starts_with("step  "), "{listed}");
    target.finish("ok calls ");
}

/// A link through which the program was started also names functions without symbols.
#[test]
fn links_name_functions_without_a_name() {
    let scratch = Scratch::new("titles");
    let (stripped, link) = (scratch.file("stripped"), scratch.file("another-name"));
    let whole = program("busy.c");
    let strip = Run::new("strip").arg("-o").arg(&stripped).arg(&whole);
    strip.run().expect(0);
    symlink(&stripped, &link).expect("an own folder");
    let name = format!("another-name+{:#x}", sites(&whole, "step")[0].address);
    let target = Target::start(&link, ["1", "600"]).await_output("ready");
    let session = Session::attach(target.pid(), &[&name]);
    while session.snapshot().calls(&name) == 0 {}
    target.finish("ok calls ");
}
