//! Binaries of every kind: every call is counted on the path that gdb finds, or on one that is
//! marked incomplete.

use ipath_tests::command::Run;
use ipath_tests::compare::assert_equal;
use ipath_tests::compile::{build, build_by, program, program_with, source};
use ipath_tests::each_way::{all_kept, counts_kept};
use ipath_tests::exact::{assert_output_kept, assert_paths_are, check};
use ipath_tests::oracle;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::symbols::{Site, sites};
use ipath_tests::target::Target;
use ipath_tests::tools::newest_go;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The only address of a function.
///
/// # Panics
/// If the file has no such function, or several.
fn site(file: &Path, name: &str) -> Site {
    let found = sites(file, name);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// A stripped function is named by its address, which is the same as in a build with symbols.
#[test]
fn stripped_function_is_measured_by_its_address() {
    for (source, name) in [("paths.c", "work"), ("paths.cc", "geometry::area")] {
        let program = Program::new(&program_with(source, &["-s"]), [""; 0]);
        let site = site(&program_with(source, &[]), name);
        let pattern = format!("{}+{:#x}", site.module, site.address);
        let profile = check(&program, &pattern, &[site]);
        profile.assert_complete("every path ends at _start or in clone");
    }
}

/// Go without symbols, with and without C code, position-independent or not. The functions from the
/// runtime's own table equal those of a build with symbols.
#[test]
fn stripped_go_lists_the_functions_of_an_unstripped_build() {
    let with_c = source("paths_cgo.go").display().to_string();
    for others in [&[][..], &[with_c.as_str()]] {
        for mode in ["-buildmode=exe", "-buildmode=pie"] {
            let built = |flags: &[&str]| program_with("paths.go", &[flags, others].concat());
            let (full, bare) = (built(&[mode]), built(&[mode, "-ldflags=-s -w"]));
            let listed = |file: &Path| {
                let list = Run::ipath([OsStr::new("list"), file.as_os_str(), OsStr::new("*")]);
                functions_of_go(&list.run().expect(0).stdout)
            };
            let (expected, found) = (listed(&full), listed(&bare));
            assert!(expected.len() > 1000, "{others:?} {mode}: {expected:?}");
            assert_eq!(found, expected, "{others:?} {mode}");
            all_kept(&Program::new(&bare, [""; 0]));
        }
    }
}

/// From Go 1.26 on the table's header lacks the text start, and a C linker drops the entry function
/// of Go programs. With and without symbols the paths equal those of a program linked by Go.
#[test]
fn newest_go_linked_with_c() {
    let compiler = newest_go().display().to_string();
    let with_c = source("paths_cgo.go").display().to_string();
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        for others in [&[][..], &[with_c.as_str()]] {
            let built = |flags: &[&str]| {
                build_by(&compiler, &source("paths.go"), &[flags, others].concat())
            };
            for bare in [built(&[mode]), built(&[mode, "-ldflags=-s -w"])] {
                let program = Program::new(&bare, [""; 0]);
                let plain = program.plain().expect(0);
                let scratch = Scratch::new("newest-go");
                let file = scratch.file("p.json");
                let ours = program.under_ipath(&["main.leaf"], "count,wall", &file);
                assert_output_kept(&plain, &ours);
                let profile = Profile::read(&file);
                let own = own_counts(&plain.stdout);
                let found = profile.calls("main.leaf");
                assert_eq!(found, own["main.leaf"], "{mode} {others:?}");
                profile.assert_complete("goroutines begin at runtime.goexit");
                assert_eq!(profile.losses.unwound, Some(0));
                assert_eq!(profile.losses.open, Some(0));
            }
        }
    }
}

/// The Go functions that `ipath list` printed, in the order of their addresses. Linking without
/// symbols changes the addresses.
fn functions_of_go(listed: &str) -> Vec<String> {
    let address = |line: &str| {
        let hex = line.split("+0x").nth(1)?.split(' ').next()?;
        u64::from_str_radix(hex, 16).ok()
    };
    let mut lines: Vec<_> = listed
        .lines()
        .filter_map(|l| Some((address(l)?, l)))
        .collect();
    lines.sort_unstable();
    let names = lines
        .into_iter()
        .filter_map(|(_, line)| line.split("  ").next());
    // The table omits names with brackets.
    let of_go = names.filter(|name| name.contains('.') && !name.contains('['));
    of_go
        .map(|name| name.trim_end_matches(".abi0").to_owned())
        .collect()
}

/// Neither symbols nor unwind tables nor frame pointers: only the instructions remain. gdb gets the
/// same code with the `.debug_frame` section of `-g`.
///
/// The probed function is exported. It leaves by a jump to a function that nothing else reveals, so
/// its exits cannot be found.
#[test]
fn stripped_no_cfi() {
    const FLAGS: [&str; 4] = [
        "-rdynamic",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fomit-frame-pointer",
    ];
    let with = |flag| FLAGS.into_iter().chain([flag]).collect::<Vec<_>>();
    for position in ["-no-pie", "-pie"] {
        let described = program_with("paths.c", &[with("-g"), vec![position]].concat());
        let bare = program_with("paths.c", &[with("-s"), vec![position]].concat());
        assert_eq!(site(&bare, "work"), site(&described, "work"));
        let found = oracle::run(
            &Program::new(&described, [""; 0]),
            &sites(&described, "work"),
        );
        println!("{position}: {}", found.summary());
        for program in [
            Program::new(&bare, [""; 0]),
            Program::new(&bare, [""; 0]).verified(),
        ] {
            let file = Scratch::new("bare");
            let plain = program.plain();
            let ours = program.under_ipath(&["work"], "count", &file.file("p.json"));
            assert_output_kept(&plain, &ours);
            let profile = Profile::read(&file.file("p.json"));
            assert_equal(&profile, &found);
            profile.assert_lossless();
        }
    }
}

/// A jump to a linkage stub ends the call even without unwind tables.
#[test]
fn tail_to_stub() {
    const BARE: [&str; 2] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for linkage in [
        ["-pie", "-fPIE"],
        ["-no-pie", "-fno-pie"],
        ["-pie", "-fcf-protection"],
    ] {
        let program = program_with("tail_to_stub.c", &[BARE, linkage].concat());
        all_kept(&Program::new(&program, [""; 0]));
    }
}

/// Like `stripped_no_cfi`, for a program in which only the innermost functions ever return.
#[test]
fn noreturn_stripped_paths_equal_those_of_gdb() {
    for arguments in [["counts", "a", "bcd"], ["it", "lists", "these"]] {
        stripped_equals_described("noreturn.c", &arguments, 3);
    }
}

/// `cases_stripped`: jump tables of offsets to cases that make calls, functions that leave only by
/// tail calls, and functions that are only jumped to.
#[test]
fn cases_stripped_paths_equal_those_of_gdb() {
    stripped_equals_described("cases.c", &[], 0);
}

/// Paths to `work` in a program without symbols and unwind entries, against gdb on the same code
/// with `-g`. `code` is the program's exit status.
fn stripped_equals_described(source: &str, arguments: &[&str], code: i32) {
    const FLAGS: [&str; 4] = [
        "-rdynamic",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fomit-frame-pointer",
    ];
    for (position, size) in [("-no-pie", "-O2"), ("-pie", "-O2"), ("-pie", "-Os")] {
        let with = |flag| [&FLAGS[..], &[position, size, flag]].concat();
        let described = Program::new(
            &program_with(source, &with("-g")),
            arguments.iter().copied(),
        );
        let found = oracle::run(&described, &sites(&described.path, "work"));
        println!("{source} {position} {size}: {}", found.summary());
        let program = Program::new(
            &program_with(source, &with("-s")),
            arguments.iter().copied(),
        );
        let plain = program.plain().expect(code);
        assert_paths_are(&program, &plain, "work", &found);
    }
}

/// A function named by its address in the process, which equals its address in the file.
#[test]
fn non_pie_function_is_measured_by_its_address() {
    for (source, name) in [("paths.c", "work"), ("paths.cc", "geometry::area")] {
        let program = Program::new(&program_with(source, &["-no-pie"]), [""; 0]);
        let site = site(&program.path, name);
        let profile = check(&program, &format!("{:#x}", site.address), &[site]);
        profile.assert_complete("every path ends at _start or in clone");
    }
}

/// Unwind entries only in `.debug_frame`, which is not loaded: with symbols, and as all that is
/// left of the debug information.
#[test]
fn debug_frame_alone_gives_complete_paths() {
    let assembly = source("debug_frame.S").display().to_string();
    let flags = [
        &assembly,
        "-g",
        "-rdynamic",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    for more in [None, Some("-gz")] {
        let flags: Vec<&str> = flags.into_iter().chain(more).collect();
        let whole = program_with("debug_frame.c", &flags);
        let scratch = Scratch::new("debug-frame");
        let bare = scratch.file("bare");
        Run::new("objcopy")
            .args(["--strip-all", "--keep-section=.debug_frame"])
            .args([&whole, &bare])
            .run()
            .expect(0);
        for path in [whole, bare] {
            let program = Program::new(&path, [""; 0]);
            let profile = check(&program, "work", &sites(&path, "work"));
            profile.assert_complete("every path ends at _start");
        }
    }
}

/// Functions with non-standard calling conventions and without unwind entries. A path through them
/// may end early, and is then marked incomplete. No frame is taken for a root or for another
/// function.
#[test]
fn conventions_of_their_own() {
    let assembly = source("scratch_rbp.S").display().to_string();
    let program = Program::new(&program_with("scratch_rbp.c", &[&assembly]), [""; 0]);
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("conventions");
    let file = scratch.file("p.json");
    assert_output_kept(&plain, &program.under_ipath(&["work"], "count,wall", &file));
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("work"), own_counts(&plain.stdout)["work"]);
    let names = |path: &[usize]| -> Vec<String> {
        let frames = path.iter().map(|&frame| &profile.frames[frame]);
        frames.filter_map(|f| f.function.clone()).collect()
    };
    for path in &profile.paths {
        let names = names(&path.stack);
        let reaches_main = names.iter().any(|name| name == "main");
        assert!(reaches_main || !path.complete, "{names:?}");
        let through = ["keeps_a_number", "amid"].contains(&names[0].as_str());
        assert!(through && (reaches_main || names.len() == 1), "{names:?}");
    }
}

/// Functions without unwind entries between functions with entries, with symbols and without. gdb
/// gets a build in which all of them have entries.
#[test]
fn partial_tables_give_the_paths_of_complete_ones() {
    let assembly = source("partial_tables.S").display().to_string();
    let with = |flags: &[&'static str]| {
        let flags = [flags, &["-rdynamic"]].concat();
        program_with(
            "partial_tables.c",
            &[&[assembly.as_str()], &flags[..]].concat(),
        )
    };
    let described = with(&["-DDESCRIBED"]);
    let sites = sites(&described, "work");
    let found = oracle::run(&Program::new(&described, [""; 0]), &sites);
    for bare in [with(&[]), with(&["-s"])] {
        assert_eq!(vec![site(&bare, "work")], sites);
        for program in [
            Program::new(&bare, [""; 0]),
            Program::new(&bare, [""; 0]).verified(),
        ] {
            let scratch = Scratch::new("partial");
            let file = scratch.file("p.json");
            let plain = program.plain();
            assert_output_kept(&plain, &program.under_ipath(&["work"], "count,wall", &file));
            let profile = Profile::read(&file);
            assert_equal(&profile, &found);
            profile.assert_lossless();
        }
    }
    for flags in [&["-DINIT"][..], &["-DINIT", "-s"]] {
        all_kept(&Program::new(&with(flags), [""; 0]));
    }
}

#[test]
fn rust_binary_has_complete_paths() {
    const RELEASE: &[&str] = &["-C", "lto=fat", "-C", "codegen-units=1"];
    let name = "release::work";
    let program = Program::new(&program_with("release.rs", RELEASE), [""; 0]);
    let profile = check(&program, name, &sites(&program.path, name));
    assert!(profile.paths.len() > 20, "{} paths", profile.paths.len());
    profile.assert_complete("every path ends at _start or in clone");
}

#[test]
fn fortran_paths_equal_those_of_gdb() {
    let program = Program::new(&program("paths.f90"), [""; 0]);
    for name in ["work", "apply", "down", "visit"] {
        let linkage = format!("__paths_MOD_{name}");
        let profile = check(&program, &linkage, &sites(&program.path, &linkage));
        profile.assert_complete("every path ends at _start");
    }
}

/// The names of the functions on a path; `None` where the function is unknown, such as code without
/// a file.
fn names(profile: &Profile, path: &CallPath) -> Vec<Option<String>> {
    let frames = path.stack.iter().map(|&index| &profile.frames[index]);
    frames.map(|frame| frame.function.clone()).collect()
}

/// Code without file, symbols and tables. It is walked if it maintains frame pointers. Otherwise
/// the path ends there and is marked incomplete, whatever rbp contains, until a watching command
/// has analyzed its instructions.
#[test]
fn jit_on_path() {
    let program = Program::new(
        &program_with("jit.c", &["-fno-omit-frame-pointer"]),
        [""; 0],
    );
    let plain = program.plain().expect(0);
    let times = |name: &str| -> u64 {
        let of = plain.stdout.lines().find_map(|line| {
            let (kind, times) = line.split_once(' ')?;
            (kind == name).then(|| times.parse().expect("a number"))
        });
        of.expect("each kind is named")
    };
    counts_kept(&program, 0, |profile| {
        let mut complete: BTreeMap<_, u64> = BTreeMap::new();
        let mut incomplete = 0;
        for path in &profile.paths {
            let calls = count(&path.metrics);
            if path.complete {
                let names = names(profile, path);
                *complete
                    .entry(names[..names.len() - 3].to_vec())
                    .or_default() += calls;
            } else {
                assert_eq!(names(profile, path), [None], "ends at the code itself");
                incomplete += calls;
            }
        }
        let own = |generated: usize| {
            let mut names = vec![None; generated];
            names.extend(["enter", "main"].map(|name| Some(name.to_owned())));
            names
        };
        let others = ["bare", "zeroed", "stale"].map(times);
        let others: u64 = others.iter().sum();
        assert!(incomplete <= others, "{incomplete}");
        let expected = [
            (own(1), times("framed") + others - incomplete),
            (own(2), times("nested")),
        ];
        assert_eq!(complete, BTreeMap::from(expected));
        assert_eq!(profile.losses.incomplete, incomplete);
    });
}

fn luajit(mode: &str) -> Program {
    let script = source("ffi.lua").display().to_string();
    Program::new(Path::new("/usr/bin/luajit"), [mode, &script])
}

fn libc_of(program: &Path) -> PathBuf {
    let list = Run::new("ldd").arg(program).run().expect(0).stdout;
    let mut words = list.split_whitespace();
    let libc = words.find(|w| w.starts_with('/') && w.contains("libc.so"));
    PathBuf::from(libc.expect("it is linked with libc"))
}

type Stacks = BTreeSet<Vec<(String, u64)>>;

/// Words in frames of unknown code are not followed as pointers.
#[test]
fn jit_words_that_lead_nowhere() {
    all_kept(&Program::new(
        &program_with("jit_words.c", &["-fno-omit-frame-pointer"]),
        [""; 0],
    ));
}

/// A tracing compiler that uses rbp as a general register. Calls from its code have a path of one
/// frame. All other paths are those of the interpreter.
#[test]
fn jit_on_path_luajit() {
    let interpreted = luajit("-joff");
    let site = site(&libc_of(&interpreted.path), "ffs");
    let profile = check(&interpreted, "ffs", std::slice::from_ref(&site));
    profile.assert_complete("the interpreter has unwind tables");
    let found = oracle::run(&interpreted, &[site]);
    let stacks: Stacks = found.paths.into_iter().map(|path| path.stack).collect();
    counts_kept(&luajit("-jon"), 0, |profile| {
        let mut compiled = 0;
        for path in &profile.paths {
            let frames = path.stack.iter().map(|&index| &profile.frames[index]);
            if !path.complete {
                assert!(frames.map(|f| f.module).eq([None]), "{path:?}");
                compiled += count(&path.metrics);
                continue;
            }
            let stack: Option<Vec<_>> = frames
                .map(|frame| {
                    let file = Path::new(&profile.modules[frame.module?].path).file_name()?;
                    Some((file.to_str()?.to_owned(), frame.address))
                })
                .collect();
            assert!(stack.is_some_and(|s| stacks.contains(&s)), "{path:?}");
        }
        assert!(compiled > 1000, "{compiled} calls by compiled code");
        assert_eq!(profile.losses.incomplete, compiled);
    });
}

/// The program of `huge.c` with its library, which is linked for a nonzero address.
fn huge() -> PathBuf {
    let flags = ["-shared", "-fPIC", "-Wl,-Ttext-segment=0x3000000000"];
    let library = program_with("huge.S", &flags);
    build(&source("huge.c"), &[library.to_str().expect("a text")])
}

/// A library of 150 MB. It is analyzed while the program runs, without a long stop.
#[test]
fn prelinked_huge_library_is_analyzed_without_a_long_stop() {
    let program = Program::new(&huge(), [""; 0]);
    all_kept(&program);
    let library = program_with(
        "huge.S",
        &["-shared", "-fPIC", "-Wl,-Ttext-segment=0x3000000000"],
    );
    assert!(std::fs::metadata(&library).expect("it is built").len() > 150_000_000);
    check(&program, "huge_work", &sites(&library, "huge_work"));
    check(&program, "huge_149999", &sites(&library, "huge_149999"));

    let scratch = Scratch::new("huge");
    let file = scratch.file("p.json");
    let target = Target::start(&program.path, ["on"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let ours = Run::ipath(["attach", &target.pid().to_string(), "--no-tui"])
        .args([
            "-f",
            "huge_work",
            "-f",
            "huge_299999",
            "--duration",
            "200ms",
            "-o",
        ])
        .arg(&file)
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    let last = target.finish("calls huge_work");
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let all = own_counts(&last)["huge_work"];
    let calls = profile.calls("huge_work");
    assert!(
        0 < calls && calls < all,
        "{calls} of {all}\n{}",
        ours.report()
    );
    // Analyzing the library takes seconds, far more than a busy machine adds to a stop.
    let (longest, stops) = profile.stops();
    println!("{stops}; {:?}", ours.cost.cpu);
    assert!(
        Duration::from_nanos(longest) < Duration::from_millis(500),
        "{stops}"
    );
}
