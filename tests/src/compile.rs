//! Compiling the target programs on demand, once for each source and set of flags.

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

/// Functions of their own are what the programs are about; the compiler has no attribute for them.
const FORTRAN_FLAGS: &[&str] = &[
    "-O2",
    "-fomit-frame-pointer",
    "-fno-inline",
    "-fno-ipa-cp",
    "-Wall",
    "-Werror",
];

/// Names the linker of every C, C++, Fortran and Rust program: the `NAME` of `-fuse-ld=NAME`.
const LINKER: &str = "IPATH_TEST_LINKER";

/// `tests/programs/NAME`, compiled the usual way of its language: -O2 without frame pointers.
pub fn program(name: &str) -> PathBuf {
    program_with(name, &[])
}

/// The same with further compiler flags.
pub fn program_with(name: &str, flags: &[&str]) -> PathBuf {
    build(&source(name), flags)
}

/// The path of a file in `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    workspace().join("tests/programs").join(name)
}

/// Any C, C++, assembly, Rust, Go or Fortran source; the result is named like the source. A flag that is an
/// absolute path names another source or object of the same program.
///
/// # Panics
/// With the compiler's messages, when it does not compile.
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
    // A program that runs is not to be replaced by another test's.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if output.exists() {
        return output;
    }
    fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
    // Nor is one whose compiler has been killed to be taken for whole.
    let own = dir.join(format!("{}.building", std::process::id()));
    // Libraries stand after what needs them, but Go's flags first.
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
        // Fortran's modules are left where the compiler runs.
        .current_dir(&dir)
        .output()
        .unwrap_or_else(|e| panic!("start {compiler}: {e}"));
    assert!(
        result.status.success(),
        "{compiler} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&result.stderr)
    );
    // Tests of another program may have built it meanwhile, and run it.
    match fs::hard_link(&own, &output) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            panic!("link {}: {error}", own.display())
        }
        _ => {}
    }
    let _ = fs::remove_file(&own);
    output
}

/// The flags that select a linker in the language of this extension. Go has a linker of its own.
fn linked_by(linker: &str, extension: &str) -> Vec<String> {
    let flag = format!("-fuse-ld={linker}");
    match extension {
        "rs" => vec![format!("-Clink-arg={flag}")],
        "go" => Vec::new(),
        _ => vec![flag],
    }
}

/// A source's bytes, with those of the headers beside it that it names, and those that these name.
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
