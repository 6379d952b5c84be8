//! The counts of blocks, edges, paths and loops in optimized programs of other projects, compared
//! with valgrind.

use ipath_tests::gcov::Project;
use ipath_tests::place::Scratch;
use ipath_tests::projects;
use ipath_tests::valgrind::Executed;

/// Compares all counts of a program with fixed addresses, at a level of optimization, and checks
/// that so many functions, blocks, executed blocks and edges were compared.
fn check(project: &Project, level: &str, [functions, blocks, executed, edges]: [usize; 4]) {
    let scratch = Scratch::new("optimized");
    let program = project.build(scratch.path(), &[level, "-g", "-no-pie"]);
    let equal = Executed::of(&program, &project.arguments).check(&program, &project.arguments);
    assert!(equal.functions >= functions, "{level}: {equal:?}");
    assert!(equal.blocks >= blocks, "{level}: {equal:?}");
    assert!(equal.executed >= executed, "{level}: {equal:?}");
    assert!(equal.edges >= edges, "{level}: {equal:?}");
}

#[test]
fn counts_of_bzip2_are_those_of_valgrind() {
    let unpacks = ["-d", "-c", "{folder}/sample2.bz2"];
    check(&projects::bzip2(&unpacks), "-O2", [200, 7000, 1700, 5000]);
    let packs = ["-1", "-c", "{folder}/sample2.ref"];
    check(&projects::bzip2(&packs), "-O3", [190, 8000, 2500, 6000]);
}

#[test]
fn counts_of_zlib_are_those_of_valgrind() {
    for level in ["-Os", "-O2", "-O3"] {
        check(&projects::zlib(), level, [230, 4000, 2400, 2500]);
    }
}

/// Errors leave functions by `longjmp`, and arrive where `setjmp` was called.
#[test]
fn counts_of_lua_are_those_of_valgrind() {
    check(&projects::lua(), "-O2", [1900, 18_000, 6000, 12_000]);
}

#[test]
fn counts_of_sqlite_are_those_of_valgrind() {
    check(&projects::sqlite(), "-O1", [4000, 50_000, 15_000, 38_000]);
}
