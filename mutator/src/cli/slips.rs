//! Hints for common slips on the command line, such as commands and options of other tools.

mod known;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use ipath_base::hint::{CommandLine, hint};
use known::{COMMANDS, EXAMPLES, FREQUENCY, FUNCTIONS, MEASURE, MEASURING, OPTIONS, VALUES};

/// Returns a hint for a command line that clap has rejected, and removes clap's own suggestions
/// from `error`. `None` if the mistake is not a known one; `error` is then unchanged. `args` begin
/// with the name of the program.
pub fn slip(error: &mut clap::Error, args: &[OsString]) -> Option<String> {
    let args: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let hint = hint(error, &args)?;
    for kind in [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
        ContextKind::TrailingArg,
        ContextKind::Suggested,
    ] {
        error.remove(kind);
    }
    Some(hint)
}

fn hint(error: &clap::Error, args: &[&str]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = args.iter().copied().find(|arg| !arg.starts_with('-'));
    let command = command.unwrap_or_default();
    if let Some(name) = text(ContextKind::InvalidSubcommand) {
        return of_command(name);
    }
    let argument = text(ContextKind::InvalidArg);
    let name = argument.map(|text| text.split([' ', '=']).next().unwrap_or_default());
    match (error.kind(), name, text(ContextKind::InvalidValue)) {
        (ErrorKind::MissingRequiredArgument, ..) => {
            let example = EXAMPLES.iter().find(|(of, _)| *of == command);
            let example = example.map(|(_, example)| *example);
            Some(
                example
                    .unwrap_or("ipath status lists the processes that have a session")
                    .to_owned(),
            )
        }
        (_, Some("--func"), Some("")) => Some(format!("{FUNCTIONS}; --follow measures children")),
        (_, Some(name), Some(value)) => of_value(name, value),
        (ErrorKind::UnknownArgument, Some(name), _) => {
            if name.starts_with('-') {
                of_option(name, command, args)
            } else {
                of_argument(argument?, command)
            }
        }
        _ => None,
    }
}

fn of_command(name: &str) -> Option<String> {
    let known = COMMANDS.iter().find(|(names, _)| names.contains(&name));
    if let Ok(pid) = name.parse::<i32>() {
        let command = CommandLine::ipath("attach").pid(pid).with("-f FUNC");
        return Some(
            hint!("a process is measured by: {}", command)
                .as_str()
                .to_owned(),
        );
    }
    let spec = ["uprobe:", "uretprobe:", "u:", "ur:", "usdt:"];
    match known {
        Some((_, hint)) => Some((*hint).to_owned()),
        None if spec.iter().any(|kind| name.starts_with(kind)) => Some(MEASURE.to_owned()),
        None if name.ends_with(".json") => {
            Some("a profile is printed by: ipath report FILE".to_owned())
        }
        None if name.contains('/') => {
            Some("a program is started by: ipath run -f FUNC -- PROGRAM".to_owned())
        }
        None => None,
    }
}

fn of_option(name: &str, command: &str, args: &[&str]) -> Option<String> {
    if args.first().is_none_or(|first| first.starts_with('-')) {
        return Some(format!("options follow a command; {MEASURE}"));
    }
    let place = args.iter().position(|arg| *arg == name);
    let value = place
        .and_then(|place| args.get(place + 1))
        .copied()
        .unwrap_or_default();
    match (name, command) {
        ("-F", _) if MEASURING.contains(&command) && is_number(value) => {
            return Some(FREQUENCY.to_owned());
        }
        ("-e" | "--event", _) if value.contains("trace=") || value.contains("probe:") => {
            return Some(FUNCTIONS.to_owned());
        }
        ("--port", "serve-metrics") => {
            return Some("the address is given by --listen 127.0.0.1:9464".to_owned());
        }
        _ => {}
    }
    let is_known = |(commands, options, _): &&(&[&str], &[&str], &str)| {
        commands.contains(&command) && options.contains(&name)
    };
    OPTIONS
        .iter()
        .find(is_known)
        .map(|(_, _, hint)| (*hint).to_owned())
}

/// The hint for a surplus argument of a command. `None` if there is none.
fn of_argument(argument: &str, command: &str) -> Option<String> {
    let hint = match command {
        "run" => "the program comes after -- and all options: ipath run -f FUNC -- PROGRAM",
        "suggest" if is_number(argument) => "the duration is given by --duration 5s",
        "attach" if is_number(argument) => {
            "only one process can be given; --children adds those that it has started"
        }
        "attach" | "add" | "remove" => {
            "functions are given by -f, as in -f FUNC; a new program is started by: ipath run"
        }
        "export" if argument.contains('.') => {
            "the file to write is given by -o FILE, the format by --to flamegraph"
        }
        "export" => "the format is given by --to flamegraph, the file to write by -o FILE",
        "snapshot" | "detach" | "merge" => "the file to write is given by -o FILE",
        "push" => "the server is given by --to URL",
        "report" => {
            "one profile is printed; several are added up by: ipath merge FILE... -o all.json"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_value(name: &str, value: &str) -> Option<String> {
    if is_time(name) {
        let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let unit = match value[digits.len()..].trim() {
            "" | "sec" | "secs" | "second" | "seconds" | "S" => "s",
            "min" | "mins" | "minute" | "minutes" | "M" => "m",
            "hour" | "hours" | "hr" | "H" => "h",
            "msec" | "msecs" | "millis" | "MS" => "ms",
            _ => return None,
        };
        return is_number(digits).then(|| format!("a time has a unit: {name} {digits}{unit}"));
    }
    let mut known = VALUES.iter().filter(|(option, ..)| *option == name);
    let value = value.rsplit_once('.').map_or(value, |(_, end)| end);
    let known = known.find(|(_, values, _)| values.contains(&value));
    known.map(|(_, _, hint)| (*hint).to_owned())
}

fn is_time(option: &str) -> bool {
    ["--duration", "--interval", "--every", "--give-up"].contains(&option)
}

fn is_number(value: &str) -> bool {
    value.parse::<f64>().is_ok_and(|number| number > 0.0)
}
