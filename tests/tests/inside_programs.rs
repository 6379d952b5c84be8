//! The counts of lines in programs of other projects without optimization, compared with those of
//! gcov.

use ipath_tests::gcov::Compared;
use ipath_tests::projects;

/// Checks that at least so many functions were counted, lines compared, and executed lines
/// compared.
fn at_least(compared: &Compared, [functions, equal, executed]: [usize; 3]) {
    assert!(compared.functions >= functions, "{compared:?}");
    assert!(compared.equal >= equal, "{compared:?}");
    assert!(compared.executed >= executed, "{compared:?}");
}

#[test]
fn lines_of_bzip2_have_the_counts_of_gcov() {
    let packs = ["-9", "-c", "{folder}/sample1.ref", "{folder}/sample3.ref"];
    at_least(&projects::bzip2(&packs).check(), [80, 1600, 650]);
    let unpacks = ["-d", "-c", "{folder}/sample2.bz2"];
    at_least(&projects::bzip2(&unpacks).check(), [80, 1600, 400]);
}

#[test]
fn lines_of_zlib_have_the_counts_of_gcov() {
    at_least(&projects::zlib().check(), [100, 1400, 850]);
}

/// Errors leave functions by `longjmp`.
#[test]
fn lines_of_lua_have_the_counts_of_gcov() {
    at_least(&projects::lua().check(), [900, 6000, 2700]);
}

#[test]
fn lines_of_sqlite_have_the_counts_of_gcov() {
    at_least(&projects::sqlite().check(), [2300, 27_000, 8500]);
}

#[test]
fn lines_of_fortran_have_the_counts_of_gcov() {
    at_least(&projects::kernel().check(), [6, 30, 28]);
}
