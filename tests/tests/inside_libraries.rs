//! The counts of edges, paths and loops inside functions of libraries, compared with single steps.

use ipath_tests::compile::{program, program_with};
use ipath_tests::inside_stepped::{Compared, Equal};
use ipath_tests::instrument::{Random, Target, libraries, patchable, patchable_of};
use ipath_tests::place::Scratch;
use std::path::Path;

/// The programs' whole environment.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("LC_ALL", "C"),
    ("PATH", "/usr/bin:/bin"),
    ("IPATH_CONFIG", ""),
];

/// Draws `many` functions by a fixed seed, and compares all counts of those whose blocks run at
/// most `most` times.
fn compare(
    program: &Path,
    all: &[Target],
    (many, most): (usize, u64),
    more: &[(&str, &str)],
    options: &[&str],
) -> Equal {
    let targets = Random::of(20_261_129).choose(all, many);
    let compared = Compared {
        program,
        // The second one leaves out the threads of a driver.
        arguments: &["{folder}", "alone"],
        environment: &[&ENVIRONMENT, more].concat(),
        targets: &targets,
        most,
        scratch: Scratch::new("inside"),
        is_go: program.ends_with("inside_go"),
    };
    compared.check(options)
}

/// Compares all counts in libraries.
fn compare_libraries(
    program: &Path,
    names: &[&str],
    limits: (usize, u64),
    more: &[(&str, &str)],
) -> Equal {
    let files = libraries(program, names);
    let all: Vec<Target> = files.iter().flat_map(|file| patchable(file)).collect();
    compare(program, &all, limits, more, &["--paths", "--loops"])
}

/// Checks that at least so many functions, edges, paths and buckets of trips were compared.
fn at_least(equal: Equal, [functions, edges, paths, trips]: [usize; 4]) {
    assert!(equal.functions >= functions, "{equal:?}");
    assert!(equal.edges >= edges, "{equal:?}");
    assert!(equal.paths >= paths, "{equal:?}");
    assert!(equal.trips >= trips, "{equal:?}");
}

#[test]
fn counts_in_the_c_library_are_those_of_single_steps() {
    let program = program_with("drive_libc.c", &["-fno-builtin"]);
    let equal = compare_libraries(&program, &["libc.so"], (1500, 4000), &[]);
    at_least(equal, [150, 1800, 400, 100]);
}

/// The function that makes names of temporary files is left out: it draws random numbers, and
/// sometimes draws again.
#[test]
fn counts_in_streams_are_those_of_single_steps() {
    let program = program_with("drive_stdio.c", &["-fno-builtin"]);
    let file = &libraries(&program, &["libc.so"])[0];
    let random = patchable_of(file, &["__gen_tempname"]);
    let mut all = patchable(file);
    all.retain(|target| !random.contains(target));
    let equal = compare(&program, &all, (1000, 4000), &[], &["--paths", "--loops"]);
    at_least(equal, [120, 1400, 120, 70]);
}

/// Other implementations of functions on strings, which use vectors of at most 128 bits.
#[test]
fn counts_are_those_of_single_steps_with_small_vectors() {
    let program = program_with("drive_libc.c", &["-fno-builtin"]);
    let tunables = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX,-FMA,-ERMS";
    let files = libraries(&program, &["libc.so"]);
    let all = patchable_of(&files[0], &["*_sse2*", "*_sse4*", "*_ssse3*"]);
    let more = [("GLIBC_TUNABLES", tunables)];
    let options = ["--paths", "--loops"];
    let equal = compare(&program, &all, (60, 5000), &more, &options);
    at_least(equal, [15, 300, 100, 30]);
}

#[test]
fn counts_in_the_mathematical_library_are_those_of_single_steps() {
    let program = program_with("drive_libm.c", &["-fno-builtin", "-lm"]);
    let equal = compare_libraries(&program, &["libm.so"], (120, 3000), &[]);
    at_least(equal, [80, 1500, 500, 30]);
}

#[test]
fn counts_in_the_cxx_library_are_those_of_single_steps() {
    let names = ["libstdc++.so", "libgcc_s.so"];
    let program = program("drive_libstdcxx.cc");
    let equal = compare_libraries(&program, &names, (1200, 4000), &[]);
    at_least(equal, [150, 1000, 300, 50]);
}

/// Exceptions leave functions of these libraries.
#[test]
fn counts_are_those_of_single_steps_while_exceptions_leave() {
    let names = ["libstdc++.so", "libgcc_s.so"];
    let program = program("drive_exceptions.cc");
    let equal = compare_libraries(&program, &names, (1200, 4000), &[]);
    at_least(equal, [120, 900, 180, 25]);
}

#[test]
fn counts_in_libcrypto_are_those_of_single_steps() {
    let program = program_with("drive_crypto.c", &["-lcrypto"]);
    let equal = compare_libraries(&program, &["libcrypto.so"], (4000, 4000), &[]);
    at_least(equal, [300, 1500, 400, 60]);
}

/// Functions of Rust's library in a program.
#[test]
fn counts_in_rust_are_those_of_single_steps() {
    let program = program("inside.rs");
    let all = patchable(&program);
    let equal = compare(&program, &all, (5000, 4000), &[], &["--paths", "--loops"]);
    at_least(equal, [80, 900, 200, 70]);
}

/// Functions of Go's library in a program. Without preemption and garbage collection, no other
/// thread runs these packages.
#[test]
fn counts_in_go_are_those_of_single_steps() {
    let program = program("inside.go");
    let packages = [
        "main.*",
        "strconv.*",
        "strings.*",
        "sort.*",
        "regexp*",
        "compress/*",
        "encoding/*",
        "bytes.*",
        "bufio.*",
        "unicode/*",
        "fmt.*",
    ];
    let all = patchable_of(&program, &packages);
    let more = [
        ("GOGC", "off"),
        ("GOMAXPROCS", "1"),
        ("GODEBUG", "asyncpreemptoff=1"),
    ];
    let equal = compare(&program, &all, (400, 4000), &more, &[]);
    at_least(equal, [100, 1000, 0, 0]);
}
