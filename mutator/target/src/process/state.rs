//! The state of a process or thread, from its stat (proc_pid_stat(5)).

use super::{Pid, Tid, read_text};

/// The state letter in `stat`, the text of a stat file: R if ready to run, T if a signal has
/// stopped its process. `None` if the text has none.
pub fn state_letter(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// The state letter of a thread. `None` if its stat cannot be read.
pub fn thread_state(pid: Pid, tid: Tid) -> Option<char> {
    state_letter(&read_text(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}
