//! Default options from the user's file. They are inserted before the arguments, which are then
//! parsed again.

mod defaults;
mod file;
mod keys;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, options_in_front};
use crate::failure::Failure;

/// The part of ipath(1) about the file, in man(7) format.
pub(crate) const MANUAL: &str = r"
.SH FILES
.TP
\fI$XDG_CONFIG_HOME/ipath/config.toml\fR, else \fI~/.config/ipath/config.toml\fR
Defaults of options, in TOML, by the long names of the options. Those before all tables are for \fBattach\fR, \fBrun\fR,
\fBtop\fR and \fBdemo\fR, those in a table for the command of that name. Options on the command line win.
.SH ENVIRONMENT
.TP
\fBIPATH_CONFIG\fR
The file to read instead; if it is empty, no file is read.
";

/// The reason why a command line is rejected.
#[derive(Debug)]
pub enum Rejected {
    /// The arguments are invalid, or only request help.
    Arguments(clap::Error),
    /// The file of defaults is invalid.
    Defaults(Failure),
}

impl From<clap::Error> for Rejected {
    fn from(error: clap::Error) -> Self {
        Self::Arguments(error)
    }
}

/// Parses arguments, the first of which is the program, with defaults from the user's file.
///
/// The file is read only for commands that can have defaults, and only after the arguments have
/// proven valid. So help and errors do not depend on it.
///
/// # Errors
/// The arguments or the file are invalid.
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
