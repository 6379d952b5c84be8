//! Where call paths begin.

use ipath_tests::compile::program;
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;

#[test]
fn ucontext_root() {
    let scratch = Scratch::new("fibers");
    let file = scratch.file("p.json");
    let program = Program::new(&program("fibers.c"), [""; 0]);
    let plain = program.plain().expect(0);
    let ours = program.under_ipath(&["work"], "count,wall", &file);
    assert_output_kept(&plain, &ours);
    let profile = Profile::read(&file);
    let own: u64 = plain
        .stdout
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("the program prints its calls");
    assert_eq!(profile.calls("work"), own);
    assert!(profile.paths.iter().all(|path| path.complete));
    profile.assert_lossless();
    // through, fiber, and what fiber returns to
    let depths: Vec<_> = profile.paths.iter().map(|path| path.stack.len()).collect();
    assert_eq!(depths, vec![3; depths.len()]);
}
