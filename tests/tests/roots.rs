//! The roots of call paths.

use ipath_tests::compile::{program, program_with};
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile};
use ipath_tests::program::Program;

#[test]
fn ucontext_root_ends_complete_paths() {
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
    // through, fiber, and the function to which fiber returns
    let depths: Vec<_> = profile.paths.iter().map(|path| path.stack.len()).collect();
    assert_eq!(depths, vec![3; depths.len()]);
}

/// The function to which functions of makecontext(3) return is a root even if it is probed itself.
/// That holds for each of its names, and for a shared and a static C library.
#[test]
fn ucontext_root_that_is_probed() {
    for flags in [&[][..], &["-static"], &["-static", "-fuse-ld=lld"]] {
        let scratch = Scratch::new("fibers-probed");
        let file = scratch.file("p.json");
        let program = Program::new(&program_with("fibers.c", flags), [""; 0]);
        let plain = program.plain().expect(0);
        for metrics in ["count,wall", "count"] {
            let ours = program.under_ipath(&["work", "*__start_context"], metrics, &file);
            assert_output_kept(&plain, &ours);
            let profile = Profile::read(&file);
            let start = profile.function("__start_context").expect("it is probed");
            assert!(start.entry.is_string(), "{start:?}");
            let number = profile.functions.iter().position(|f| f.linkage == "work");
            let mut paths = profile.paths.iter();
            let is_of_work = |path: &&CallPath| Some(path.function) == number;
            assert!(paths.by_ref().any(|path| is_of_work(&path)));
            let mut paths = profile.paths.iter().filter(is_of_work);
            assert!(paths.all(|path| path.complete && path.stack.len() == 3));
            std::fs::remove_file(&file).expect("a profile");
        }
    }
}
