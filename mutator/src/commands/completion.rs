//! Shell completion of a word on the command line: processes, metrics, functions and files.
//!
//! `ipath completions SHELL` prints a script of `clap_complete` that starts `ipath` with the words
//! so far and `IPATH_COMPLETE` in its environment. The answer is the candidates, a line each.

mod bash;
mod candidates;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use clap_complete::{CompleteEnv, Shell};

use super::output::print_data;
use crate::cli::Cli;
use crate::failure::Failure;
use bash::Bash;
use candidates::{functions, metrics, processes, unquoted};
use ipath_base::error::io_text;

const PROGRAM: &str = "ipath";
/// The environment variable with the name of the shell that requests candidates.
const VARIABLE: &str = "IPATH_COMPLETE";
const SHELLS: [&dyn EnvCompleter; 5] = [&Bash, &Elvish, &Fish, &Powershell, &Zsh];

/// Prints the candidates if a shell requests them, and returns the exit status. Returns `None` if
/// no shell requests any.
pub(super) fn answer(args: &[OsString]) -> Option<ExitCode> {
    let shell = std::env::var_os(VARIABLE)?;
    let mut args = args.to_vec();
    for word in args.iter_mut().skip_while(|word| *word != "--").skip(1) {
        if let Some(text) = word.to_str() {
            *word = unquoted(text).into();
        }
    }
    // PowerShell is offered only names that need no quotes.
    let words = candidates::Words::of(&args, shell != Powershell.name());
    let asked = CompleteEnv::with_factory(|| command(&words))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .shells(Shells(&SHELLS));
    let here = std::env::current_dir().ok();
    // The user is typing, so errors are not printed.
    match asked.try_complete(args, here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// Prints the completion script for a shell.
pub(super) fn script(shell: Shell) -> Result<(), Failure> {
    let failure = |e: &io::Error| Failure::new("completions", shell, io_text(e));
    let name = shell.to_string();
    let known = Shells(&SHELLS);
    let unknown = || io::Error::from(io::ErrorKind::Unsupported);
    let completer = known.completer(&name).ok_or_else(|| failure(&unknown()))?;
    let mut text = Vec::new();
    completer
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut text)
        .map_err(|e| failure(&e))?;
    if shell == Shell::Zsh {
        // Loaded from a folder of functions, the script itself is the first completion.
        text.extend_from_slice(
            b"[[ ${funcstack[1]} == _ipath ]] && _clap_dynamic_completer_ipath \"$@\"\n",
        );
    }
    print_data(&text)
}

/// The command line, with the candidates of each argument.
fn command(words: &candidates::Words) -> Command {
    Cli::command().mut_subcommands(|sub| {
        sub.mut_args(|arg| {
            let words = words.clone();
            let completer = match arg.get_id().as_str() {
                "pid" | "by_option" => ArgValueCompleter::new(processes),
                "target" => ArgValueCompleter::new(|current: &std::ffi::OsStr| {
                    let mut all = processes(current);
                    all.extend(PathCompleter::any().complete(current));
                    all
                }),
                "metric" => ArgValueCompleter::new(move |current: &_| metrics(&words, current)),
                "func" | "patterns" | "function" | "under" => {
                    ArgValueCompleter::new(move |current: &_| functions(&words, current))
                }
                _ => return arg,
            };
            arg.add(completer)
        })
    })
}
