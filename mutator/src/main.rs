//! The `ipath` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: ipath_base::starved::Allocator = ipath_base::starved::Allocator;

fn main() -> ExitCode {
    ipath::commands::main(std::env::args_os())
}
