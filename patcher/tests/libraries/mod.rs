//! Real code for planning: libraries and programs of this machine.

use std::path::PathBuf;

use iced_x86::{Decoder, DecoderOptions};
use patcher::Svma;
use patcher::function::Function;
use patcher::image::Image;

/// The folders of shared libraries in Debian, Fedora and other distributions.
const FOLDERS: [&str; 5] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
];

/// The contents of the library `name`; `None` if it is not installed.
pub fn library(name: &str) -> Option<Vec<u8>> {
    FOLDERS
        .iter()
        .find_map(|folder| std::fs::read(PathBuf::from(folder).join(name)).ok())
}

/// The contents of the C library, which every machine that can run the tests has.
#[allow(dead_code, reason = "each test binary uses its share")]
pub fn libc() -> Vec<u8> {
    library("libc.so.6").expect("a C library")
}

/// The program in `programs/shapes.cc`, compiled with the flag `optimization` to a shared library;
/// `None` without a compiler.
#[allow(dead_code, reason = "each test binary uses its share")]
pub fn compiled(optimization: &str) -> Option<Vec<u8>> {
    compiled_from("shapes.cc", optimization)
}

/// As [`compiled`], from another source.
#[allow(dead_code, reason = "each test binary uses its share")]
pub fn compiled_from(source: &str, optimization: &str) -> Option<Vec<u8>> {
    // Several test binaries may compile at the same time.
    let name = format!("{source}{optimization}-{}.so", std::process::id());
    let source = format!("{}/tests/programs/{source}", env!("CARGO_MANIFEST_DIR"));
    // The language is that of the source.
    let compiler = if source.ends_with(".c") { "cc" } else { "c++" };
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = std::process::Command::new(compiler)
        .args([
            optimization,
            "-g",
            "-fPIC",
            "-shared",
            "-fcf-protection",
            &source,
            "-o",
        ])
        .arg(&out)
        .status()
        .ok()?;
    assert!(status.success(), "compiling {source}");
    let data = std::fs::read(&out).ok();
    // Only the bytes are needed.
    let _ = std::fs::remove_file(out);
    data
}

/// Up to three points at instructions spread over the main part of `function`, each with a number.
#[allow(dead_code, reason = "each test binary uses its share")]
pub fn points(image: &Image<'_>, function: &Function) -> Vec<(Svma, u32)> {
    let range = &function.range;
    let code = image.bytes(range.start, range.end.0 - range.start.0);
    let decoder = Decoder::with_ip(
        64,
        code.unwrap_or_default(),
        range.start.0,
        DecoderOptions::NONE,
    );
    let all: Vec<u64> = decoder.into_iter().map(|insn| insn.ip()).collect();
    let spread = [1, 2, 3].map(|part| all.get(all.len() * part / 4));
    let chosen = spread.into_iter().flatten();
    chosen
        .zip(0x9abc_def0..)
        .map(|(&at, n)| (Svma(at), n))
        .collect()
}
