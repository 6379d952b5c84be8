//! Functions without a name: their displayed names, and their selection. A build with symbols gives
//! their addresses.

use ipath_tests::command::Run;
use ipath_tests::compare::assert_equal;
use ipath_tests::compile::program_with;
use ipath_tests::exact::{assert_output_kept, check};
use ipath_tests::oracle;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Frame, Profile};
use ipath_tests::program::Program;
use ipath_tests::symbols::{Site, functions, sites};
use std::collections::BTreeMap;
use std::path::Path;

const MODULE: &str = "paths_c";

/// Flags for programs with neither symbols nor unwind entries, except for exports.
const BARE: [&str; 3] = [
    "-rdynamic",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
];

fn name(address: u64) -> String {
    format!("{MODULE}+{address:#x}")
}

fn site(address: u64) -> Site {
    let module = MODULE.to_owned();
    Site { module, address }
}

/// Runs the program with functions instrumented, and checks their calls against gdb's in `twin`,
/// the build with symbols. Returns the profile, which is written to `file`.
fn exact(
    program: &Program,
    twin: &Path,
    patterns: &[&str],
    sites: &[Site],
    file: &Path,
) -> Profile {
    let gdb = oracle::run(&Program::new(twin, [""; 0]), sites);
    let ours = program.under_ipath(patterns, "count,wall", file);
    assert_output_kept(&program.plain(), &ours);
    let profile = Profile::read(file);
    assert_equal(&profile, &gdb);
    profile.assert_lossless();
    profile
}

/// Checks that a displayed name is the address of a function in the build with symbols, whose sizes
/// by address are `twin`. If it contains a call site, that must be inside the function.
fn assert_known(shown: &str, twin: &BTreeMap<u64, u64>) {
    let mut parts = shown.split("+0x").skip(1);
    let mut number = || Some(u64::from_str_radix(parts.next()?, 16).expect(shown));
    let start = number().expect(shown);
    let size = twin
        .get(&start)
        .unwrap_or_else(|| panic!("{shown}: {twin:x?}"));
    assert!(number().is_none_or(|offset| offset < *size), "{shown}");
    assert!(number().is_none(), "{shown}");
}

/// All words of a text that start with `paths_c+0x`.
fn shown(text: &str) -> Vec<&str> {
    let words = text.split([' ', ';', ',', '\n']);
    words.filter(|w| w.starts_with("paths_c+0x")).collect()
}

/// With unwind entries but without symbols: lists, profiles, reports and exports use the same
/// names. Globs and regular expressions match them.
#[test]
fn nameless_functions_have_one_name_in_every_output() {
    let twin_path = program_with("paths.c", &[]);
    let twin = functions(&twin_path);
    let program = Program::new(&program_with("paths.c", &["-s"]), [""; 0]);
    let path = program.path.as_os_str();
    let list = |pattern: &str| {
        let list = Run::ipath(["list", "--json"]).arg(path).arg(pattern);
        list.run().expect(0).json()
    };
    let all = list("paths_c!*");
    let listed: Vec<&str> = all["functions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|f| f["name"].as_str().expect("a name"))
        .collect();
    assert!(listed.len() > 10, "{listed:?}");
    for name in &listed {
        assert_known(name, &twin);
    }
    let digit = &listed[0][..listed[0].len() - 1];
    for pattern in [
        format!("{digit}?"),
        format!("paths_c!{digit}*"),
        format!("/^{}.$/", digit.replace('+', "[+]")),
    ] {
        let found = list(&pattern);
        assert_eq!(found["functions"][0]["name"], listed[0], "{pattern}");
    }
    let functions = all["functions"].as_array().expect("a list").iter();
    let patched = functions.filter(|f| f["refused"].is_null());
    let sites: Vec<Site> = patched
        .map(|f| site(f["address"].as_u64().expect("an address")))
        .collect();
    let scratch = Scratch::new("nameless");
    let file = scratch.file("p.json");
    let profile = exact(&program, &twin_path, &["paths_c+0x*"], &sites, &file);
    assert_eq!(profile.functions.len(), sites.len());
    for function in &profile.functions {
        assert_eq!(function.name, name(function.address));
    }
    let text = |arguments: &[&str]| {
        let run = Run::ipath([arguments[0]]).arg(&file).args(&arguments[1..]);
        run.run().expect(0).stdout
    };
    for text in [
        text(&["report"]),
        text(&["export", "--to", "folded", "-o", "-"]),
        text(&["export", "--to", "folded", "--sites", "-o", "-"]),
    ] {
        let shown = shown(&text);
        assert!(shown.len() > 100, "{text}");
        for name in shown {
            assert_known(name, &twin);
        }
    }
}

/// Neither unwind entries nor symbols: an address is enough if the instructions show the extent of
/// the function.
#[test]
fn found_functions_equal_those_of_a_build_with_symbols() {
    let twin_path = program_with("paths.c", &[&BARE[..], &["-g"]].concat());
    let twin = functions(&twin_path);
    let program = Program::new(
        &program_with("paths.c", &[&BARE[..], &["-s"]].concat()),
        [""; 0],
    );
    let mut found = Vec::new();
    for (&start, &size) in &twin {
        let list = Run::ipath(["list", "--json"]).arg(&program.path);
        let listed = list.arg(name(start + size / 2)).run();
        if listed.code() != 0 {
            continue;
        }
        let function = &listed.json()["functions"][0];
        assert_eq!(
            (&function["address"], &function["size"]),
            (&start.into(), &size.into())
        );
        let is_nameless = function["linkage"] == "";
        if is_nameless && function["refused"].is_null() {
            assert_eq!(function["name"], name(start));
            found.push(start);
        }
    }
    assert!(found.len() > 5, "{found:x?} of {twin:x?}");
    let sites: Vec<Site> = found.iter().map(|&start| site(start)).collect();
    let patterns: Vec<String> = found.iter().map(|&start| name(start)).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let scratch = Scratch::new("found");
    let file = scratch.file("p.json");
    let profile = exact(&program, &twin_path, &patterns, &sites, &file);
    // On paths, too, the name contains the function's start if the function is measured.
    let own = |frame: &Frame| {
        let path = frame
            .module
            .map(|index| Path::new(&profile.modules[index].path));
        frame.function.is_none() && path == Some(&program.path)
    };
    let mut inside = 0;
    for frame in profile.frames.iter().filter(|frame| own(frame)) {
        let start = found.iter().rfind(|&&start| start <= frame.address);
        let start = start.filter(|start| frame.address - **start < twin[*start]);
        assert_eq!(frame.offset, start.map(|start| frame.address - start));
        inside += usize::from(start.is_some());
    }
    assert!(inside > 3, "{:?}", profile.frames);
}

/// Symbols in a separate debug file: functions have their names in lists, for patterns, and on
/// paths. A debug file of another program is ignored.
#[test]
fn separate_symbols_name_functions_of_their_own_program() {
    let scratch = Scratch::new("separate");
    let [own, other] =
        ["paths.c", "recursion.c"].map(|source| program_with(source, &["-Wl,--build-id"]));
    let (path, debug) = (scratch.file(MODULE), scratch.file("symbols.debug"));
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        let run = Run::new("objcopy").args(arguments).arg(from).arg(to);
        run.run().expect(0);
    };
    objcopy(&["--only-keep-debug"], &own, &debug);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], &own, &path);
    let names = |file: &Path| -> Vec<String> {
        let listed = Run::ipath(["list", "--json"])
            .arg(file)
            .run()
            .expect(0)
            .json();
        let functions = listed["functions"].as_array().expect("a list").iter();
        functions
            .map(|f| f["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&path), names(&own));
    let profile = check(&Program::new(&path, [""; 0]), "work", &sites(&own, "work"));
    let is_named = |f: &Frame| {
        profile.modules[f.module.expect("known")].path != path.to_str().expect("text")
            || f.function.is_some()
    };
    assert!(profile.frames.iter().all(is_named), "{:?}", profile.frames);
    objcopy(&["--only-keep-debug"], &other, &debug);
    let nameless = |name: &String| name.starts_with(MODULE);
    assert!(names(&path).iter().any(nameless), "{:?}", names(&path));
}
