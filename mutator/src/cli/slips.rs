//! Hints for common slips on the command line.

use clap::error::{ContextKind, ContextValue};

/// Options of other tools, each with a hint at the option of ipath.
const OPTIONS: [(&str, &str); 6] = [
    ("-F", FUNCTIONS),
    ("--function", FUNCTIONS),
    ("--functions", FUNCTIONS),
    ("-d", "the time that it lasts is given by --duration 5s"),
    ("--time", "the time that it lasts is given by --duration 5s"),
    ("--output-file", "the profile's file is given by -o FILE"),
];
const FUNCTIONS: &str = "functions are given by -f NAME, which may be repeated";

/// A hint for a command line that clap has rejected.
pub fn slip(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    let name = argument.split([' ', '=']).next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    match (name, value) {
        (_, Some(value)) if is_number(value) && is_time(name) => {
            Some(format!("a time has a unit: {name} {value}s"))
        }
        ("--to", Some("svg")) => Some("an SVG is made by --to flamegraph".to_owned()),
        _ => {
            let option = OPTIONS.iter().find(|(option, _)| *option == name);
            option.map(|(_, hint)| (*hint).to_owned())
        }
    }
}

fn is_time(option: &str) -> bool {
    ["--duration", "--interval", "--every", "--give-up"].contains(&option)
}

fn is_number(value: &str) -> bool {
    value.parse::<f64>().is_ok_and(|number| number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn common_slips_have_a_hint() {
        for (line, hint) in [
            (
                "ipath attach 1 -f x --duration 5",
                Some("a time has a unit: --duration 5s"),
            ),
            (
                "ipath attach 1 -f x --interval 0.5",
                Some("a time has a unit: --interval 0.5s"),
            ),
            ("ipath attach 1 -F x", Some(FUNCTIONS)),
            ("ipath attach 1 --functions x", Some(FUNCTIONS)),
            ("ipath run --function=x -- true", Some(FUNCTIONS)),
            (
                "ipath export p.json --to svg -o x",
                Some("an SVG is made by --to flamegraph"),
            ),
            ("ipath attach 1 -f x --duration 0", None),
            ("ipath attach 1 --nothing", None),
            ("ipath", None),
        ] {
            let words = line.split_whitespace();
            let error = Cli::command().try_get_matches_from(words).expect_err(line);
            assert_eq!(slip(&error).as_deref(), hint, "{line}");
        }
    }
}
