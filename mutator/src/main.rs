//! The `ipath` command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ipath::commands::run(ipath::cli::Cli::parse())
}
