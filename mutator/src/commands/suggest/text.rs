//! The output of `suggest`. On a terminal no line is wider than the screen: names are shortened and
//! frames of runtimes are folded, as in reports. A name without enough room beside the figures goes
//! on a line below them.

use std::fmt::Write;

use patcher::select::MEANING;
use unicode_width::UnicodeWidthStr;

use super::rows::{Candidate, Suggestion, about, callers, figures, generated, head};
use ipath_base::hint::CommandLine;
use ipath_base::printable::{is_active, printable};
use ipath_profile::display_name::{Chain, fit_chains, fit_each, method};
use ipath_profile::report::{human, wrapped};
use ipath_sampling::sampling::Shares;
use ipath_session::session::Places;
use ipath_target::process::Pid;
use ipath_target::process::modules::Module;

/// The gap between two columns.
const GAP: &str = "  ";
/// The terminal columns before a function.
const COLUMNS: usize = 50;
/// The indentation of callers on terminals too narrow to put them below the function.
const NARROW: usize = 4;
/// The fewest terminal columns for callers below their function.
const ROOMY: usize = 60;
/// The fewest terminal columns of a name when room for its module is needed.
const LEAST: usize = 24;
const ARROW: &str = " < ";
/// The most callers per function in output to a file.
const SHOWN: usize = 4;

/// The subject of the text.
pub(super) struct Subject {
    pub(super) pid: Pid,
    /// The number of processes that were sampled.
    pub(super) processes: usize,
    /// True if descendants were sampled as well.
    pub(super) children: bool,
    /// The tool that shows the functions of the program's language. `None` if they are native.
    pub(super) tool: Option<String>,
    /// A note on descendants that were not sampled.
    pub(super) others: Option<String>,
}

/// The output. `modules` are those of the process of the first measurable candidate. `width` is the
/// width of the terminal in columns, or `None` if the output goes to a file.
pub(super) fn text(
    subject: &Subject,
    shares: &Shares,
    suggestion: &Suggestion,
    modules: &[Module],
    width: Option<usize>,
) -> String {
    let mut text = match subject.processes {
        1 => String::new(),
        n => format!("{n} processes: "),
    };
    text += &about(subject.pid, shares);
    if let Some(width) = width {
        text = wrapped(text.split(' '), " ", width).join("\n");
    }
    text.push('\n');
    // A line of labels that does not fit is omitted. Each figure then has its own label.
    let labels = head().join(" ") + GAP + "function";
    if width.is_none_or(|width| width >= labels.width()) {
        text += &labels;
        text.push('\n');
    }
    let names = names(&suggestion.candidates, width);
    let callers = all_callers(&suggestion.candidates, width);
    let rows = suggestion.candidates.iter().zip(names).zip(callers);
    for ((candidate, name), callers) in rows {
        let figures = figures_line(candidate, labels.width(), width);
        text += &match name {
            Placed::Beside(name) => format!("{figures}{GAP}{name}\n"),
            Placed::Below(name) => {
                format!("{}\n{}", figures.trim_end(), below(&name, NARROW, width))
            }
        };
        if let Some(reason) = candidate.refused() {
            let refused = format!("refused: {}", printable(&reason));
            text += &below(&refused, indent(width), width);
        }
        text += &callers;
    }
    if let Some(generated) = generated(&suggestion.candidates, subject.tool.as_deref()) {
        text += &below(&generated, 0, width);
    }
    let mut remarks = remarks(shares, suggestion);
    remarks.extend(subject.others.clone());
    if !remarks.is_empty() {
        text += &below(&remarks.join("; "), 0, width);
    }
    if let Some(first) = suggestion.candidates.iter().find(|c| c.refused().is_none()) {
        let attach = CommandLine::ipath("attach").pid(subject.pid);
        let attach = if subject.children {
            attach.with("--children")
        } else {
            attach
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "exactly, with all call paths: {}",
            attach.func(&pattern_of(first, modules))
        );
    }
    text
}

/// The indentation of lines below a function.
fn indent(width: Option<usize>) -> usize {
    match width {
        Some(width) if width < COLUMNS + ROOMY => NARROW,
        _ => COLUMNS,
    }
}

/// The figures of a function, in columns below the labels, or each with its label if the columns do
/// not fit.
fn figures_line(candidate: &Candidate, labels: usize, width: Option<usize>) -> String {
    let figures = figures(&candidate.function);
    let Some(width) = width.filter(|&width| width < labels) else {
        return figures.join(" ");
    };
    let pairs = head().into_iter().zip(figures);
    let pairs = pairs.filter(|(_, figure)| !figure.trim().is_empty());
    let pairs: Vec<String> = pairs
        .map(|(label, figure)| format!("{} {}", label.trim(), figure.trim()))
        .collect();
    wrapped(pairs.iter().map(String::as_str), ", ", width).join("\n")
}

/// Lines of text below the figures.
fn below(text: &str, indent: usize, width: Option<usize>) -> String {
    let lines = match width {
        Some(width) => wrapped(text.split(' '), " ", width.saturating_sub(indent)),
        None => vec![text.to_owned()],
    };
    let lines = lines.iter().map(|line| format!("{:indent$}{line}\n", ""));
    lines.collect()
}

/// The name of a function. It includes the module if there is room, or if another function has the
/// same name.
enum Placed {
    /// Behind the figures.
    Beside(String),
    /// On lines of its own.
    Below(String),
}

/// The name of each candidate, where it fits. With its module in output to a file.
fn names(candidates: &[Candidate], width: Option<usize>) -> Vec<Placed> {
    let name = |candidate: &Candidate| printable(&candidate.function.name).into_owned();
    let module = |candidate: &Candidate| format!("{GAP}{}", printable(&candidate.function.file));
    let Some(width) = width else {
        let whole = candidates.iter().map(|c| name(c) + &module(c));
        return whole.map(Placed::Beside).collect();
    };
    let row = |candidate: &Candidate| {
        let (name, module) = (name(candidate), module(candidate));
        let own = method(&name).width();
        let least = own.max(LEAST.min(name.width()));
        let namesakes = candidates
            .iter()
            .filter(|c| c.function.name == candidate.function.name);
        let needs_module = namesakes.count() > 1;
        let beside = width.saturating_sub(COLUMNS);
        let below = width.saturating_sub(NARROW);
        for (room, is_beside) in [(beside, true), (below, false)] {
            match room.checked_sub(module.width()) {
                Some(left) if left >= least => return (name, module, left, is_beside),
                _ if room >= least && !needs_module => {
                    return (name, String::new(), room, is_beside);
                }
                _ => {}
            }
        }
        // The name takes more than one line.
        (name, module, own, false)
    };
    let rows: Vec<(String, String, usize, bool)> = candidates.iter().map(row).collect();
    let each: Vec<(&str, usize)> = rows.iter().map(|row| (row.0.as_str(), row.2)).collect();
    let placed = |(name, (_, module, _, is_beside)): (String, &(String, String, usize, bool))| {
        let text = name + module;
        match is_beside {
            true => Placed::Beside(text),
            false => Placed::Below(text),
        }
    };
    fit_each(&each).into_iter().zip(&rows).map(placed).collect()
}

/// A line with the callers of each candidate. The line is empty if none are known.
fn all_callers(candidates: &[Candidate], width: Option<usize>) -> Vec<String> {
    let indent = indent(width);
    let Some(width) = width else {
        let line = |candidate: &Candidate| {
            let callers = callers(&candidate.stack);
            let (shown, more) = callers.split_at(callers.len().min(SHOWN));
            let names = shown.iter().map(|link| link.name.clone() + &link.mark);
            let gap = (!more.is_empty()).then(|| "…".to_owned());
            let names: Vec<String> = names.chain(gap).collect();
            if names.is_empty() {
                String::new()
            } else {
                format!("{:indent$}< {}\n", "", names.join(ARROW))
            }
        };
        return candidates.iter().map(line).collect();
    };
    let chains: Vec<Chain> = candidates
        .iter()
        .map(|candidate| Chain {
            links: callers(&candidate.stack),
            room: width.saturating_sub(indent + 2),
        })
        .collect();
    let line = |(chain, text): (&Chain, String)| {
        if chain.links.is_empty() {
            String::new()
        } else {
            format!("{:indent$}< {text}\n", "")
        }
    };
    chains
        .iter()
        .zip(fit_chains(&chains, ARROW))
        .map(line)
        .collect()
}

fn remarks(shares: &Shares, suggestion: &Suggestion) -> Vec<String> {
    let mut remarks = Vec::new();
    if suggestion.candidates.is_empty() {
        remarks.push("nothing ran, and threads waited only for work".to_owned());
    }
    if shares.idle > 0 {
        remarks.push(format!(
            "{} did not run",
            human::count(shares.idle as u64, "thread")
        ));
    }
    if shares.folded > 0.0 {
        remarks.push(format!(
            "the callers of {:.1} % of the samples are not known: their buffer was full",
            100.0 * shares.folded
        ));
    }
    if shares.whole < 0.9 {
        remarks.push(format!(
            "{:.0} % of the stacks could be walked to their root",
            100.0 * shares.whole
        ));
    }
    remarks
}

/// A pattern that matches this candidate and, if possible, nothing else.
pub(in crate::commands) fn pattern_of(candidate: &Candidate, modules: &[Module]) -> String {
    let has_meaning =
        |c: char| MEANING.contains(&c) || is_active(c) || c.is_whitespace() || "'\\".contains(c);
    let function = &candidate.function;
    let places = Places::of_modules(modules);
    if let Some(name) = places.pattern_for(&function.linkage, function.start) {
        return name;
    }
    match candidate.function.linkage.as_str() {
        "" => candidate.function.name.clone(),
        linkage if linkage.contains(has_meaning) => {
            format!(
                "{}+{:#x}",
                candidate.function.file, candidate.function.address.0
            )
        }
        linkage => format!("{}!{linkage}", candidate.function.file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_sampling::sampling::Function;

    fn candidate(name: &str, stack: &[&str]) -> Candidate {
        let mut function = Function::default();
        function.name = name.to_owned();
        function.file = "service".to_owned();
        function.own.value = 0.5;
        function.total.value = 0.75;
        function.waits_per_second = 12.0;
        Candidate {
            function,
            reason: None,
            stack: stack.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn suggestion() -> Suggestion {
        let tokio = [
            "toksrv::audit",
            "toksrv::handle::{{closure}}",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::task::harness::Harness<T,S>::poll",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "start_thread",
        ];
        let cpp = [
            "std::vector<shop::Order, std::allocator<shop::Order> >::push_back(shop::Order const&)",
            "shop::cache::LruCache<std::string, shop::Order, shop::cache::Hash<std::string> >::get(std::string const&)",
        ];
        let mut refused = candidate("shop::refused(int)", &[]);
        refused.reason = Some("too-short".to_owned());
        Suggestion {
            candidates: vec![
                candidate("toksrv::checksum", &tokio),
                candidate(cpp[1], &cpp),
                candidate(
                    "<&std::net::tcp::TcpStream as std::io::Write>::write",
                    &tokio,
                ),
                refused,
            ],
            ..Suggestion::default()
        }
    }

    fn written(width: Option<usize>) -> String {
        written_of(&suggestion(), width)
    }

    fn written_of(suggestion: &Suggestion, width: Option<usize>) -> String {
        let subject = Subject {
            pid: Pid(42),
            processes: 1,
            children: false,
            tool: None,
            others: None,
        };
        text(&subject, &Shares::default(), suggestion, &[], width)
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for width in [30, 49, 60, 75, 80, 100, 140, 220] {
            let text = written(Some(width));
            let is_command = |line: &str| line.starts_with("exactly, ");
            for line in text.lines().filter(|line| !is_command(line)) {
                assert!(line.width() <= width, "{width}: {line}");
            }
            for shown in [
                "toksrv::checksum",
                "get",
                "refused: too-short",
                "< toksrv::audit",
            ] {
                assert!(text.contains(shown), "{width}, {shown}:\n{text}");
            }
        }
        let folded =
            "< toksrv::audit < toksrv::handle::{{closure}} < [4 frames of the tokio runtime]\n";
        assert!(written(Some(140)).contains(folded));
    }

    #[test]
    fn a_method_is_kept_whole_and_a_module_tells_namesakes_apart() {
        const LONG: &str = "recalculate_every_open_order_of_a_customer";
        let mut candidates = vec![
            candidate(&format!("shop::Orders<std::string>::{LONG}(int)"), &[]),
            candidate(
                "shop::cache::Store<shop::Order, shop::Hash>::find(int)",
                &[],
            ),
            candidate(
                "shop::cache::Store<shop::Order, shop::Hash>::find(int)",
                &[],
            ),
        ];
        candidates[2].function.file = "libpayments-plugin.so.3".to_owned();
        let modules = ["  service\n", "  libpayments-plugin.so.3\n"];
        let suggestion = Suggestion {
            candidates,
            ..Suggestion::default()
        };
        for width in [30, 60, 80, 100] {
            let text = written_of(&suggestion, Some(width));
            let is_command = |line: &str| line.starts_with("exactly, ");
            for line in text.lines().filter(|line| !is_command(line)) {
                assert!(line.width() <= width, "{width}: {line}");
            }
            let whole: String = text.split_whitespace().collect();
            assert!(whole.contains(LONG), "{width}:\n{text}");
            let found: Vec<&str> = text.split("find").skip(1).collect();
            assert_eq!(found.len(), 2, "{width}:\n{text}");
            for (after, module) in found.iter().zip(modules) {
                let after: String = after.split_whitespace().collect();
                assert!(
                    after.trim_start_matches("(int)").starts_with(module.trim()),
                    "{width}:\n{text}"
                );
            }
        }
    }

    /// Generated code and the built-ins that it calls are not offered, but their native callers
    /// are.
    #[test]
    fn the_nearest_native_function_is_offered_in_the_place_of_generated_code() {
        let mut candidates = vec![
            candidate(
                "JS:*findDuplicates /srv/app/slow.js:4:9",
                &["JS:~tick /srv/app/slow.js:9:1"],
            ),
            candidate("Builtins_LdaNamedPropertyHandler", &[]),
            candidate("v8::internal::Invoke", &["node::Start"]),
            candidate("sha256", &[]),
        ];
        candidates[0].reason = Some("JIT code".to_owned());
        candidates[0].function.file = "[jit]".to_owned();
        for (at, own) in [(0, 0.6), (1, 0.2), (2, 0.0), (3, 0.1)] {
            candidates[at].function.own.value = own;
            candidates[at].function.module = (at > 0).then_some(0);
        }
        candidates[1].function.is_built_in = true;
        candidates[2].function.generated = 0.8;
        let suggestion = Suggestion {
            candidates,
            ..Suggestion::default()
        };
        let text = written_of(&suggestion, Some(200));
        assert!(
            text.contains("  findDuplicates slow.js:4  [jit]\n"),
            "{text}"
        );
        assert!(text.contains("< tick slow.js:9\n"), "{text}");
        let line = "80 % of the CPU time is in generated code, which is not patched: \
                    a profiler of its language shows its functions; \
                    the nearest function to measure is v8::internal::Invoke\n";
        assert!(text.contains(line), "{text}");
        let command =
            "exactly, with all call paths: ipath attach 42 -f 'service!v8::internal::Invoke'\n";
        assert!(
            text.ends_with(command) || text.contains("-f 'v8::internal::Invoke'\n"),
            "{text}"
        );
        assert_eq!(
            text.matches("refused: generated code calls it too often")
                .count(),
            1,
            "{text}"
        );
    }

    #[test]
    fn a_file_gets_the_names_as_they_are() {
        let text = written(None);
        for candidate in &suggestion().candidates {
            let line = format!("  {}  service\n", candidate.function.name);
            assert!(text.contains(&line), "{line}:\n{text}");
        }
    }
}
