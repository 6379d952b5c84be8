//! The command as tests can make it fail: see `faults.rs` of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipath::commands::main(std::env::args_os())
}
