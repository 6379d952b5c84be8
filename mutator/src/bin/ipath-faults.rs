//! The command as tests can make it fail: see `faults.rs` of the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ipath::commands::run(ipath::cli::Cli::parse())
}
