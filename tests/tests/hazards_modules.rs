//! The mapping of files: text mapped in pieces, different files at the same path, special files.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with, source};
use ipath_tests::exact::check;
use ipath_tests::headers::move_headers;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Frame, Function, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::Session;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets a program that waits for SIGUSR1 continue until it has printed its last line.
fn go_on(target: &mut Target) -> String {
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "printed `ok`", |t| t.stdout().contains("ok "));
    target.stdout()
}

fn hexadecimal(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).expect("an address")
}

/// A function is a candidate only at addresses where its bytes are mapped.
#[test]
fn text_mapped_twice() {
    let mut target = Target::start(program("text_mapped_twice.c"), [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["twice_work", "once_work"]);
    go_on(&mut target);
    let stderr = target.stderr();
    let addresses = stderr.split_whitespace().map(hexadecimal);
    let expected: BTreeMap<u64, u64> = addresses.zip([500, 1500, 500]).collect();
    let pid = target.pid().to_string();
    let listed = Run::ipath(["list", &pid, "twice_work", "once_work", "--json"]);
    let listed = listed.run().expect(0).json();
    let profile = session.detach();
    profile.assert_lossless();
    let of = |f: &Function| {
        let base = profile.modules[f.module].base.expect("a base");
        (base.wrapping_add(f.address), count(&f.totals))
    };
    let found: Vec<_> = profile.functions.iter().map(of).collect();
    assert_eq!(found.len(), 3, "{:?}", profile.functions);
    assert_eq!(BTreeMap::from_iter(found), expected);
    let functions = listed["functions"].as_array().expect("a list");
    let mut names: Vec<_> = functions.iter().map(|f| f["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [Some("once_work"), Some("twice_work"), Some("twice_work")]
    );
    target.finish("ok ");
}

/// `shared_text`: a probe in a shared mapping of text would be written to the file.
#[test]
fn shared_text_is_refused_and_the_file_unchanged() {
    let scratch = Scratch::new("shared");
    let (file, copy) = (program("text_mapped_twice.c"), scratch.file("copy"));
    fs::copy(&file, &copy).expect("room for a copy");
    let mut target = Target::start(&file, [&copy]).await_output("ready");
    let session = Session::attach(target.pid(), &["twice_work", "once_work"]);
    let pid = target.pid().to_string();
    let listed = Run::ipath(["list", &pid, "twice_work", "--json"]);
    let listed = listed.run().expect(0).json();
    let refused = |f: &serde_json::Value| f["refused"].as_str().map(str::to_owned);
    let functions = listed["functions"].as_array().expect("a list");
    let refused: BTreeSet<_> = functions.iter().map(refused).collect();
    let expected = [None, Some("shared-text".to_owned())];
    assert_eq!(refused, BTreeSet::from(expected), "{listed}");
    let is_as_it_was = || fs::read(&file).expect("readable") == fs::read(&copy).expect("readable");
    assert!(is_as_it_was(), "the file has been written to");
    go_on(&mut target);
    let profile = session.detach();
    let calls = ["twice_work", "once_work"].map(|name| profile.calls(name));
    assert_eq!(calls, [500, 500]);
    let refused = format!("{:?}", profile.refused);
    assert!(
        refused.contains("twice_work") && refused.contains("shared-text"),
        "{refused}"
    );
    assert!(is_as_it_was(), "the file has been written to");
    target.finish("ok ");
}

/// A library that calls `leaf`, and one with a different function at the same address.
fn libraries() -> [PathBuf; 2] {
    let flags = ["-shared", "-fPIC"];
    let other = [flags.as_slice(), &["-DOTHER"]].concat();
    [&flags[..], &other].map(|flags| program_with("other_root_lib.c", flags))
}

/// The names of the direct callers in a profile, or their addresses if they have no name.
fn callers(profile: &Profile) -> BTreeSet<String> {
    let frames = profile.paths.iter().filter_map(|p| p.stack.first());
    let frames = frames.map(|&f| &profile.frames[f]);
    let name = |f: &Frame| {
        f.function
            .clone()
            .unwrap_or_else(|| format!("{:#x}", f.address))
    };
    frames.map(name).collect()
}

/// Ways to change the root, each with commands of `sh` that make `$1` the root and run `$2` there.
const ROOTS: [(&str, &str); 2] = [
    ("chroot", "exec chroot \"$1\" \"$2\" \"$3\""),
    (
        "pivot_root",
        "cd \"$1\" && pivot_root . old && cd / && exec \"$2\" \"$3\"",
    ),
];

/// A process's files are those in its own root, whatever files have the same paths in ipath's root.
#[test]
fn other_root_names_functions_by_its_own_files() {
    let [right, wrong] = libraries();
    let program = program_with("other_root.c", &["-ldl"]);
    // Without /proc in the root, ipath must tell the runtime about new mappings.
    let each = ROOTS.iter().flat_map(|root| [(root, true), (root, false)]);
    for ((how, script), has_proc) in each {
        let scratch = Scratch::public("other-root");
        // Both roots have this path: this one the wrong library, and the other one the right
        // library.
        let (root, library) = (scratch.file("root"), scratch.file("library.so"));
        std::fs::copy(&wrong, &library).expect("copy");
        let put = |from: &Path, to: &Path| {
            let to = root.join(to.strip_prefix("/").unwrap_or(to));
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("make a folder");
            std::fs::copy(from, to).expect("copy");
        };
        put(&right, &library);
        put(&program, Path::new("/program"));
        for file in libraries_of(&program) {
            put(&file, &file);
        }
        for folder in ["proc", "old"] {
            std::fs::create_dir_all(root.join(folder)).expect("make a folder");
        }
        let mounts = if has_proc {
            "mount --bind \"$1\" \"$1\" && mount --rbind /proc \"$1/proc\""
        } else {
            "mount --bind \"$1\" \"$1\""
        };
        let script = format!("{mounts} && {script}");
        let args = [
            OsStr::new("-m"),
            OsStr::new("sh"),
            OsStr::new("-c"),
            script.as_ref(),
        ];
        let names = [
            OsStr::new("sh"),
            root.as_os_str(),
            "/program".as_ref(),
            library.as_os_str(),
        ];
        let args = args.into_iter().chain(names);
        let mut target = Target::start("unshare", args).await_output("ready");
        let session = Session::attach(target.pid(), &["leaf"]);
        go_on(&mut target);
        let expected = BTreeSet::from(["right".to_owned()]);
        let what = format!("{how}, /proc {has_proc}");
        assert_eq!(callers(&session.snapshot()), expected, "{what}, live");
        let profile = session.detach();
        profile.assert_lossless();
        assert_eq!(callers(&profile), expected, "{what}, at the end");
        target.finish("ok ");
    }
}

/// The paths of a program's loader and libraries.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let listed = Run::new("ldd").arg(program).run().expect(0).stdout;
    let words = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

/// A library's file was replaced by the time the program ends. Either its functions have their
/// right names, or the profile says that they have none.
#[test]
fn replaced_library_never_gives_wrong_names() {
    let [right, wrong] = libraries();
    let program = program_with("other_root.c", &["-ldl"]);
    let scratch = Scratch::new("replaced");
    let (library, other) = (scratch.file("library.so"), scratch.file("other.so"));
    std::fs::copy(&right, &library).expect("copy");
    std::fs::copy(&wrong, &other).expect("copy");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "-f", "leaf", "-o"]).arg(&file).arg("--");
    run.arg(&program).arg(&library).arg(&other).run().expect(0);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("leaf"), 100);
    let callers = callers(&profile);
    let path = library.display().to_string();
    let note =
        format!("the functions of {path} are not named: the file at its path is not the one");
    let is_said = profile.session.notes.iter().any(|n| n.starts_with(&note));
    let is_named = callers == BTreeSet::from(["right".to_owned()]);
    assert!(
        is_named != is_said,
        "{callers:?} {:?}",
        profile.session.notes
    );
    let module = profile.modules.iter().find(|m| m.path == path);
    assert!(module.is_some(), "{:?}", profile.modules);
}

/// `paths.c` as a program, and as the library of a program: each as the program to run and the file
/// with the functions. `change` writes that file.
fn paths_in(scratch: &Scratch, change: impl Fn(&Path, &Path)) -> [(Program, PathBuf); 2] {
    const LIBRARY: &str = "libpaths.so";
    let (own, library) = (scratch.file("own"), scratch.file(LIBRARY));
    change(&program("paths.c"), &own);
    let soname = format!("-Wl,-soname,{LIBRARY}");
    let flags = ["-shared", "-fPIC", "-Dmain=library_main", &soname];
    let whole = program_with("paths.c", &flags);
    change(&whole, &library);
    let using = program_with("of_library.c", &[&whole.display().to_string()]);
    let folder = scratch.path().display().to_string();
    let using = Program::new(&using, [""; 0]).env("LD_LIBRARY_PATH", &folder);
    [(Program::new(&own, [""; 0]), own), (using, library)]
}

/// Program headers outside the mapping of the file's start, as in files that BOLT wrote, and in
/// other places where tools put them.
#[test]
fn headers_elsewhere_give_complete_paths() {
    let long = format!("/{}", "x".repeat(3000));
    let by_patchelf = |from: &Path, to: &Path| {
        fs::copy(from, to).expect("copy");
        let patch = Run::new("patchelf").args(["--set-rpath", &long]);
        patch.arg(to).run().expect(0);
    };
    type Change<'a> = &'a dyn Fn(&Path, &Path);
    let changes: [(&str, Change<'_>); 2] = [("moved", &move_headers), ("patchelf", &by_patchelf)];
    for (how, change) in changes {
        let scratch = Scratch::new(how);
        for (program, file) in paths_in(&scratch, change) {
            println!("{how} {}", file.display());
            let profile = check(&program, "work", &sites(&file, "work"));
            profile.assert_complete("every path ends at _start or in clone");
        }
    }
}

/// The Rust compiler, whose libraries are processed by BOLT in some releases: allocations have
/// complete paths.
#[test]
fn bolted_compiler_has_complete_paths() {
    let sysroot = Run::new("rustc")
        .args(["--print", "sysroot"])
        .run()
        .expect(0);
    let compiler = Path::new(sysroot.stdout.trim()).join("bin/rustc");
    let scratch = Scratch::new("compiler");
    let (source, file) = (source("release.rs"), scratch.file("p.json"));
    let options = ["-f", "malloc", "-m", "count", "--max-paths", "500000", "-o"];
    let run = Run::ipath(["run"]).args(options).arg(&file).arg("--");
    let run = run
        .arg(compiler)
        .args(["--edition", "2024", "-O", "--emit", "obj", "-o"]);
    run.arg(scratch.file("out.o")).arg(source).run().expect(0);
    let profile = Profile::read(&file);
    let calls = profile.calls("malloc");
    assert!(calls > 10_000, "{calls} calls");
    profile.assert_complete("the compiler's code has tables");
}
