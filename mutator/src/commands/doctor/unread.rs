//! Files of a process that cannot be read.

use super::line::{Line, Verdict, line};
use ipath_base::hint::{Word, hint};
use ipath_symbols::images::{self, OpenError};
use ipath_target::process::Process;
use ipath_target::process::modules::{Module, modules};

/// A line for the program and each library whose file cannot be opened.
pub(super) fn unread(process: &Process) -> Vec<Line> {
    let maps = process.maps().unwrap_or_default();
    let found = modules(process, &maps);
    found.iter().filter_map(|m| of_module(process, m)).collect()
}

fn of_module(process: &Process, module: &Module) -> Option<Line> {
    let Err(error @ OpenError::Io(_)) = images::of_module(module) else {
        return None;
    };
    let what = format!(
        "process {}: {} could not be read: {error}",
        process.pid, module.path
    );
    let name = format!("{}+0xOFFSET", module.shown_name());
    let mend = hint!(
        "its functions cannot be measured, and its frames are shown as {}: run ipath as a user who may read it",
        Word(&name)
    );
    Some(line(Verdict::Warn, what, mend))
}
