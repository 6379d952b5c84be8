//! Processes by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cli::Subject;
use crate::failure::Failure;
use ipath_base::files::file_name;
use ipath_base::hint::{CommandLine, Hint, Word, hint};
use ipath_target::process::{Pid, Process};

/// The process that `subject` names. An id is returned unchecked.
///
/// # Errors
/// Not exactly one process has the name.
pub(super) fn pid_of(operation: &str, subject: &Subject) -> Result<Pid, Failure> {
    match subject {
        Subject::Id(pid) => Ok(Pid(*pid)),
        Subject::Name(name) => {
            let found = running(name);
            only(operation, name, &found).map_err(|failure| {
                let is_tree = found.len() > 1 && outermost(found, parent).len() == 1;
                failure.maybe_hint(of_tree(operation, name).filter(|_| is_tree))
            })
        }
    }
}

/// The only process with this name. `None` if there is none. An error if there are several.
pub(super) fn pid_of_any(operation: &str, name: &str) -> Option<Result<Pid, Failure>> {
    let found = running(name);
    (!found.is_empty()).then(|| only(operation, name, &found))
}

/// The root of the process tree that `subject` names. Several processes may have the name if one of
/// them is an ancestor of the others. An id is returned unchecked.
///
/// # Errors
/// Not exactly one process of the name is outside the descendants of the others.
pub(super) fn root_of(operation: &str, subject: &Subject) -> Result<Pid, Failure> {
    let Subject::Name(name) = subject else {
        return pid_of(operation, subject);
    };
    only(operation, name, &outermost(running(name), parent))
}

/// The hint at the command for all processes with a name, if one of them has started the others.
/// `None` if `operation` has no such command.
fn of_tree(operation: &str, name: &str) -> Option<Hint> {
    let command = |words| CommandLine::ipath(words).file(name).with("--children");
    match operation {
        "suggest" => Some(hint!("`{}` samples all of them", command("suggest"))),
        "attach" => Some(hint!("`{}` measures all of them", command("attach"))),
        _ => None,
    }
}

fn parent(pid: Pid) -> Option<Pid> {
    Process::find(pid).ok()?.parent()
}

/// The processes without an ancestor in the list.
fn outermost(found: Vec<NamedProcess>, parent: impl Fn(Pid) -> Option<Pid>) -> Vec<NamedProcess> {
    let pids: BTreeSet<Pid> = found.iter().map(|(pid, _)| *pid).collect();
    let is_below = |(pid, _): &NamedProcess| {
        let mut ancestors = std::iter::successors(parent(*pid), |pid| parent(*pid));
        ancestors.any(|ancestor| pids.contains(&ancestor))
    };
    found.into_iter().filter(|one| !is_below(one)).collect()
}

/// A process, and the beginning of its command line for messages.
pub(super) type NamedProcess = (Pid, String);

/// The only process in the list. An error with the list if there are none or several.
fn only(operation: &str, name: &str, found: &[NamedProcess]) -> Result<Pid, Failure> {
    /// The most processes that a message names.
    const MAX_NAMED: usize = 8;
    match found {
        [(pid, _)] => Ok(*pid),
        [] => {
            let none = Failure::new(operation, name, "no process has this name").usage();
            Err(none.hint(hint!("`pgrep -af {}` searches command lines", Word(name))))
        }
        [(first, _), ..] => {
            let shown = found.iter().take(MAX_NAMED);
            let mut list: Vec<String> =
                shown.map(|(pid, line)| format!("{pid} ({line})")).collect();
            if let Some(more) = found.len().checked_sub(MAX_NAMED).filter(|&more| more > 0) {
                list.push(format!("and {more} more"));
            }
            let cause = format!(
                "{} processes have this name: {}",
                found.len(),
                list.join(", ")
            );
            let several = Failure::new(operation, name, cause);
            Err(several.hint(hint!(
                "name one by its id, as in {}",
                Word(&first.to_string())
            )))
        }
    }
}

/// The processes with a name, except this one. A name is that of the file, the name that the
/// program gives itself, or the first word of the command line.
fn running(name: &str) -> Vec<NamedProcess> {
    let mut found = all();
    found.retain(|(pid, line)| has_name(pid.0, line, name));
    found
}

/// All processes except this one, ordered by id.
pub(super) fn all() -> Vec<NamedProcess> {
    let own = std::process::id() as i32;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<NamedProcess> = pids
        .filter(|&pid| pid != own)
        .filter_map(|pid| Some((Pid(pid), command_line(pid)?)))
        .collect();
    found.sort_unstable_by_key(|(pid, _)| pid.0);
    found
}

/// The beginning of a process's arguments, separated by spaces: at most 60 characters. `None` for
/// kernel threads and ended processes.
fn command_line(pid: i32) -> Option<String> {
    const LONGEST: usize = 60;
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .collect();
    let text = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    (!text.is_empty()).then(|| text.chars().take(LONGEST).collect())
}

/// The name that a process gives itself, by default the start of its file name. `None` if the
/// process has ended.
pub(super) fn of(pid: Pid) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

fn has_name(pid: i32, line: &str, name: &str) -> bool {
    /// The bytes of a name that the kernel keeps (TASK_COMM_LEN without the final zero).
    const KEPT: usize = 15;
    let of_kernel = of(Pid(pid)).unwrap_or_default();
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let of_file = file
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|n| n.to_str());
    let first = line.split([' ', ':']).next().unwrap_or_default();
    let of_line = file_name(first);
    let is_short = name.len() <= KEPT;
    of_kernel == name && is_short
        || of_file.is_some_and(|file| file.trim_end_matches(" (deleted)") == name)
        || of_line == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_server_and_its_workers_the_server_is_meant() {
        let found = |pid| (Pid(pid), String::new());
        let parent = |pid: Pid| match pid.0 {
            7 => Some(Pid(1)),
            // A shell is in between.
            9 => Some(Pid(8)),
            8 | 10 => Some(Pid(7)),
            _ => None,
        };
        let all = [7, 9, 10].map(found);
        assert_eq!(outermost(all.to_vec(), parent), [found(7)]);
        let two = [7, 9, 20].map(found);
        assert_eq!(outermost(two.to_vec(), parent), [found(7), found(20)]);
    }

    #[test]
    fn the_command_for_a_server_with_workers_is_given() {
        let of = |operation| of_tree(operation, "my db").map(|hint| hint.to_string());
        let suggest = "`ipath suggest 'my db' --children` samples all of them";
        assert_eq!(of("suggest").as_deref(), Some(suggest));
        assert_eq!(of("detach"), None);
    }

    #[test]
    fn a_name_stands_for_exactly_one_process() {
        let found = |pid| (Pid(pid), format!("server {pid}"));
        let of = |all: &[NamedProcess]| only("attach", "server", all).map_err(|e| e.to_string());
        assert_eq!(of(&[found(7)]), Ok(Pid(7)));
        assert_eq!(
            of(&[]),
            Err("attach server: no process has this name".to_owned())
        );
        let two = of(&[found(7), found(8)]).expect_err("two");
        assert_eq!(
            two,
            "attach server: 2 processes have this name: 7 (server 7), 8 (server 8)"
        );
        let many: Vec<NamedProcess> = (1..=10).map(found).collect();
        let many = of(&many).expect_err("ten");
        assert!(many.ends_with("8 (server 8), and 2 more"), "{many}");
    }
}
