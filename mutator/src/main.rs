//! The `ipath` command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = ipath::cli::Cli::parse().checked();
    ipath::commands::run(cli.unwrap_or_else(|error| error.exit()))
}
