//! The options that can have defaults: those that control measuring and output.
//!
//! Some options must be given each time: those that take a risk (`--allow-trap`,
//! `--allow-seccomp`), name something (`--func`, `--output`) or change the output that scripts read
//! (`--json`).

const WATCHING: &[&str] = &["interval", "no-tui"];
const MEASURING: &[&str] = &[
    "metric",
    "depth",
    "collapse-recursion",
    "per-thread",
    "no-correction",
    "clock",
    "no-system-calls",
    "max-paths",
];
const LIMITING: &[&str] = &["max-overhead"];
const SEARCHING: &[&str] = &["min-share", "max-functions"];

/// The commands that watch. Keys before all tables apply to them.
const WATCHERS: &[&str] = &["attach", "run", "top", "demo"];

/// The commands that have a table, with its keys. Keys are long names of options.
const COMMANDS: &[(&str, &[&[&str]])] = &[
    ("attach", &[WATCHING, MEASURING, LIMITING, SEARCHING]),
    ("run", &[WATCHING, MEASURING, LIMITING, SEARCHING]),
    ("top", &[WATCHING, LIMITING]),
    ("demo", &[WATCHING]),
    (
        "report",
        &[&[
            "limit",
            "sort",
            "metric",
            "min-share",
            "paths",
            "processes",
            "depth",
            "tree",
            "histogram",
            "quiet",
        ]],
    ),
    ("diff", &[&["limit", "metric"]]),
    ("export", &[&["metric", "sites"]]),
    ("suggest", &[&["duration", "limit"]]),
];

/// The names of all tables.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}

/// The keys of a command's table. `None` if the command has no table.
pub(super) fn of_command(name: &str) -> Option<impl Iterator<Item = &'static str>> {
    let (_, groups) = COMMANDS.iter().find(|(command, _)| *command == name)?;
    Some(groups.iter().flat_map(|group| group.iter().copied()))
}

/// The keys allowed before all tables.
pub(super) fn general() -> impl Iterator<Item = &'static str> {
    [WATCHING, MEASURING, LIMITING, SEARCHING]
        .into_iter()
        .flatten()
        .copied()
}

/// True if keys before all tables apply to the command.
pub(super) fn is_watcher(command: &str) -> bool {
    WATCHERS.contains(&command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_key_is_an_option_of_its_command() {
        let cli = Cli::command();
        let has = |command: &str, key: &str| {
            let command = cli.find_subcommand(command).expect(command);
            command.get_arguments().any(|a| a.get_long() == Some(key))
        };
        for table in tables() {
            for key in of_command(table).expect(table) {
                assert!(has(table, key), "{table} has no --{key}");
            }
        }
        for key in general() {
            assert!(WATCHERS.iter().any(|c| has(c, key)), "--{key}");
        }
        assert!(WATCHERS.iter().all(|c| tables().any(|table| table == *c)));
    }
}
