//! Compiles the runtime into the image that the command carries and writes into targets.
//!
//! `rustc` is called directly. The runtime depends only on `abi` and `unwind`, and needs its own
//! flags (freestanding, position-independent, no vectorizing). A nested cargo would need a second
//! target directory and lock.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let runtime = root.join("rtlib");
    println!("cargo::rerun-if-changed={}", runtime.join("src").display());
    println!(
        "cargo::rerun-if-changed={}",
        runtime.join("abi/src").display()
    );
    println!(
        "cargo::rerun-if-changed={}",
        runtime.join("unwind/src").display()
    );
    println!("cargo::rerun-if-changed=build.rs");

    let abi = out.join("libabi.rlib");
    run(rustc(&runtime.join("abi/src/lib.rs"), "abi", "rlib", &abi)?)?;

    let unwind = out.join("libunwind.rlib");
    let mut command = rustc(
        &runtime.join("unwind/src/lib.rs"),
        "unwind",
        "rlib",
        &unwind,
    )?;
    command.arg("--extern").arg(with_value("abi=", &abi));
    run(command)?;

    let image = out.join("runtime.elf");
    let mut command = rustc(&runtime.join("src/lib.rs"), "rtlib", "cdylib", &image)?;
    if env::var_os("CARGO_FEATURE_FAULTS").is_some() {
        // Moves functions to other addresses than in the other build. So tests show that no command
        // relies on their addresses.
        command.args(["-C", "llvm-args=-align-all-functions=6"]);
    }
    command
        .arg("--extern")
        .arg(with_value("abi=", &abi))
        .arg("--extern")
        .arg(with_value("unwind=", &unwind))
        .arg("-L")
        .arg(with_value("dependency=", &out))
        .args(["--cfg", "ipath_image"]);
    let link = [
        "-nostdlib",
        "-nostartfiles",
        // The image must not depend on a loader: there is none.
        "-Wl,-Bsymbolic",
        "-Wl,--no-undefined",
        // One executable part, constants included, and one writable part.
        "-Wl,--no-rosegment",
        "-Wl,-z,norelro",
        "-Wl,--build-id=none",
    ];
    for argument in link {
        command.args(["-C", &format!("link-arg={argument}")]);
    }
    run(command)?;
    println!("cargo::rustc-env=IPATH_RUNTIME_IMAGE={}", image.display());
    Ok(())
}

fn rustc(source: &Path, name: &str, kind: &str, output: &Path) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(env::var_os("RUSTC").ok_or("cargo sets RUSTC")?);
    command.arg(source).args([
        "--crate-name",
        name,
        "--crate-type",
        kind,
        "--edition",
        "2024",
    ]);
    command.arg("-o").arg(output);
    // Keeps the location of the source on this machine out of the image.
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let mut remap = root.into_os_string();
    remap.push("=/ipath");
    command.arg("--remap-path-prefix").arg(remap);
    let codegen = [
        "opt-level=3",
        "panic=abort",
        "relocation-model=pic",
        "code-model=small",
        "codegen-units=1",
        "overflow-checks=off",
        "debug-assertions=off",
        "force-unwind-tables=no",
        // Keeps vector registers out of code that has no use for them.
        "no-vectorize-loops",
        "no-vectorize-slp",
        // Makes every branch visible in the code. A test follows the branches to see which code
        // runs where.
        "llvm-args=-min-jump-table-entries=1000",
        "debuginfo=0",
        "strip=symbols",
    ];
    for option in codegen {
        command.args(["-C", option]);
    }
    Ok(command)
}

fn with_value(prefix: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(prefix);
    argument.push(path);
    argument
}

fn run(mut command: Command) -> Result<(), Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
