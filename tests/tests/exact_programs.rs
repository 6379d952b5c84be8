//! Interpreters and a database: every call of their functions is on the path that gdb finds, and
//! ends as the script implies.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with, source};
use ipath_tests::exact::{assert_output_kept, check, check_all};
use ipath_tests::oracle;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::{counts_of, own_counts};
use ipath_tests::symbols::{Site, sites};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const LUA: &str = "/usr/bin/lua5.4";
const PYTHON: &str = "/usr/bin/python3.11";
const SQLITE: &str = "/usr/bin/sqlite3";

fn lua() -> Program {
    let script = source("script.lua").display().to_string();
    Program::new(Path::new(LUA), [script])
}

fn python(script: &str) -> Program {
    let script = source(script).display().to_string();
    Program::new(Path::new(PYTHON), ["-I", "-S", "-B", &script]).env("PYTHONHASHSEED", "0")
}

/// The shell of sqlite3 with a database in memory.
fn sqlite(command: &str) -> Program {
    let arguments = ["-batch", "-init", "/dev/null", ":memory:", command];
    Program::new(Path::new(SQLITE), arguments)
}

fn sqlite_script() -> Program {
    sqlite(&format!(".read {}", source("script.sql").display()))
}

/// The first library that a program is linked with and whose path contains this name.
///
/// # Panics
/// If there is none.
fn library(program: &str, name: &str) -> PathBuf {
    let list = Run::new("ldd").arg(program).run().expect(0).stdout;
    let mut words = list.split_whitespace();
    let found = words.find(|word| word.starts_with('/') && word.contains(name));
    PathBuf::from(found.unwrap_or_else(|| panic!("{program} is linked with {name}")))
}

fn all_sites(file: &Path, names: &[&str]) -> Vec<Site> {
    names.iter().flat_map(|name| sites(file, name)).collect()
}

/// The greatest number of frames of a path.
fn deepest(profile: &Profile) -> usize {
    let depths = profile.paths.iter().map(|path| path.stack.len());
    depths.max().unwrap_or(0)
}

/// Errors and yields of Lua jump past all C frames on the stack. The script prints how many calls
/// they leave; all others return. Calls that the interpreter makes to start and to end are
/// separate.
#[test]
fn exact_lua_calls_equal_its_own_counts() {
    let starts = BTreeMap::from([("lua_pcallk", 2), ("lua_callk", 10)]);
    let names = [
        "luaL_checknumber",
        "luaL_error",
        "lua_callk",
        "lua_error",
        "lua_pcallk",
        "lua_resume",
        "lua_yieldk",
    ];
    let program = lua();
    let plain = program.plain().expect(0);
    let (calls, unwound) = (
        own_counts(&plain.stdout),
        counts_of(&plain.stdout, "unwound"),
    );
    let profile = check_all(&program, &names, &all_sites(Path::new(LUA), &names));
    for name in names {
        let all = calls[name] + starts.get(name).unwrap_or(&0);
        assert_eq!(profile.calls(name), all, "{name}");
        // A function that never returns has no visible exit.
        let has_exits = profile.function(name).is_some_and(|f| !f.exits.is_empty());
        assert_eq!(has_exits, name != "lua_error");
        if has_exits {
            let left = *unwound.get(name).unwrap_or(&0);
            assert_eq!(profile.ends(name), (all - left, left), "{name}");
        }
    }
    let caught: u64 = counts_of(&plain.stdout, "caught").values().sum();
    assert_eq!(profile.calls("lua_error"), caught, "each error is caught");
    assert!(deepest(&profile) > 700, "{} frames", deepest(&profile));
}

/// Paths of more than 2,000 frames equal those of gdb.
#[test]
fn exact_python_deep() {
    let names = [
        "_PyEval_EvalFrameDefault",
        "_PyErr_SetObject",
        "PyTraceBack_Here",
        "PyObject_GetAttr",
    ];
    let profile = check_all(
        &python("deep.py"),
        &names,
        &all_sites(Path::new(PYTHON), &names),
    );
    assert!(deepest(&profile) > 2000, "{} frames", deepest(&profile));
    assert_eq!(
        profile.losses.unwound,
        Some(0),
        "an exception is a value to C"
    );
}

#[test]
fn exact_python_eval() {
    let name = "_PyEval_EvalFrameDefault";
    let profile = check(&python("script.py"), name, &sites(Path::new(PYTHON), name));
    assert!(deepest(&profile) >= 80, "{} frames", deepest(&profile));
}

#[test]
fn exact_python_getattr() {
    let name = "PyObject_GetAttr";
    let profile = check(&python("script.py"), name, &sites(Path::new(PYTHON), name));
    assert!(profile.paths.len() > 200, "{} paths", profile.paths.len());
}

#[test]
fn exact_sqlite_paths_equal_those_of_gdb() {
    let names = [
        "sqlite3_step",
        "sqlite3VdbeExec",
        "sqlite3Select",
        "sqlite3_value_int64",
        "sqlite3BtreeIndexMoveto",
        "sqlite3ErrorMsg",
    ];
    let library = library(SQLITE, "libsqlite3.so");
    let profile = check_all(&sqlite_script(), &names, &all_sites(&library, &names));
    assert!(profile.paths.len() > 30, "{} paths", profile.paths.len());
}

#[test]
fn exact_sqlite_malloc() {
    let libc = library(SQLITE, "libc.so");
    let profile = check(&sqlite_script(), "libc.so*!malloc", &sites(&libc, "malloc"));
    assert!(profile.paths.len() > 500, "{} paths", profile.paths.len());
}

/// Calls are as many as gdb finds. gdb only counts them, because walking the stack at each would
/// take too long.
#[test]
fn exact_sqlite_counts() {
    let names = [
        "sqlite3_value_type",
        "sqlite3VdbeSerialGet",
        "sqlite3BtreeNext",
    ];
    let program = sqlite(
        "CREATE TABLE t(a, b); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
           INSERT INTO t SELECT i, (i * 37) % 1009 FROM n; \
         SELECT max(a), sum(abs(b)), count(DISTINCT b) FROM t; \
         SELECT count(*) FROM t x JOIN t y ON x.a = y.b;",
    );
    let plain = program.plain().expect(0);
    let library = library(SQLITE, "libsqlite3.so");
    for name in names {
        let found = oracle::counts(&program, &sites(&library, name));
        found.assert_like(&plain);
        println!("{name}: {}", found.summary());
        let scratch = Scratch::new("counts");
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&[name], "count,wall", &file);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        assert_eq!(profile.calls(name), found.hits(), "{name}");
        assert_eq!(profile.ends(name), (found.hits(), 0), "{name}");
        assert!(found.hits() > 5000, "{name}: {}", found.summary());
    }
}

/// A case of `nearly_all_paths_are_complete`.
struct Kind {
    name: &'static str,
    program: Program,
    patterns: &'static [&'static str],
    metrics: &'static str,
}

fn kinds() -> Vec<Kind> {
    const MUSL: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";
    const BARE: &[&str] = &[
        "-s",
        "-rdynamic",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    const RELEASE: &[&str] = &["-C", "lto=fat", "-C", "codegen-units=1"];
    let own = |path: PathBuf| Program::new(&path, [""; 0]);
    let kind = |name, program, patterns| Kind {
        name,
        program,
        patterns,
        metrics: "count,wall",
    };
    vec![
        kind(
            "C",
            own(program("paths.c")),
            &["paths_c!*", "libc.so*!*printf*"],
        ),
        kind(
            "C++",
            own(program("paths.cc")),
            &["paths_cc!*", "libstdc++*!*"],
        ),
        kind("Rust", own(program("paths.rs")), &["paths_rs!*"]),
        kind(
            "Rust, release",
            own(program_with("release.rs", RELEASE)),
            &["release_rs!*"],
        ),
        kind(
            "Fortran",
            own(program("paths.f90")),
            &["paths_f90!*", "libgfortran*!*"],
        ),
        kind(
            "Go",
            own(program("paths.go")),
            &["/^(main|fmt|os|strconv|sync|sort)[.]/"],
        ),
        kind(
            "static glibc",
            own(program_with("paths.c", &["-static"])),
            &["paths_c!*"],
        ),
        kind(
            "static musl",
            own(program_with("paths.c", &["-static", MUSL])),
            &["paths_c!*"],
        ),
        Kind {
            metrics: "count",
            ..kind(
                "C, stripped, no tables",
                own(program_with("paths.c", BARE)),
                &["paths_c!*"],
            )
        },
        kind("Lua", lua(), &["lua5.4!*"]),
        kind("Python, deep", python("deep.py"), &["python3.11!*"]),
        kind("Python", python("script.py"), &["python3.11!*"]),
        kind("sqlite", sqlite_script(), &["libsqlite3*!*"]),
    ]
}

/// Checks every function, even where gdb cannot unwind, as in musl and Go. `_start` has no caller.
#[test]
fn nearly_all_paths_are_complete() {
    let (mut calls, mut incomplete) = (0, 0);
    for kind in kinds() {
        let plain = kind.program.plain();
        let scratch = Scratch::new("kinds");
        let file = scratch.file("p.json");
        let mut arguments = ipath_arguments(kind.patterns, kind.metrics, &file);
        let end = arguments.len() - 1;
        let options = ["--yes", "--max-paths", "200000"];
        arguments.splice(end..end, options.map(str::to_owned));
        let ours = kind.program.under_ipath_as(arguments);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        let all: u64 = profile.functions.iter().map(|f| count(&f.totals)).sum();
        let of_start = profile.calls("_start");
        let losses = &profile.losses;
        println!(
            "{:24} {:5} functions {all:8} calls {:6} paths {:5} frames, {} incomplete, {of_start} of _start",
            kind.name,
            profile.functions.len(),
            profile.paths.len(),
            deepest(&profile),
            losses.incomplete,
        );
        for path in profile.paths.iter().filter(|path| !path.complete) {
            let stack = path
                .stack
                .iter()
                .map(|&frame| &profile.frames[frame].function);
            println!(
                "    {} {:?}",
                profile.functions[path.function].name,
                stack.collect::<Vec<_>>()
            );
        }
        assert_eq!((losses.missed, losses.overflow), (0, 0), "{}", kind.name);
        assert_eq!(losses.incomplete, of_start, "{}", kind.name);
        calls += all;
        incomplete += losses.incomplete;
    }
    println!("{incomplete} of {calls} calls are on incomplete paths");
    assert!(incomplete * 10_000 <= calls, "{incomplete} of {calls}");
}
