//! How the command is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // gdb and the standard library read lines that are compressed (ELF gABI, SHF_COMPRESSED).
    println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}
