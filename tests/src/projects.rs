//! Programs of other projects. `tests/set-up` gets their sources.

use crate::compile::source;
use crate::gcov::Project;
use crate::tools;
use std::path::{Path, PathBuf};

/// A project in C: its folder, its sources there, its driver in `tests/programs`, its own flags and
/// the program's arguments.
fn project(
    folder: &Path,
    sources: &[&str],
    driver: Option<&str>,
    flags: &[&str],
    arguments: &[&str],
) -> Project {
    let owned = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
    let mut flags: Vec<String> = owned(flags);
    flags.push(format!("-I{}", folder.display()));
    let own = sources.iter().map(|name| folder.join(name));
    Project {
        compiler: "gcc",
        flags,
        sources: own.chain(driver.map(source)).collect(),
        arguments: owned(arguments),
    }
}

/// The path of a file as text.
fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("UTF-8")
}

/// The program bzip2, with these arguments. `{folder}` stands for the folder of its sources.
pub fn bzip2(arguments: &[&str]) -> Project {
    let folder = tools::sources("bzip2-sys-0.1.13+1.0.8").join("bzip2-1.0.8");
    let sources = "blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c \
        bzip2.c";
    let sources: Vec<&str> = sources.split(' ').collect();
    let mut project = project(&folder, &sources, None, &[], arguments);
    let folder = text(folder);
    for argument in &mut project.arguments {
        *argument = argument.replace("{folder}", &folder);
    }
    project
}

/// zlib, which packs and unpacks a source.
pub fn zlib() -> Project {
    let folder = tools::sources("libz-sys-1.1.22").join("src/zlib");
    let sources = "adler32.c compress.c crc32.c deflate.c inffast.c inflate.c inftrees.c trees.c \
        uncompr.c zutil.c";
    let sources: Vec<&str> = sources.split(' ').collect();
    let input = text(source("drive_libc.c"));
    project(&folder, &sources, Some("drive_zlib.c"), &[], &[&input])
}

/// Lua, which runs a script. With a fixed seed, and without a cache that depends on the addresses
/// of texts, the program does the same in each build.
///
/// # Panics
/// If its sources are missing.
pub fn lua() -> Project {
    let folder = tools::sources("lua-src-547.0.0").join("lua-5.4.7");
    let files = std::fs::read_dir(&folder).expect("a folder");
    let names = files.map(|file| file.expect("a file").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".c")).collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let flags = ["-Dluai_makeseed(L)=7", "-DSTRCACHE_N=1", "-DSTRCACHE_M=1"];
    let script = text(source("script.lua"));
    project(&folder, &names, Some("drive_lua.c"), &flags, &[&script])
}

/// SQLite, which runs a script.
pub fn sqlite() -> Project {
    let folder = tools::sources("libsqlite3-sys-0.35.0").join("sqlite3");
    let flags = ["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"];
    let script = text(source("script.sql"));
    project(
        &folder,
        &["sqlite3.c"],
        Some("drive_sqlite.c"),
        &flags,
        &[&script],
    )
}

/// Numerical kernels in Fortran, from `tests/programs`.
pub fn kernel() -> Project {
    Project {
        compiler: "gfortran",
        flags: Vec::new(),
        sources: vec![source("kernel.f90")],
        arguments: Vec::new(),
    }
}
