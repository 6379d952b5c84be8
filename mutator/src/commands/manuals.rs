//! `man`: the manual pages.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::output::print_data;
use crate::cli::Cli;
use crate::config;
use crate::failure::Failure;
use ipath_base::error::io_text;

/// The page of a command. Its line in NAME is the first clause of the description (man-pages(7)).
fn paged(command: Command) -> Command {
    let Some(about) = command.get_about().map(ToString::to_string) else {
        return command;
    };
    let ends = [". ", ": "].into_iter().filter_map(|end| about.find(end));
    let end = ends.min().unwrap_or(about.len());
    let line = about[..end].trim_end_matches('.').to_owned();
    command.about(line).long_about(about)
}

/// Prints ipath(1), or writes it and a page for each command into a folder (man-pages(7)).
pub(super) fn man(folder: Option<&Path>) -> Result<(), Failure> {
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let command = || paged(Cli::command()).mut_subcommands(paged);
    let _ = Man::new(command()).render(&mut page);
    page.extend_from_slice(config::MANUAL.as_bytes());
    match folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command(), folder))
            .and_then(|()| std::fs::write(folder.join("ipath.1"), page))
            .map_err(|e| Failure::new("write", folder.display(), io_text(&e))),
        None => print_data(&page),
    }
}
