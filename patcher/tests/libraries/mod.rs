//! Real code to plan on: libraries and programs of this machine.

use std::path::PathBuf;

/// Where Debian, Fedora and others keep shared libraries.
const FOLDERS: [&str; 5] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"];

/// The bytes of the library `name`; `None` where it is not installed.
pub fn library(name: &str) -> Option<Vec<u8>> {
    FOLDERS.iter().find_map(|folder| std::fs::read(PathBuf::from(folder).join(name)).ok())
}

/// The bytes of the C library, which every machine that can run the tests has.
#[allow(dead_code, reason = "each test binary uses its share")]
pub fn libc() -> Vec<u8> {
    library("libc.so.6").expect("a C library")
}
