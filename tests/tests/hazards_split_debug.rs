//! Debug information outside of the usual sections: split units (`.dwo`, `.dwp`), sections
//! compressed in the older GNU format, and symbols in `.gnu_debugdata`.

use ipath_tests::command::Run;
use ipath_tests::compile::source;
use ipath_tests::place::Scratch;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MISSING: &str = "split debug information (.dwo, .dwp) is not found";

/// The path of the program, compiled with these flags in its own folder.
fn built(scratch: &Scratch, compiler: &str, flags: &[&str]) -> PathBuf {
    for name in ["split_x.c", "split_y.c"] {
        let object = name.replace(".c", ".o");
        let source = source(name).display().to_string();
        let compiled = ["-O1", "-c", "-o", &object, &source];
        tool(scratch, compiler, &[&compiled, flags].concat());
    }
    let linked = ["-o", "split", "split_x.o", "split_y.o"];
    tool(scratch, compiler, &[&linked, flags].concat());
    scratch.file("split")
}

/// Runs a tool in the folder: file names are relative, as in a build.
fn tool(scratch: &Scratch, name: &str, arguments: &[&str]) {
    let mut command = Command::new(name);
    let status = command.args(arguments).current_dir(scratch.path()).status();
    assert!(status.expect("starts").success(), "{name} {arguments:?}");
}

fn measured(scratch: &Scratch, program: &Path) -> Value {
    let file = scratch.file("p.json");
    Run::ipath(["run", "--no-tui", "-f", "work", "-f", "work2", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program)
        .run()
        .expect(0);
    let text = fs::read_to_string(&file).expect("a profile");
    serde_json::from_str(&text).expect("JSON")
}

fn notes(profile: &Value) -> String {
    profile["session"]["notes"].to_string()
}

/// Checks that the frame of `outer` has the source line `line`, and that only `inner` is inlined
/// around the call, with the line `its_line`.
fn assert_inlined(
    profile: &Value,
    (outer, line): (&str, u64),
    (inner, its_line): (&str, u64),
    how: &str,
) {
    let frames = profile["frames"].as_array().expect("frames");
    let frame = frames.iter().find(|f| f["function"] == outer);
    let frame = frame.unwrap_or_else(|| panic!("{how}: no frame of {outer}"));
    let inlined = frame["inlined"].as_array().into_iter().flatten();
    let inlined: Vec<(&str, u64)> = inlined
        .map(|f| {
            (
                f["function"].as_str().unwrap_or(""),
                f["line"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    assert_eq!(inlined, [(inner, its_line)], "{how}: {frame}");
    assert_eq!(frame["line"].as_u64(), Some(line), "{how}: {frame}");
}

/// Checks that the inlined functions are known, and that no debug information is reported as
/// missing.
fn assert_whole(profile: &Value, how: &str) {
    assert_inlined(profile, ("mid", 22), ("inl", 17), how);
    assert_inlined(profile, ("other", 16), ("inl2", 11), how);
    assert!(
        !notes(profile).contains(MISSING),
        "{how}: {}",
        notes(profile)
    );
}

/// Removes all files with an extension from the scratch folder. Returns their number.
fn remove(scratch: &Scratch, extension: &str) -> usize {
    let files = fs::read_dir(scratch.path()).expect("a folder");
    let files = files.map(|file| file.expect("can be read").path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == extension));
    let removed: Vec<()> = files
        .map(|path| fs::remove_file(path).expect("an own file"))
        .collect();
    removed.len()
}

#[test]
fn inlined_functions_are_found_in_split_units() {
    for (compiler, version) in [
        ("gcc", "-gdwarf-5"),
        ("gcc", "-gdwarf-4"),
        ("clang", "-gdwarf-5"),
        ("clang", "-gdwarf-4"),
    ] {
        for inlining in ["-fno-split-dwarf-inlining", "-fsplit-dwarf-inlining"] {
            let mut flags = vec!["-g", version, "-gsplit-dwarf"];
            flags.extend((compiler == "clang").then_some(inlining));
            let scratch = Scratch::new("split");
            let how = format!("{compiler} {flags:?}");
            let program = built(&scratch, compiler, &flags);
            assert_whole(&measured(&scratch, &program), &how);
            // The program has been moved together with its files.
            let moved = Scratch::new("moved");
            for entry in fs::read_dir(scratch.path()).expect("a folder") {
                let path = entry.expect("can be read").path();
                let name = path.file_name().expect("a name");
                if path.extension().is_none_or(|e| e == "dwo") {
                    fs::copy(&path, moved.path().join(name)).expect("a copy");
                }
            }
            assert_eq!(remove(&scratch, "dwo"), 2, "{how}");
            assert_whole(
                &measured(&scratch, &moved.file("split")),
                &format!("{how}, moved"),
            );
        }
    }
}

#[test]
fn inlined_functions_are_found_in_packages() {
    for (compiler, version, packer) in [
        ("gcc", "-gdwarf-4", "dwp"),
        ("clang", "-gdwarf-4", "llvm-dwp"),
        ("clang", "-gdwarf-5", "llvm-dwp"),
    ] {
        let scratch = Scratch::new("split");
        let how = format!("{compiler} {version} {packer}");
        let program = built(&scratch, compiler, &["-g", version, "-gsplit-dwarf"]);
        tool(&scratch, packer, &["-e", "split", "-o", "split.dwp"]);
        assert_eq!(remove(&scratch, "dwo"), 2, "{how}");
        assert_whole(&measured(&scratch, &program), &how);
    }
}

#[test]
fn missing_split_units_are_said_to_be() {
    let scratch = Scratch::new("split");
    let program = built(&scratch, "gcc", &["-g", "-gsplit-dwarf"]);
    // Replaces the files by files of another program.
    assert_eq!(remove(&scratch, "dwo"), 2);
    for name in ["split_x.dwo", "split_y.dwo"] {
        fs::copy(&program, scratch.file(name)).expect("a copy");
    }
    let profile = measured(&scratch, &program);
    assert!(notes(&profile).contains(MISSING), "{}", notes(&profile));
}

#[test]
fn sections_compressed_by_older_tools_are_read() {
    for compression in ["-gz=zlib-gnu", "-gz=zlib"] {
        for split in [&[][..], &["-gsplit-dwarf"]] {
            let scratch = Scratch::new("split");
            let flags = [&["-g", compression][..], split].concat();
            let program = built(&scratch, "gcc", &flags);
            assert_whole(&measured(&scratch, &program), &format!("{flags:?}"));
        }
    }
}

/// Symbols in `.gnu_debugdata`, made as by RPM's find-debuginfo.sh (GDB manual, "MiniDebugInfo"),
/// name functions. A broken section is ignored.
#[test]
fn symbols_are_read_from_mini_debug_information() {
    for method in [
        &["--check=crc32"][..],
        &["--check=crc64", "--block-size=4096", "-T2"],
    ] {
        let scratch = Scratch::new("mini");
        let program = built(&scratch, "gcc", &["-g"]);
        let tool = |name: &str, arguments: &[&str]| tool(&scratch, name, arguments);
        tool("objcopy", &["--only-keep-debug", "split", "split.debug"]);
        let keep = [
            "-S", "-K", "work", "-K", "work2", "-K", "mid", "-K", "other", "-K", "main",
        ];
        let remove = ["--remove-section=.comment", "split.debug", "mini"];
        tool("objcopy", &[&keep[..], &remove].concat());
        tool("xz", &[method, &["mini"]].concat());
        tool("strip", &["split", "-o", "stripped"]);
        tool(
            "objcopy",
            &[
                "--add-section",
                ".gnu_debugdata=mini.xz",
                "stripped",
                "named",
            ],
        );
        tool("rm", &["split", "split.debug"]);
        drop(program);
        let unnamed = scratch.file("stripped").display().to_string();
        Run::ipath(["list", &unnamed, "work"]).run().expect(1);
        let profile = measured(&scratch, &scratch.file("named"));
        let functions = profile["functions"].as_array().expect("functions");
        let names: Vec<_> = functions.iter().map(|f| f["name"].as_str()).collect();
        assert_eq!(names, [Some("work"), Some("work2")]);
        for function in functions {
            assert_eq!(function["totals"]["count"], 100);
        }
        let frames = profile["frames"].as_array().expect("frames");
        for name in ["mid", "other", "main"] {
            assert!(frames.iter().any(|f| f["function"] == name), "{name}");
        }
        // A broken section is not an error.
        let mut packed = fs::read(scratch.file("mini.xz")).expect("a file");
        let at = packed.len() / 2;
        packed[at..at + 8].fill(0xff);
        fs::write(scratch.file("broken.xz"), packed).expect("an own file");
        tool(
            "objcopy",
            &[
                "--add-section",
                ".gnu_debugdata=broken.xz",
                "stripped",
                "broken",
            ],
        );
        let broken = scratch.file("broken").display().to_string();
        Run::ipath(["list", &broken, "work"]).run().expect(1);
    }
}
