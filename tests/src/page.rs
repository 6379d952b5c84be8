//! Pages of the documentation: their blocks of commands, and the rules for them.
//!
//! A reader types the blocks marked `sh` of a page in order into one shell. If a block has a
//! requirement, its first line names it: `# needs root`, `# needs MPI`. A process is named by a
//! variable that an earlier line sets. A loop is a `for` over a list, which ends.

use crate::place::workspace;
use std::fs;

/// Commands that a reader types.
#[derive(Debug)]
pub struct Block {
    /// The line of the page, from 1, where the block begins.
    pub line: usize,
    /// The requirement that its first line names (`root`); `None` if it names none.
    pub needs: Option<String>,
    /// The commands.
    pub commands: String,
}

/// The start of a line that names the requirement of a block.
const NEEDS: &str = "# needs ";

/// Programs whose command lines appear only in blocks marked `sh`.
const PROGRAMS: [&str; 8] = [
    "ipath",
    "cargo",
    "make",
    "mpirun",
    "tests/",
    "packaging/",
    "sudo",
    "apt-get",
];

/// Words that readers would have to replace.
const PLACEHOLDERS: [&str; 8] = [
    "PID", "FILE", "FUNC", "PROGRAM", "FOLDER", "OUT", "URL", "4242",
];

/// Variables that every shell has.
const OF_THE_SHELL: [&str; 3] = ["PATH", "PWD", "HOME"];

/// The blocks of commands on a page of the repository.
///
/// # Panics
/// If a block is not marked or breaks a rule of this module.
pub fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(workspace().join(page)).expect("a page");
    let blocks = parsed(&text);
    let faults = faults(&text, &blocks);
    assert!(faults.is_empty(), "{page}: {faults:#?}");
    blocks
}

/// The blocks marked `sh` of a page's text, in their order.
fn parsed(text: &str) -> Vec<Block> {
    let mut lines = text.lines().enumerate();
    let mut blocks = Vec::new();
    while let Some((line, _)) = lines.find(|(_, line)| *line == "```sh") {
        let own = lines.by_ref().map(|(_, line)| line);
        let own: Vec<&str> = own.take_while(|line| *line != "```").collect();
        blocks.push(Block {
            line: line + 1,
            needs: own[0].strip_prefix(NEEDS).map(str::to_owned),
            commands: own.iter().flat_map(|line| [*line, "\n"]).collect(),
        });
    }
    blocks
}

/// The violations of the rules on a page.
fn faults(text: &str, blocks: &[Block]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let is_command = PROGRAMS.iter().any(|program| {
            let rest = line.strip_prefix(program);
            rest.is_some_and(|rest| program.ends_with('/') || rest.starts_with(' '))
        });
        match (line.strip_prefix("```"), open) {
            (Some(language), None) => open = Some(language),
            (Some(_), Some(_)) => open = None,
            (None, Some(language)) if language != "sh" && is_command => {
                faults.push(format!(
                    "line {}: `{line}` is not in a block `sh`",
                    number + 1
                ));
            }
            _ => {}
        }
    }
    let mut known: Vec<&str> = OF_THE_SHELL.to_vec();
    for block in blocks {
        let mut fault = |what: &str| faults.push(format!("block at line {}: {what}", block.line));
        for line in block.commands.lines() {
            for word in words(line) {
                match word {
                    "while" | "until" => fault("a loop without a bound"),
                    word if PLACEHOLDERS.contains(&word) => fault(&format!("`{word}` for a value")),
                    _ => {}
                }
            }
            if line.contains("((") && words(line).any(|word| word == "for") {
                fault("a loop without a bound");
            }
            known.extend(set_in(line));
            for variable in line.split('$').skip(1) {
                let name = words(variable).next().unwrap_or_default();
                let is_name = variable.starts_with(name) && !name.is_empty();
                // A launcher sets these in the processes that it starts.
                let is_given = name.starts_with("OMPI_");
                if is_name && !is_given && !known.contains(&name) {
                    fault(&format!("`${name}` is not set before"));
                }
            }
        }
    }
    faults
}

/// The words of a line: letters, digits and `_`.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|part| !part.is_empty())
}

/// The variables that a line sets: `NAME=...`, `for NAME in`.
fn set_in(line: &str) -> Vec<&str> {
    let words: Vec<&str> = line.split([' ', ';', '&']).collect();
    let assigned = words.iter().filter_map(|word| word.split_once('='));
    let assigned = assigned.map(|(name, _)| name);
    let looped = words.windows(2).filter(|pair| pair[0] == "for");
    assigned.chain(looped.map(|pair| pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        faults(text, &parsed(text))
    }

    #[test]
    fn a_block_says_what_it_needs() {
        let blocks = parsed("a\n```sh\n# needs root\nls\n```\n```\nout\n```\n```sh\npwd\n```\n");
        let needs: Vec<_> = blocks.iter().map(|block| block.needs.as_deref()).collect();
        assert_eq!(needs, [Some("root"), None]);
        assert_eq!(blocks[0].commands, "# needs root\nls\n");
        assert_eq!((blocks[0].line, blocks[1].line), (2, 9));
    }

    #[test]
    fn broken_rules_are_found() {
        for (text, part) in [
            ("```\nipath status\n```", "not in a block `sh`"),
            ("```text\ntests/run\n```", "not in a block `sh`"),
            (
                "```sh\nuntil pgrep x; do sleep 1; done\n```",
                "without a bound",
            ),
            (
                "```sh\npython3 -c 'while True: pass' &\n```",
                "without a bound",
            ),
            ("```sh\nfor ((;;)); do ls; done\n```", "without a bound"),
            ("```sh\nipath attach PID\n```", "`PID` for a value"),
            ("```sh\nipath attach $pid\npid=$!\n```", "`$pid` is not set"),
        ] {
            let found = found(text);
            assert!(
                found.len() == 1 && found[0].contains(part),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn kept_rules_are_no_faults() {
        for text in [
            "```\nCostliest paths\n```",
            "```sh\n./a & pid=$!; sleep 1\nipath attach $pid -f b\n```",
            "```sh\nfor try in $(seq 100); do echo $try; done\n```",
            "```sh\nPATH=$PWD/target:$PATH\n```",
        ] {
            assert_eq!(found(text), [] as [&str; 0], "{text}");
        }
    }
}
