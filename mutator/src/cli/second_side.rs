//! Options after the files of the second side: `ipath diff OLD... -- NEW... --metric cpu`.

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// Moves the options of `diff` before `--`, because clap takes everything after `--` for files. A
/// second `--` ends the options, for files whose names begin with `-`. Other command lines are
/// unchanged.
pub fn options_in_front(args: Vec<OsString>) -> Vec<OsString> {
    const NAME: &str = "diff";
    let is_separator = |arg: &OsString| arg == "--";
    let (cli, separator) = (Cli::command(), args.iter().position(is_separator));
    let (Some(at), Some(command)) = (separator, cli.find_subcommand(NAME)) else {
        return args;
    };
    if args.get(1).is_none_or(|name| name != NAME) {
        return args;
    }
    let (mut first, mut files) = (args[..at].to_vec(), vec![args[at].clone()]);
    let mut rest = args[at + 1..].iter().cloned();
    while let Some(arg) = rest.next() {
        if is_separator(&arg) {
            break;
        }
        match arg.to_string_lossy() {
            text if text.len() > 1 && text.starts_with('-') => {
                let takes_next = takes_next(command, &text);
                first.push(arg);
                if takes_next {
                    first.extend(rest.next());
                }
            }
            _ => files.push(arg),
        }
    }
    files.extend(rest);
    first.append(&mut files);
    first
}

/// True if `option` is a long option of the command, and the argument after it is its value.
fn takes_next(command: &Command, option: &str) -> bool {
    let is_it = |arg: &&Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        long.as_deref() == Some(option)
    };
    let arg = command.get_arguments().find(is_it);
    arg.is_some_and(|arg| arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn becomes(typed: &str, expected: &str) {
        let args = typed.split(' ').map(OsString::from).collect();
        let made = options_in_front(args);
        let made: Vec<_> = made.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(made.join(" "), expected);
    }

    #[test]
    fn options_of_the_second_side_are_options() {
        becomes(
            "ipath diff a b -- c d --metric cpu --json e",
            "ipath diff a b --metric cpu --json -- c d e",
        );
        becomes(
            "ipath diff a -- b --limit=0 -q",
            "ipath diff a --limit=0 -q -- b",
        );
        becomes(
            "ipath diff a -- b -- -c --json",
            "ipath diff a -- b -c --json",
        );
        becomes("ipath diff a -- b --metric", "ipath diff a --metric -- b");
        for line in [
            "ipath run -- diff -- b --json",
            "ipath diff a b --json",
            "ipath",
        ] {
            becomes(line, line);
        }
    }
}
