//! The processes that a process has started.

use std::collections::BTreeMap;

use super::line::{Line, Verdict, line};
use ipath_base::files::file_name;
use ipath_base::hint::{CommandLine, hint};
use ipath_target::process::{Pid, Process};

/// A line if a process has descendants: they are not measured with it.
pub(super) fn children(process: &Process) -> Option<Line> {
    const SHOWN: usize = 3;
    let own = Pid(std::process::id() as i32);
    let descendants = process.descendants();
    let others = descendants.iter().filter(|process| process.pid != own);
    let mut programs: BTreeMap<String, usize> = BTreeMap::new();
    for other in others {
        let exe = other.exe().map(|exe| exe.display().to_string());
        let name = exe.map(|exe| file_name(&exe).to_owned());
        *programs.entry(name.unwrap_or_default()).or_default() += 1;
    }
    let all: usize = programs.values().sum();
    let mut programs: Vec<(String, usize)> = programs.into_iter().collect();
    programs.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = programs.iter().filter(|(name, _)| !name.is_empty());
    let named = named.take(SHOWN).map(|(name, n)| format!("{n} of {name}"));
    let named: Vec<String> = named.collect();
    let what = match all {
        0 => return None,
        1 => "a process that it has started is".to_owned(),
        n => format!("{n} processes that it has started are"),
    };
    let pid = process.pid;
    let what = format!(
        "process {pid}: {what} not measured with it: {}",
        named.join(", ")
    );
    let attach = CommandLine::ipath("attach").pid(pid);
    let mend = hint!(
        "`{}` measures them, too, and --follow those that it starts later",
        attach.with("--children -f FUNC")
    );
    Some(line(Verdict::Warn, what, mend))
}
