use super::*;

/// The final command line for these typed arguments and this file, without the program.
fn lines(typed: &str, text: &str) -> Result<String, Problem> {
    let args: Vec<OsString> = ["ipath"]
        .into_iter()
        .chain(typed.split_whitespace())
        .map(OsString::from)
        .collect();
    let given = Cli::command()
        .try_get_matches_from(&args)
        .expect("what is typed is right");
    let made = merged(&args, &given, text)?;
    Cli::command()
        .try_get_matches_from(&made)
        .expect("what comes of it is right");
    let made = made.iter().skip(1).map(|a| a.to_string_lossy());
    Ok(made.collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn becomes(typed: &str, text: &str, expected: &str) {
    assert_eq!(lines(typed, text).as_deref(), Ok(expected));
}

/// Asserts that the file is rejected, with this line and with `words` in the cause.
#[track_caller]
fn is_wrong(typed: &str, text: &str, line: usize, words: &str) {
    match lines(typed, text) {
        Err(problem) => {
            assert_eq!(problem.line, line, "{problem:?}");
            assert!(problem.cause.contains(words), "{problem:?}");
        }
        Ok(made) => panic!("{made} of {text}"),
    }
}

#[test]
fn defaults_come_before_what_is_typed() {
    becomes(
        "run -f step -- app --depth 3",
        "interval = '2s'\nno-tui = true\nper-thread = false\n[run]\nmax-paths = 1_000\nmetric = ['wall', 'cpu']",
        "run --interval=2s --no-tui --max-paths=1000 --metric=wall,cpu -f step -- app --depth 3",
    );
    becomes(
        "report p.json",
        "[report]\nmin-share = 0.5\nsort = 'p99'",
        "report --min-share=0.5 --sort=p99 p.json",
    );
    becomes(
        "report p.json",
        "report.limit = 3",
        "report --limit=3 p.json",
    );
    becomes("report p.json", "# nothing\n", "report p.json");
}

#[test]
fn what_is_typed_wins() {
    let text = "metric = 'wall,cpu'\ninterval = '2s'\ndepth = 4";
    becomes(
        "attach 1 -m count --interval 3s",
        text,
        "attach --depth=4 1 -m count --interval 3s",
    );
    // A search needs callers, which `depth` would cut off.
    becomes(
        "attach 1 --search",
        "depth = 4\ninterval = '2s'",
        "attach --interval=2s 1 --search",
    );
    becomes(
        "report p --json",
        "[report]\ntree = true",
        "report p --json",
    );
    // The share is an option of searches only.
    let text = "min-share = '5%'";
    becomes("attach 1 -f a", text, "attach 1 -f a");
    becomes(
        "attach 1 --search",
        text,
        "attach --min-share=5% 1 --search",
    );
}

#[test]
fn a_table_is_of_its_command_and_wins_over_what_is_general() {
    let text = "depth = 4\nno-tui = true\n[attach]\nno-tui = false\n[report]\ndepth = 9\n[diff]\nlimit = 1";
    becomes("attach 1 -f a", text, "attach --depth=4 1 -f a");
    becomes("top 1", text, "top --no-tui 1");
    becomes("report p", text, "report --depth=9 p");
    becomes("suggest 1", text, "suggest 1");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let report = "report p";
    is_wrong(report, "\nintervall = '1s'", 2, "no key 'intervall' before");
    is_wrong(report, "limit = 3", 1, "no key 'limit' before");
    is_wrong(
        report,
        "\n\n[attach]\nlimit = 3",
        4,
        "no key 'limit' in [attach]",
    );
    is_wrong(report, "[reports]\nlimit = 3", 1, "no table [reports]");
    is_wrong(report, "report = 3", 1, "a table is expected");
    is_wrong(
        report,
        "no-tui = 'yes'",
        1,
        "no-tui: true or false is expected",
    );
    is_wrong(report, "[attach]\nmetric = 5.5.5", 2, "");
    is_wrong(
        report,
        "metric = [1, 2]",
        1,
        "metric: a string, or a list of strings",
    );
    is_wrong(
        report,
        "[report]\nlimit = [1]",
        2,
        "limit: a string or a number",
    );
    is_wrong(report, "[report]\nlimit = true", 2, "this is a boolean");
    is_wrong(report, "[report]\nlimit = 1\nlimit = 2", 3, "duplicate key");
    is_wrong(
        report,
        "[report]\nlimit = 'many'",
        2,
        "limit: invalid value 'many'",
    );
    is_wrong(report, "[report]\nlimit = -1", 2, "invalid value '-1'");
    is_wrong(
        report,
        "[report]\nsort = 'size'",
        2,
        "possible values: total",
    );
    is_wrong("top 1", "interval = 5", 1, "a time is a number above 0");
    let both = "[report]\ntree = true\nhistogram = true";
    is_wrong(report, both, 3, "cannot be used with");
}
