//! The `ipath` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: ipath::starved::Allocator = ipath::starved::Allocator;

fn main() -> ExitCode {
    ipath::commands::main(std::env::args_os())
}
