//! `ipath run` counts exactly what gdb finds: in the tests' own programs, in Debian's redis, and in
//! MPI programs.

use ipath_tests::command::Run;
use ipath_tests::compare::assert_equal;
use ipath_tests::compile::{program, program_with};
use ipath_tests::exact::{assert_output_kept, check};
use ipath_tests::halo::{halo, mpirun};
use ipath_tests::oracle::Job;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::redis;
use ipath_tests::session::own_counts;
use ipath_tests::symbols::sites;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn exact_c_paths_equal_those_of_gdb() {
    let program = Program::new(&program("paths.c"), ["two words", "a'quote"]);
    check(&program, "work", &sites(&program.path, "work"));
}

/// The paths of a program at a fixed address equal those of gdb.
#[test]
fn exact_c_position_dependent() {
    let program = Program::new(&program_with("paths.c", &["-no-pie"]), [""; 0]);
    check(&program, "work", &sites(&program.path, "work"));
}

/// Frames whose callers are found through a pointer in the frame, by an expression in the unwind
/// tables.
#[test]
fn realigned_frames_are_walked_by_unwind_expressions() {
    let program = Program::new(&program("realigned.c"), [""; 0]);
    let tables = Command::new("readelf")
        .arg("-wf")
        .arg(&program.path)
        .output();
    let tables = String::from_utf8(tables.expect("readelf runs").stdout).expect("text");
    assert!(
        tables.contains("DW_OP_deref"),
        "no frame is realigned\n{tables}"
    );
    let profile = check(&program, "work", &sites(&program.path, "work"));
    profile.assert_complete("every path ends at _start");
}

/// A program linked without `.eh_frame_hdr`.
#[test]
fn static_glibc_paths_equal_those_of_gdb() {
    let program = Program::new(&program_with("paths.c", &["-static"]), [""; 0]);
    let profile = check(&program, "work", &sites(&program.path, "work"));
    profile.assert_complete("every path ends at _start");
}

/// A static program creates its first thread's control block itself. The thread therefore leaves
/// that function with a different FS base.
#[test]
fn fs_base_set_inside_a_call() {
    let program = Program::new(&program_with("paths.c", &["-static"]), [""; 0]);
    let scratch = Scratch::new("static");
    let file = scratch.file("p.json");
    program.under_ipath(&["__libc_setup_tls", "work"], "count,wall", &file);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("__libc_setup_tls"), 1);
    assert!(profile.calls("work") > 100);
    profile.assert_lossless();
    assert_eq!(profile.losses.open, Some(0), "it returns");
}

/// musl's own functions have no unwind tables, so gdb cannot unwind them. Checks that the program's
/// own frames equal those with glibc, which `static_glibc_paths_equal_those_of_gdb` compares with
/// gdb.
fn musl(flags: &[&str]) {
    let own_paths = |flags: &[&str]| {
        let program = Program::new(&program_with("paths.c", flags), [""; 0]);
        let scratch = Scratch::new("static");
        let file = scratch.file("p.json");
        program.under_ipath(&["work"], "count,wall", &file);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        profile.assert_complete("every path ends at _start or in clone");
        let mut paths: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for path in &profile.paths {
            let names = path.stack.iter().map(|&frame| {
                let function = profile.frames[frame].function.clone();
                function.unwrap_or_default()
            });
            let mut own = Vec::new();
            for name in names {
                own.push(name);
                if matches!(own.last().map(String::as_str), Some("main" | "thread")) {
                    break;
                }
            }
            *paths.entry(own).or_default() += count(&path.metrics);
        }
        paths
    };
    let specs = ["-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"];
    let musl = own_paths(&[flags, &specs].concat());
    assert_eq!(musl, own_paths(flags));
    assert!(musl.len() > 10, "{musl:?}");
}

#[test]
fn static_musl_paths_equal_those_with_glibc() {
    // Debian's specs for musl request a loader, which lld and mold put into static programs, too.
    musl(&["-g", "-static", "-fuse-ld=bfd"]);
}

/// The library has no symbol at the start function of threads.
#[test]
fn dynamic_musl_paths_equal_those_with_glibc() {
    musl(&["-g"]);
}

/// The calls of a signal handler are on complete paths at any interrupted instruction: in a
/// prologue, in an epilogue, before and after each push. The program counts its own calls.
#[test]
fn signal_at_every_instruction() {
    for place in ["same", "alternate"] {
        let program = Program::new(&program("stepped.c"), [place]);
        let plain = program.plain().expect(0);
        let calls = own_counts(&plain.stdout)["work"];
        assert!(calls > 5000, "{calls}");
        let scratch = Scratch::new("stepped");
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&["work"], "count,wall", &file);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        assert_eq!(profile.calls("work"), calls);
        profile.assert_lossless();
        profile.assert_complete(place);
        let called_through = |name: &str| {
            let is_it = |&&frame: &&usize| profile.frames[frame].function.as_deref() == Some(name);
            let paths = profile.paths.iter();
            paths
                .filter(|path| path.stack.iter().any(|frame| is_it(&frame)))
                .count()
        };
        assert!(
            called_through("stepped") > 20,
            "{}",
            called_through("stepped")
        );
        assert_eq!(called_through("main"), profile.paths.len());
    }
}

/// Neither unwind tables nor frame pointers. gdb uses the `.debug_frame` section that `-g` writes.
#[test]
fn no_cfi_paths_equal_those_of_gdb() {
    let flags = [
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fomit-frame-pointer",
    ];
    let program = Program::new(&program_with("paths.c", &flags), [""; 0]);
    let profile = check(&program, "work", &sites(&program.path, "work"));
    profile.assert_complete("every path ends at _start");
}

/// Neither unwind tables nor libc, and stacks that grow by moving. The program counts its own
/// calls. A call that is entered again after its stack has grown is one call.
#[test]
fn go_binary_calls_equal_its_own_counts() {
    let program = Program::new(&program("paths.go"), [""; 0]);
    let plain = program.plain().expect(0);
    for (function, calls) in own_counts(&plain.stdout) {
        let scratch = Scratch::new("go");
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&[&function], "count,wall", &file);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        assert_eq!(profile.calls(&function), calls, "{function}");
        profile.assert_lossless();
        profile.assert_complete("every path ends at a root of Go's");
    }
}

/// The paths of functions that the program does not export equal those of gdb.
#[test]
fn exact_c_static_functions() {
    let program = Program::new(&program("paths.c"), [""; 0]);
    for function in ["down", "even", "jumps_in", "through_pointer", "finish"] {
        check(&program, function, &sites(&program.path, function));
    }
}

#[test]
fn exact_cpp_paths_equal_those_of_gdb() {
    let program = Program::new(&program("paths.cc"), [""; 0]);
    let profile = check(
        &program,
        "geometry::area",
        &sites(&program.path, "geometry::area"),
    );
    assert!(
        profile.losses.unwound > Some(0),
        "exceptions pass through it: {:?}",
        profile.losses
    );
    let function = &profile.functions[0];
    assert_eq!(
        (function.linkage.as_str(), function.name.as_str()),
        ("_ZN8geometry4areaEl", "geometry::area(long)")
    );
}

/// The paths of a virtual function equal those of gdb.
#[test]
fn exact_cpp_virtual() {
    let program = Program::new(&program("paths.cc"), [""; 0]);
    let wanted = sites(&program.path, "geometry::Nested::measure");
    check(&program, "geometry::Nested::measure", &wanted);
}

#[test]
fn exact_rust_paths_equal_those_of_gdb() {
    let program = Program::new(&program("paths.rs"), [""; 0]);
    let profile = check(
        &program,
        "paths::work",
        &sites(&program.path, "paths::work"),
    );
    assert_eq!(
        profile.losses.unwound,
        Some(2),
        "two panics pass through it"
    );
}

#[test]
fn exact_redis_paths_equal_those_of_gdb() {
    let server = Path::new(redis::SERVER);
    let server_sites = sites(server, "lookupKey");
    let alone = {
        let dir = Scratch::public("redis");
        let mut command = Command::new(server);
        command.args(redis::arguments(&dir));
        redis::play(command, &dir)
    };
    assert_eq!(alone.code, Some(0), "{}", alone.output);

    let dir = Scratch::public("redis");
    let job = Job::new(&Program::new(server, redis::arguments(&dir)), &server_sites);
    let (name, arguments) = job.command();
    let mut command = Command::new(name);
    command.args(arguments).env("IPATH_ORACLE", job.file());
    let under_gdb = redis::play(command, &dir);
    assert_eq!(under_gdb.answers, alone.answers, "under gdb");
    let oracle = job.result(&Run::new("true").run());
    println!("{}", oracle.summary());

    let dir = Scratch::public("redis");
    let file = dir.file("p.json");
    let mut command = Command::new(ipath());
    command.args(ipath_arguments(&["lookupKey"], "count,wall", &file));
    command.arg(server).args(redis::arguments(&dir));
    let ours = redis::play(command, &dir);
    assert_eq!(
        (&ours.answers, ours.code),
        (&alone.answers, Some(0)),
        "{}",
        ours.output
    );
    let profile = Profile::read(&file);
    assert_equal(&profile, &oracle);
    profile.assert_lossless();
}

fn quoted(words: &[String]) -> String {
    words
        .iter()
        .map(|w| format!("'{}'", w.replace('\'', "'\\''")))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn exact_mpi_paths_of_each_rank_equal_those_of_gdb() {
    let steps = "60";
    let halo = halo();
    let shown = halo.display().to_string();
    let plain = mpirun(&format!("exec {shown} {steps}")).run().expect(0);
    assert!(
        plain.stdout.starts_with("2 ranks, 60 steps"),
        "{}",
        plain.report()
    );

    let library = Run::new("ldd").arg(&halo).run().expect(0).stdout;
    let library = library
        .split_whitespace()
        .find(|w| w.starts_with('/') && w.contains("libmpi.so"));
    let wanted = sites(
        Path::new(library.expect("halo is linked with libmpi")),
        "MPI_Wait",
    );
    let program = Program::new(&halo, [steps]);
    let jobs = [Job::new(&program, &wanted), Job::new(&program, &wanted)];
    let scratch = Scratch::new("mpi");
    for (rank, job) in jobs.iter().enumerate() {
        fs::copy(job.file(), scratch.file(&format!("job.{rank}"))).unwrap();
    }
    let (gdb, arguments) = jobs[0].command();
    let prefix = scratch.file("job.").display().to_string();
    let finished = mpirun(&format!(
        "IPATH_ORACLE='{prefix}'$R exec {gdb} {}",
        quoted(&arguments)
    ))
    .run()
    .expect(0);
    let oracles = jobs.map(|job| job.result(&finished));
    assert_eq!(oracles[0].stdout, plain.stdout, "rank 0 under gdb");

    for (rank, oracle) in oracles.iter().enumerate() {
        println!("rank {rank}: {}", oracle.summary());
        // 4 waits for rows and 2 for corners in each step, 3 for the flux in each tenth
        assert_eq!(oracle.hits(), 60 * 6 + 6 * 3);
    }

    let arguments = ipath_arguments(&["MPI_Wait"], "count,wall", Path::new("PROFILE"));
    let profile = scratch.file("p.").display().to_string();
    let arguments = quoted(&arguments).replace("PROFILE", &format!("{profile}'$R'.json"));
    let ipath = ipath().display().to_string();
    let ours = mpirun(&format!("exec '{ipath}' {arguments} '{shown}' {steps}")).run();
    ipath_tests::exact::assert_output_kept(&plain, &ours);
    for (rank, oracle) in oracles.iter().enumerate() {
        let profile = Profile::read(&scratch.file(&format!("p.{rank}.json")));
        assert_equal(&profile, oracle);
        profile.assert_lossless();
    }
}
