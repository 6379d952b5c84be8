//! The text of the file, and its combination with the arguments.
//!
//! A default is an option as the user could have typed it. So clap checks it and words the errors.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use crate::cli::Cli;
use crate::failure::Failure;
use ipath_base::hint::{Cause, Hint, hint};

/// An error in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The line, counted from 1.
    line: usize,
    cause: String,
    hint: Option<Hint>,
}

impl Problem {
    /// Converts the error to a failure that names the file and the line.
    pub(super) fn failure(self, file: &Path) -> Failure {
        let subject = format!("{}:{}", file.display(), self.line);
        Failure::new("read", subject, self.cause).maybe_hint(self.hint)
    }
}

/// An option set in the file.
struct Default {
    key: String,
    /// The option as an argument. `None` for a flag that is off.
    argument: Option<OsString>,
    line: usize,
}

/// The arguments with the defaults inserted, except those that they set themselves or conflict
/// with. `given` is the result of parsing the arguments alone.
pub(super) fn merged(
    args: &[OsString],
    given: &ArgMatches,
    text: &str,
) -> Result<Vec<OsString>, Problem> {
    let Some((name, given)) = given.subcommand() else {
        return Ok(args.to_vec());
    };
    let command = Cli::command();
    let of_command = command.find_subcommand(name);
    let is_given = |key: &str| {
        let arg = of_command.and_then(|command| option(command, key));
        let id = arg.map(|arg| arg.get_id().as_str());
        id.is_some_and(|id| given.value_source(id) == Some(ValueSource::CommandLine))
    };
    // The program and the name of the command come first.
    let (first, own) = args.split_at(args.len().min(2));
    let with = |defaults: &[OsString]| [first, defaults, own].concat();
    let refusal = |defaults: &[OsString]| {
        let parsed = Cli::command().try_get_matches_from(with(defaults));
        parsed.err()
    };
    let mut taken: Vec<OsString> = Vec::new();
    for default in defaults(&command, name, text)? {
        let Some(argument) = default.argument else {
            continue;
        };
        if is_given(&default.key) {
            continue;
        }
        taken.push(argument);
        let Some(error) = refusal(&taken) else {
            continue;
        };
        let argument = taken.pop().unwrap_or_default();
        let alone = refusal(&[argument]).map(|e| e.kind());
        // The typed arguments exclude it, or lack an option that it requires.
        let excluded = [
            ErrorKind::ArgumentConflict,
            ErrorKind::MissingRequiredArgument,
        ];
        if !alone.is_some_and(|kind| excluded.contains(&kind)) {
            return Err(Problem {
                line: default.line,
                cause: format!("{}: {}", default.key, words(&error)),
                hint: None,
            });
        }
    }
    Ok(with(&taken))
}

/// The file's defaults for a command, in the order of their lines. The whole file is checked.
fn defaults(cli: &Command, command: &str, text: &str) -> Result<Vec<Default>, Problem> {
    let line = |span: Range<usize>| 1 + text[..span.start].matches('\n').count();
    let document = DeTable::parse(text).map_err(|e| Problem {
        line: line(e.span().unwrap_or_default()),
        cause: e.message().to_owned(),
        hint: None,
    })?;
    let (mut general, mut own) = (Vec::new(), Vec::new());
    for (key, value) in document.get_ref() {
        let at = line(key.span());
        let table = keys::tables().find(|table| *table == key.get_ref().as_ref());
        let Some(table) = table else {
            let default = general_default(cli, key.get_ref(), value.get_ref(), at)?;
            general.extend(keys::is_watcher(command).then_some(default));
            continue;
        };
        let Some(entries) = value.get_ref().as_table() else {
            let cause = format!("{table}: a table is expected: [{table}] and its keys below");
            let hint = None;
            return Err(Problem {
                line: at,
                cause,
                hint,
            });
        };
        for (key, value) in entries {
            let default = default_of(cli, table, key, value, line(key.span()))?;
            own.extend((table == command).then_some(default));
        }
    }
    let has = |key: &str| {
        let mut keys = keys::of_command(command).into_iter().flatten();
        keys.any(|of_command| of_command == key)
    };
    general.retain(|g| has(&g.key) && own.iter().all(|o| o.key != g.key));
    general.append(&mut own);
    general.sort_by_key(|default| default.line);
    Ok(general)
}

/// A default before all tables.
fn general_default(
    cli: &Command,
    key: &str,
    value: &DeValue<'_>,
    line: usize,
) -> Result<Default, Problem> {
    let command = keys::tables().find(|table| {
        let mut keys = keys::of_command(table).into_iter().flatten();
        keys::is_watcher(table) && keys.any(|of_table| of_table == key)
    });
    if let Some(command) = command {
        return argument(cli, command, key, value, line);
    }
    let cause = match value {
        DeValue::Table(_) => format!("there is no table [{key}]"),
        _ => format!("there is no key '{key}' before the tables"),
    };
    let (general, tables) = (list(keys::general()), list(keys::tables()));
    let hint = hint!("keys: {}; tables: {}", Cause(&general), Cause(&tables));
    Err(Problem {
        line,
        cause,
        hint: Some(hint),
    })
}

/// A default from a command's table.
fn default_of(
    cli: &Command,
    table: &str,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    line: usize,
) -> Result<Default, Problem> {
    let key = key.get_ref().as_ref();
    let mut known = keys::of_command(table).into_iter().flatten();
    if known.any(|known| known == key) {
        return argument(cli, table, key, value.get_ref(), line);
    }
    let known = list(keys::of_command(table).into_iter().flatten());
    Err(Problem {
        line,
        cause: format!("there is no key '{key}' in [{table}]"),
        hint: Some(hint!("keys: {}", Cause(&known))),
    })
}

/// The default as an argument of a command.
fn argument(
    cli: &Command,
    command: &str,
    key: &str,
    value: &DeValue<'_>,
    line: usize,
) -> Result<Default, Problem> {
    let arg = cli.find_subcommand(command).and_then(|c| option(c, key));
    let takes_values = arg.is_some_and(|arg| arg.get_action().takes_values());
    let delimiter = arg.and_then(Arg::get_value_delimiter);
    let typed = match (takes_values, value) {
        (false, DeValue::Boolean(is_on)) => Ok(is_on.then(|| format!("--{key}"))),
        (true, value) => scalar(value)
            .or_else(|| joined(value, delimiter?))
            .map(|value| Some(format!("--{key}={value}")))
            .ok_or(match delimiter {
                Some(_) => "a string, or a list of strings, is expected",
                None => "a string or a number is expected",
            }),
        (false, _) => Err("true or false is expected"),
    };
    match typed {
        Ok(typed) => Ok(Default {
            key: key.to_owned(),
            argument: typed.map(OsString::from),
            line,
        }),
        Err(expected) => Err(Problem {
            line,
            cause: format!("{key}: {expected}, and this is a {}", value.type_str()),
            hint: None,
        }),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn joined(value: &DeValue<'_>, delimiter: char) -> Option<String> {
    let elements = value.as_array()?.iter();
    let texts: Option<Vec<&str>> = elements.map(|e| e.get_ref().as_str()).collect();
    Some(texts?.join(&delimiter.to_string()))
}

/// The option of a command with this long name. `None` if there is none.
fn option<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments();
    all.find(|arg| arg.get_long() == Some(long))
}

fn list(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The text of a clap error on one line, without `error:` and usage hints.
fn words(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let said = text.lines().take_while(|line| !line.is_empty());
    said.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
