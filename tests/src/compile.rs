//! Compiles the target programs on demand, once for each source and set of flags.

use crate::place::{work_dir, workspace};
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const C_FLAGS: &[&str] = &[
    "-O2",
    "-fomit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

/// Prevents inlining and cloning. The tests need separate functions, and the compiler has no
/// attribute for that.
const FORTRAN_FLAGS: &[&str] = &[
    "-O2",
    "-fomit-frame-pointer",
    "-fno-inline",
    "-fno-ipa-cp",
    "-Wall",
    "-Werror",
];

/// The environment variable with the linker of every C, C++, Fortran and Rust program: the `NAME`
/// of `-fuse-ld=NAME`.
const LINKER: &str = "IPATH_TEST_LINKER";

/// The executable of `tests/programs/NAME`, compiled with the usual flags of its language: for C,
/// C++ and Fortran -O2 without frame pointers.
///
/// # Panics
/// If it does not compile, with the compiler's messages.
pub fn program(name: &str) -> PathBuf {
    program_with(name, &[])
}

/// Like [`program`], with additional compiler flags.
pub fn program_with(name: &str, flags: &[&str]) -> PathBuf {
    build(&source(name), flags)
}

/// The path of a file in `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    workspace().join("tests/programs").join(name)
}

/// Compiles a C, C++, assembly, Rust, Go or Fortran source. Returns the path of the result, which
/// is named after the source. A flag that is an absolute path names another source or object of the
/// same program.
///
/// # Panics
/// With the compiler's messages, if it does not compile.
pub fn build(source: &Path, flags: &[&str]) -> PathBuf {
    build_with(None, source, flags)
}

/// Like [`build`], with this compiler instead of the language's default (`clang`, `clang++`).
///
/// # Panics
/// If the program does not compile, with the compiler's messages.
pub fn build_by(compiler: &str, source: &Path, flags: &[&str]) -> PathBuf {
    build_with(Some(compiler), source, flags)
}

/// Like [`build`], with the compiler `chosen`, or the language's default if it is `None`.
fn build_with(chosen: Option<&str>, source: &Path, flags: &[&str]) -> PathBuf {
    let extension = source
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    let (compiler, usual): (&str, &[&str]) = match extension {
        "c" | "S" => ("gcc", C_FLAGS),
        "cc" => ("g++", C_FLAGS),
        "rs" => ("rustc", &["--edition", "2024", "-O"]),
        "go" => ("go", &["build"]),
        "f90" => ("gfortran", FORTRAN_FLAGS),
        _ => panic!("no compiler for {}", source.display()),
    };
    let compiler = chosen.unwrap_or(compiler);
    let linker = match std::env::var(LINKER) {
        Ok(name) if !flags.contains(&"-c") => linked_by(&name, extension),
        _ => Vec::new(),
    };
    let mut key = DefaultHasher::new();
    (compiler, usual, &linker, flags).hash(&mut key);
    let sources = flags.iter().map(Path::new).filter(|f| f.is_absolute());
    for file in std::iter::once(source).chain(sources) {
        text(file).hash(&mut key);
    }
    let dir = work_dir("programs").join(format!("{:016x}", key.finish()));
    let stem = source
        .file_stem()
        .expect("a source has a name")
        .to_string_lossy();
    let output = dir.join(format!("{stem}_{extension}"));
    // Another test must not replace a program that is running.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if output.exists() {
        return output;
    }
    fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
    // A killed compiler must not leave a partial program behind.
    let own = dir.join(format!("{}.building", std::process::id()));
    // Libraries follow the objects that need them, but Go takes its flags first.
    let (before, after): (&[&str], &[&str]) = match extension {
        "go" => (flags, &[]),
        _ => (&[], flags),
    };
    let result = Command::new(compiler)
        .args(usual)
        .args(linker)
        .arg("-o")
        .arg(&own)
        .args(before)
        .arg(source)
        .args(after)
        .env("GOCACHE", work_dir("go-cache"))
        // The Fortran compiler writes modules to its working directory.
        .current_dir(&dir)
        .output()
        .unwrap_or_else(|e| panic!("start {compiler}: {e}"));
    assert!(
        result.status.success(),
        "{compiler} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&result.stderr)
    );
    // Another test process may have built it in the meantime, and may be running it.
    match fs::hard_link(&own, &output) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            panic!("link {}: {error}", own.display())
        }
        _ => {}
    }
    let _ = fs::remove_file(&own);
    output
}

/// The flags that select a linker in the language of this extension. Go has its own linker.
fn linked_by(linker: &str, extension: &str) -> Vec<String> {
    let flag = format!("-fuse-ld={linker}");
    match extension {
        "rs" => vec![format!("-Clink-arg={flag}")],
        "go" => Vec::new(),
        _ => vec![flag],
    }
}

/// The bytes of a source and of the headers beside it that it includes, recursively.
fn text(source: &Path) -> Vec<u8> {
    let mut text = fs::read(source).unwrap_or_else(|e| panic!("read {}: {e}", source.display()));
    let own = String::from_utf8_lossy(&text).into_owned();
    for line in own.lines() {
        let name = line.strip_prefix("#include \"");
        if let Some(name) = name.and_then(|n| n.strip_suffix('"')) {
            text.extend(self::text(&source.with_file_name(name)));
        }
    }
    text
}
