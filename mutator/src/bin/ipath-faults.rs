//! The command with fault injection for tests: see `fault_injection.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipath::commands::main(std::env::args_os())
}
