//! Memory that goes away while the runtime reads it: libraries that other threads unload, and what lies beside stacks.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::session::own_counts;

#[test]
fn unloading_amid_walks() {
    let library = program_with("unloading_lib.c", &["-shared", "-fPIC"]);
    let program = program("unloading.c");
    let scratch = Scratch::new("unloading");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "--interval", "10m", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg(&library)
        .arg(scratch.path())
        .args(["8", "3000"])
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    let profile = Profile::read(&file);
    assert_eq!(own["work"], 8 * 3000 * 16);
    assert_eq!(profile.calls("work"), own["work"]);
    assert_eq!(profile.losses.missed, 0);
}

/// `stale_stack`: memory above a thread's stack, into which wrong unwind entries lead.
#[test]
fn stale_stack() {
    let scratch = Scratch::new("stale_stack");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "--interval", "10m", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program("stale_stack.c"))
        .arg("1000")
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("work"), own_counts(&finished.stdout)["work"]);
    assert_eq!(profile.losses.missed, 0);
}
