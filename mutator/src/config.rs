//! Defaults of options, from a file of the user's: they are put in front of the arguments before those are parsed for good.

mod defaults;
mod file;
mod keys;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, options_in_front};
use ipath_base::error::Failure;

/// What ipath(1) says of the file, in the form of man(7).
pub(crate) const MANUAL: &str = r"
.SH FILES
.TP
\fI$XDG_CONFIG_HOME/ipath/config.toml\fR, else \fI~/.config/ipath/config.toml\fR
Defaults of options, in TOML: before all tables those of \fBattach\fR, \fBrun\fR, \fBtop\fR and \fBdemo\fR, in a table those
of the command that it is named after, by the long names of the options. What is typed wins.
.SH ENVIRONMENT
.TP
\fBIPATH_CONFIG\fR
The file to read instead; where it is empty, none is.
";

/// Why a command line is not obeyed.
#[derive(Debug)]
pub enum Rejected {
    /// The arguments are not of any use, or ask for help alone.
    Arguments(clap::Error),
    /// The file of defaults is not.
    Defaults(Failure),
}

impl From<clap::Error> for Rejected {
    fn from(error: clap::Error) -> Self {
        Self::Arguments(error)
    }
}

/// What arguments say (the first is the program), and where they do not, the user's file of defaults. It is read for commands
/// alone that can have defaults, and after the arguments have been found right: help and errors do not depend on it.
///
/// # Errors
/// The arguments or the file are wrong.
pub fn command_line(args: &[OsString]) -> Result<Cli, Rejected> {
    let args = options_in_front(args.to_vec());
    let given = Cli::command().try_get_matches_from(&args)?;
    let name = given.subcommand_name().unwrap_or_default();
    let place = match keys::of_command(name) {
        Some(_) => file::place(|name| std::env::var_os(name)),
        None => None,
    };
    let text = match &place {
        Some(place) => place.read().map_err(Rejected::Defaults)?,
        None => None,
    };
    let args = match (&place, text) {
        (Some(place), Some(text)) => defaults::merged(&args, &given, &text)
            .map_err(|problem| Rejected::Defaults(problem.failure(&place.path)))?,
        _ => args,
    };
    Ok(Cli::try_parse_from(args)?.checked()?)
}
