use super::*;
use crate::cli::Cli;
use clap::{CommandFactory, Parser};

/// The hint for a command line, and clap's message.
fn told(line: &str) -> (Option<String>, String) {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let parsed = Cli::try_parse_from(&words).and_then(Cli::checked);
    let mut error = parsed.map(|_| ()).expect_err(line);
    assert_eq!(error.exit_code(), 2, "{line}");
    (slip(&mut error, &words), error.to_string())
}

#[test]
fn commands_of_hints_are_commands() {
    let all = COMMANDS.iter().map(|(_, hint)| *hint);
    let all = all.chain(OPTIONS.iter().map(|(.., hint)| *hint));
    let all = all.chain(EXAMPLES.iter().map(|(_, hint)| *hint));
    let known = Cli::command();
    for hint in all.chain(VALUES.iter().map(|(.., hint)| *hint)) {
        for (at, _) in hint
            .match_indices("ipath ")
            .filter(|(at, _)| hint[..*at].ends_with(": "))
        {
            let name = hint[at..].split_whitespace().nth(1).unwrap_or_default();
            let name = name.trim_end_matches([';', ',']);
            assert!(
                name.starts_with('-') || known.find_subcommand(name).is_some(),
                "{hint}"
            );
        }
    }
}

/// Command lines in the style of perf, gdb, uftrace, bpftrace and strace, each with a part of its
/// hint.
#[test]
fn slips_lead_to_the_right_command() {
    for (line, part) in [
        ("ipath attach 1 -f x --duration 5", "--duration 5s"),
        ("ipath attach 1 -f x --interval 0.5", "--interval 0.5s"),
        ("ipath attach 1 -f x --duration 5sec", "--duration 5s"),
        ("ipath attach 1 -f x --duration=2min", "--duration 2m"),
        ("ipath attach -p 1 -d 5", "--duration 5s"),
        ("ipath attach 1 --sleep 5", "--duration 5s"),
        ("ipath suggest 1 5", "--duration 5s"),
        ("ipath attach 1 -F x", "-f NAME"),
        ("ipath attach 1 -F 99", "ipath suggest PID"),
        ("ipath attach 1 --freq=99", "ipath suggest PID"),
        ("ipath attach 1 --functions x", "-f NAME"),
        ("ipath run --function=x -- true", "-f NAME"),
        ("ipath attach 1 main", "-f FUNC"),
        ("ipath add 1 main", "-f FUNC"),
        ("ipath remove 1", "-f FUNC"),
        ("ipath attach 1 -P main", "-f NAME"),
        ("ipath attach 1 -f", "--follow"),
        ("ipath attach 1 -e cycles", "-m cpu,cycles"),
        ("ipath attach 1 -e trace=read", "-f NAME"),
        ("ipath attach 1 -A main@arg1", "-f NAME"),
        ("ipath attach 1 -R main@retval", "-m arg1,ret"),
        ("ipath attach 1 -g", "need no option"),
        ("ipath attach 1 -f x --call-graph dwarf", "need no option"),
        ("ipath attach 1 -a", "--children"),
        ("ipath attach 1 2 3", "--children"),
        ("ipath attach 1 -f x --tid 5", "--per-thread"),
        ("ipath attach 1 -f x --follow-forks", "--follow"),
        ("ipath attach 1 -f x --json", "--format json"),
        ("ipath attach 1 -f x --batch", "--no-tui"),
        ("ipath attach -n redis", "ipath attach NAME"),
        ("ipath attach", "ipath attach 4242"),
        ("ipath record -p 1", "ipath attach PID -f FUNC -o"),
        (
            "ipath record -g -- true",
            "run -f FUNC -o profile.json -- PROGRAM",
        ),
        ("ipath stat -p 1", "-m cpu,cycles"),
        ("ipath trace -p 1", "ipath attach PID"),
        ("ipath live true", "ipath attach PID"),
        ("ipath script", "--to folded"),
        ("ipath annotate", "--to annotate"),
        ("ipath replay", "--tree"),
        ("ipath break main", "ipath attach PID -f FUNC"),
        ("ipath bt", "ipath attach PID -f FUNC"),
        ("ipath stop 1", "ipath detach PID"),
        ("ipath version", "ipath --version"),
        ("ipath 4242", "ipath attach 4242"),
        ("ipath ./app", "ipath run -f FUNC -- PROGRAM"),
        ("ipath p.json", "ipath report"),
        ("ipath uprobe:./app:main", "ipath attach PID -f FUNC"),
        ("ipath -p 1", "ipath attach PID -f FUNC"),
        ("ipath -f main -- true", "run -f FUNC"),
        ("ipath run ./app", "after --"),
        ("ipath run -f main true", "after --"),
        ("ipath run", "after --"),
        ("ipath top", "ipath status"),
        ("ipath detach", "ipath status"),
        ("ipath snapshot 1 now.json", "-o FILE"),
        ("ipath snapshot 1", "-o now.json"),
        ("ipath report", "-o profile.json"),
        ("ipath report -i p.json", "are arguments"),
        ("ipath report --sort overhead p.json", "--sort total"),
        ("ipath report -n p.json", "--limit"),
        ("ipath report --no-children p.json", "--tree"),
        ("ipath report --stdio p.json", "--json"),
        ("ipath report -s calls p.json", "--sort"),
        ("ipath report a.json b.json", "ipath merge"),
        ("ipath export p.json", "--to flamegraph -o"),
        ("ipath export p.json --to svg -o x", "--to flamegraph"),
        ("ipath export p.json --to x.svg", "--to flamegraph"),
        ("ipath export p.json --format pprof", "--to"),
        ("ipath export p.json flamegraph", "--to flamegraph"),
        ("ipath merge a.json b.json", "-o all.json"),
        ("ipath push p.json http://127.0.0.1:1", "--to URL"),
        ("ipath serve-metrics 1 --port 9000", "--listen"),
        ("ipath list 1 -f main", "are arguments"),
    ] {
        let (hint, error) = told(line);
        assert!(
            hint.as_ref().is_some_and(|hint| hint.contains(part)),
            "{line}: {hint:?}"
        );
        assert!(!error.contains("tip:"), "{line}: {error}");
    }
}

#[test]
fn other_errors_keep_the_suggestions_of_clap() {
    for line in [
        "ipath attach 1 -f x --duration 0",
        "ipath attach 1 --nothing",
        "ipath",
    ] {
        assert_eq!(told(line).0, None, "{line}");
    }
    assert!(told("ipath repor p.json").1.contains("'report'"));
}
