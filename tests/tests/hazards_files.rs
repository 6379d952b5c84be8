//! Files that ipath opens by a name from elsewhere: they may be of any kind.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The memory limit of a command that reads a small program, in KiB. The fuzz targets use the same.
const MOST_KIB: u64 = 512 << 10;

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).expect("make a FIFO");
}

/// A copy of a program with a separate debug file, which is found by its name and a checksum.
/// Returns their folder, the program, and the debug file.
fn separated(name: &str) -> (Scratch, PathBuf, PathBuf) {
    let scratch = Scratch::new(name);
    let built = program_with("busy.c", &["-g", "-Wl,--build-id=none"]);
    let (program, debug) = (scratch.file("app"), scratch.file("app.debug"));
    fs::copy(&built, &program).expect("copy");
    let tool = |option: &str, from: &Path, to: Option<&Path>| {
        let run = Run::new("objcopy").arg(option).arg(from);
        let run = to.into_iter().fold(run, |run, to| run.arg(to));
        run.run().expect(0);
    };
    tool("--only-keep-debug", &program, Some(&debug));
    tool("--strip-debug", &program, None);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    tool(&link, &program, None);
    (scratch, program, debug)
}

/// True if source lines in the program are known.
fn has_lines(profile: &Profile) -> bool {
    let mut files = profile.frames.iter().filter_map(|f| f.file.as_deref());
    files.any(|file| file.ends_with("busy.c"))
}

/// The profile of a function of the program, with the source positions of its callers.
fn measured(program: &Path) -> Profile {
    let target = Target::start(program, ["1", "120"]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let pid = target.pid().to_string();
    let scratch = Scratch::new("measured");
    let file = scratch.file("p.json");
    let detach = Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    drop(session);
    assert!(detach.cost.max_rss_kib < MOST_KIB, "{:?}", detach.cost);
    target.finish("ok calls ");
    Profile::read(&file)
}

/// A debug file that is a FIFO is not read, and commands do not wait for it.
#[test]
fn fifo_as_debug_link() {
    let (_scratch, program, debug) = separated("fifo-as-debug-link");
    assert!(has_lines(&measured(&program)), "the file is read");
    fs::remove_file(&debug).expect("remove");
    fifo(&debug);
    assert!(!has_lines(&measured(&program)));
}

/// The debug file is sparse and 1 TiB long. It is not read, and the command works without it.
#[test]
fn sparse_debug_file() {
    let (_scratch, program, debug) = separated("sparse-debug-file");
    let file = File::options().write(true).open(&debug).expect("open");
    file.set_len(1 << 40).expect("make it large");
    assert!(!has_lines(&measured(&program)));
    // `list` refuses it, too.
    let listed = Run::ipath(["list"]).arg(&debug).run();
    let line = listed.expect_error();
    assert!(line.contains(": sparse: "), "{line}");
}

/// Special files among the user's arguments are refused. A mapped file of the program that is
/// replaced by a FIFO does not block a command.
#[test]
fn fifo_as_module() {
    let scratch = Scratch::new("fifo-as-module");
    let (pipe, ring) = (scratch.file("fifo"), scratch.file("loop"));
    fifo(&pipe);
    symlink(&ring, &ring).expect("link");
    let bad: [(&Path, &str); 4] = [
        (&pipe, "not a regular file"),
        (Path::new("/dev/zero"), "not a regular file"),
        (scratch.path(), "is a directory"),
        (&ring, "too many symbolic links"),
    ];
    for (path, cause) in bad {
        for command in ["list", "report", "export"] {
            let run = Run::ipath([command]).arg(path);
            let run = match command {
                "export" => run.args(["--to", "json", "-o", "-"]),
                _ => run,
            };
            let line = run.run().expect_error();
            assert!(line.contains(cause), "{line}");
        }
    }
    let library = scratch.file("library.so");
    let built = program_with("other_root_lib.c", &["-shared", "-fPIC"]);
    fs::copy(built, &library).expect("copy");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "-f", "leaf", "-o"]).arg(&file).arg("--");
    let run = run
        .arg(program_with("other_root.c", &["-ldl"]))
        .arg(&library);
    run.arg(&pipe).run().expect(0);
    assert_eq!(Profile::read(&file).calls("leaf"), 100);
}

/// A file that is truncated while it is read does not crash the command.
#[test]
fn module_cut_short() {
    let scratch = Scratch::new("cut-short");
    let library = scratch.file("library.so");
    let built = program_with("small_lib.c", &["-shared", "-fPIC"]);
    let whole = fs::read(&built).expect("read");
    fs::write(&library, &whole).expect("write");
    let file = File::options().write(true).open(&library).expect("open");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::unix::fs::FileExt;
            while !is_over.load(order) {
                file.set_len(100).expect("cut");
                file.write_all_at(&whole, 0).expect("write");
            }
        });
        for _ in 0..20 {
            let listed = Run::ipath(["list"]).arg(&library).run();
            if listed.code() != 0 {
                listed.expect_error();
            }
        }
        is_over.store(true, order);
    });
}

/// How often a command opens each of these files to read it, according to strace.
fn opened(command: &[&str], files: [&Path; 2]) -> [usize; 2] {
    let scratch = Scratch::new("opened");
    let calls = scratch.file("calls");
    let run = Run::new("strace").args(["-f", "-y", "-e", "trace=openat", "-o"]);
    let run = run.arg(&calls).arg(ipath()).args(command);
    run.run().expect(0);
    let calls = fs::read_to_string(&calls).expect("what strace saw");
    // Before that, only the header is read, through the link to the program.
    let is_reading = |call: &&str| !call.contains("O_PATH") && !call.contains("/exe\"");
    files.map(|file| {
        // strace appends the path of the new descriptor to the result.
        let result = format!("<{}>", file.display());
        let opened = calls.lines().filter(is_reading);
        opened.filter(|call| call.ends_with(&result)).count()
    })
}

/// A file is opened once for its symbols, lines and text, even if it is mapped in pieces.
#[test]
fn each_file_is_opened_once() {
    let (scratch, program, debug) = separated("once");
    let strip = Run::new("objcopy").arg("--strip-all").arg(&program);
    strip.run().expect(0);
    let target = Target::start(&program, ["1", "120"]).await_output("ready");
    let pid = target.pid().to_string();
    let files = [program.as_path(), debug.as_path()];
    let profile = scratch.file("p.json").display().to_string();
    let attach = [
        "attach",
        &pid,
        "-f",
        "step",
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
    ];
    let commands = [
        &["list", &pid, "step"][..],
        &attach,
        &["add", &pid, "-f", "main"],
        &["snapshot", &pid, "-o", &profile],
        &["detach", &pid, "-o", &profile],
    ];
    for command in commands {
        assert_eq!(opened(command, files), [1, 1], "{command:?}");
    }
    assert!(has_lines(&Profile::read(Path::new(&profile))));
    target.finish("ok calls ");

    let twice = scratch.file("twice");
    fs::copy(program_with("text_mapped_twice.c", &[]), &twice).expect("copy");
    let target = Target::start(&twice, [""; 0]).await_output("ready");
    let list = ["list", &target.pid().to_string(), "twice_work"];
    assert_eq!(opened(&list, [&twice, &debug]), [1, 0]);
    target.signal(Signal::SIGUSR1);
    target.finish("ok ");
}
