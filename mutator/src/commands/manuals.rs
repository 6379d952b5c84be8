//! `completions` and `man`: what a package installs beside the program.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::output::print_data;
use crate::cli::Cli;
use crate::config;
use crate::error::{Failure, io_text};

/// Prints the completions for a shell.
pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ipath", &mut text);
    print_data(&text)
}

/// Prints ipath(1), or writes it and a page for each command into a folder (man-pages(7)).
pub(super) fn man(folder: Option<&Path>) -> Result<(), Failure> {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = Man::new(Cli::command()).render(&mut page);
    page.extend_from_slice(config::MANUAL.as_bytes());
    match folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .and_then(|()| std::fs::write(folder.join("ipath.1"), page))
            .map_err(|e| Failure::new("write", folder.display(), io_text(&e))),
        None => print_data(&page),
    }
}
