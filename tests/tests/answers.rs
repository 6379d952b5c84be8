//! The end of a measurement. On a terminal it is one screen: a line for each path, the costliest
//! last, then a sentence about the costliest path and the next command. Elsewhere it is the report.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::ipath;
use ipath_tests::target::Target;
use ipath_tests::terminal::Terminal;

/// Columns and rows of the terminal.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

/// The lines of the terminal that are not empty, after a shell command has ended with status 0.
fn screen(command: &str) -> Vec<String> {
    let command = format!("{command}; echo left=$?; sleep 600");
    let terminal = Terminal::start(&command);
    terminal.resize(WIDTH as u16, HEIGHT as u16);
    let text = terminal.shows(&["left=0"]);
    let lines = text.lines().map(str::trim_end);
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Checks that the output contains `head` and that it ends with an answer: a sentence that
/// contains all of `names`, and a next command that contains `next`.
fn assert_answers(screen: &[String], head: &str, names: &[&str], next: &str) {
    let text = screen.join("\n");
    // A long path or process id moves the end of the line to the next one.
    assert!(screen.join(" ").contains(head), "{text}");
    // The whole output of the command is on the screen.
    let end = screen.iter().rposition(|line| line.starts_with("left=0"));
    let next_at = screen.iter().rposition(|line| line.starts_with("next: "));
    let (end, next_at) = (end.expect("an end"), next_at.expect("a command"));
    assert!(end - next_at <= 2, "{text}");
    assert!(screen[next_at].contains(next), "{text}");
    let sentence_at = screen[..next_at]
        .iter()
        .rposition(|line| line.contains(" < "));
    let sentence = screen[sentence_at.expect("a path") + 1..next_at].join(" ");
    for name in names {
        assert!(sentence.contains(name), "{name}: {text}");
    }
    let costliest = &screen[sentence_at.expect("a path")];
    assert!(costliest.contains(" < "), "{text}");
}

#[test]
fn a_run_ends_with_an_answer_for_cpp() {
    let shop = program_with("shop.cc", &["-g", "-pthread"]);
    // The next command names the program as this one does. A short name keeps it on two lines.
    let command = format!(
        "cd {} && {} run -f '*LruCache*::get' --no-tui --interval 9s -- ./{} 1",
        shop.parent().expect("a folder").display(),
        ipath().display(),
        shop.file_name().expect("a name").display()
    );
    assert_answers(
        &screen(&command),
        "shop",
        &[
            "::get",
            "recommend_for_everybody at shop.cc:",
            "% of the run",
        ],
        "ipath run -f ",
    );
}

#[test]
fn an_attach_ends_with_an_answer_for_rust() {
    let shop = program_with("shop.rs", &["-g"]);
    let target = Target::start(shop, ["60"]).await_output("ready");
    let command = format!(
        "{} attach {} -f '*Store*look_up' -m cpu --duration 1s",
        ipath().display(),
        target.pid()
    );
    let screen = screen(&command);
    let next = format!("ipath attach {} -f ", target.pid());
    let names = [
        "look_up",
        "recommend_for_everybody",
        " at shop.rs:",
        "% of the CPU time",
    ];
    assert_answers(&screen, "measured for", &names, &next);
}

/// On a terminal each step of a search is one line.
#[test]
fn a_search_prints_a_line_a_step() {
    let target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let wide = format!("until [ \"$(stty size)\" = '60 {WIDTH}' ]; do sleep 0.1; done");
    let search = |more: &str| {
        let ipath = ipath().display().to_string();
        let command = format!(
            "{wide}; {ipath} attach {} --search {more}; echo left=$?; sleep 600",
            target.pid()
        );
        let terminal = Terminal::start(&command);
        terminal.resize(WIDTH as u16, 60);
        terminal.shows(&["left=0"])
    };
    let text = search("");
    let steps: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ipath: "))
        .collect();
    let numbered = |n: usize| {
        steps
            .iter()
            .filter(|line| line.starts_with(&format!("ipath: step {n}: ")))
            .count()
    };
    let last = (1..).find(|&n| numbered(n) == 0).unwrap_or(1) - 1;
    assert!(last > 0 && (1..=last).all(|n| numbered(n) == 1), "{text}");
    // Other lines: sampling, the sampled functions, and the end on two lines.
    assert!(steps.len() <= last + 4, "{text}");
    assert!(
        steps.iter().any(|line| line.contains("added find_entry")),
        "{text}"
    );
    assert!(text.contains("\nnext: "), "{text}");
    let full = search("-v");
    assert!(
        full.contains("step 1: ") && full.contains("s of measuring "),
        "{full}"
    );
}

/// A pipe gets the report, with whole lines.
#[test]
fn a_pipe_gets_the_report() {
    let shop = program_with("shop.rs", &["-g"]);
    let target = Target::start(shop, ["60"]).await_output("ready");
    let pid = target.pid().to_string();
    let arguments = [
        "attach",
        &pid,
        "-f",
        "*Store*look_up",
        "--duration",
        "1500ms",
    ];
    let finished = Run::ipath(arguments).run().expect(0);
    let text = finished.stdout;
    assert!(
        text.contains("\nFunctions\n") && text.contains("\nCostliest paths\n"),
        "{text}"
    );
    assert!(!text.contains("next: "), "{text}");
    assert!(text.contains("frames of the Rust runtime]"), "{text}");
    let interval = text.lines().find(|line| line.contains("look_up: "));
    let interval = interval.expect("the line of an interval");
    assert!(
        interval.contains("<shop::inventory::Store<Key,Value> as shop::inventory::"),
        "{interval}"
    );
}
