//! Programs and libraries of every linker in every layout: each call is counted on the path that
//! gdb finds.

use ipath_tests::compile::{build_by, program_with, source};
use ipath_tests::exact::{assert_paths_are, check};
use ipath_tests::oracle;
use ipath_tests::program::Program;
use ipath_tests::symbols::sites;

/// The linkers by their `-fuse-ld` name, each with the flags that separate code from read-only
/// data, and that let the two share pages.
const LINKERS: [(&str, [&str; 2]); 4] = [
    ("bfd", ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"]),
    ("gold", ["-Wl,--rosegment", "-Wl,--no-rosegment"]),
    ("lld", ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"]),
    ("mold", ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"]),
];

/// Calls `check` with the flags of every linker and layout.
fn each_layout(check: impl Fn(&[&str])) {
    for (linker, layouts) in LINKERS {
        let linker = format!("-fuse-ld={linker}");
        for layout in layouts {
            println!("{linker} {layout}");
            check(&[&linker, layout]);
        }
    }
}

/// A program of several pages.
#[test]
fn programs_of_every_linker() {
    each_layout(|flags| {
        for position in ["-pie", "-no-pie"] {
            let file = program_with("paths.c", &[flags, &[position]].concat());
            let profile = check(&Program::new(&file, [""; 0]), "work", &sites(&file, "work"));
            profile.assert_complete("every path ends at _start or in clone");
        }
    });
}

/// A program small enough to begin in its file's first page as a whole. The page is then mapped two
/// or three times.
#[test]
fn first_page_mapped_twice() {
    let library = source("first_page.c").display().to_string();
    each_layout(|flags| {
        for position in ["-pie", "-no-pie"] {
            let flags = [flags, &[&library, "-g", position]].concat();
            let file = program_with("first_page_main.c", &flags);
            let profile = check(&Program::new(&file, [""; 0]), "work", &sites(&file, "work"));
            profile.assert_complete("every path ends at _start");
        }
    });
}

/// A library whose first page is mapped several times, by both compilers.
#[test]
fn first_page_of_a_library_mapped_twice() {
    for compiler in ["gcc", "clang"] {
        each_layout(|flags| {
            let flags = [flags, &["-shared", "-fPIC", "-g", "-O2"]].concat();
            let library = build_by(compiler, &source("first_page.c"), &flags);
            let path = library.display().to_string();
            let file = program_with("first_page_main.c", &[&path]);
            let program = Program::new(&file, [""; 0]);
            let plain = program.plain();
            let found = oracle::run(&program, &sites(&library, "work"));
            found.assert_like(&plain);
            assert_paths_are(&program, &plain, "work", &found);
        });
    }
}
