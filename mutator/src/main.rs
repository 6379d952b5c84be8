//! The `ipath` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipath::commands::main(std::env::args_os())
}
