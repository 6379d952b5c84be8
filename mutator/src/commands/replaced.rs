//! Programs that are replaced by others (exec(2)), and scripts, of which what runs is a shell.

use std::fs;
use std::os::unix::fs::MetadataExt;

use patcher::select::Pattern;

use crate::error::Failure;
use crate::hint::{Word, hint};
use crate::printable::printable;
use crate::process::{Presence, Process};

/// Programs that run others, or have them take their place, and give themselves no other name.
const SHELLS: [&str; 12] = [
    "sh", "dash", "bash", "zsh", "ksh", "mksh", "ash", "busybox", "env", "nice", "setsid",
    "timeout",
];

/// A program as it was when it began to be measured.
pub(super) struct Begun {
    process: Process,
    /// Path of its file, and its device and inode: a file can be called otherwise meanwhile.
    exe: String,
    file: Option<(u64, u64)>,
    /// What its first thread is called.
    name: Option<String>,
    /// True if that is called otherwise only after exec(2).
    is_shell: bool,
}

impl Begun {
    /// The program that a process is now.
    pub(super) fn of(process: &Process) -> Self {
        let exe = exe(process).unwrap_or_default();
        let is_shell = file_name(&exe).is_some_and(|name| SHELLS.contains(&name));
        Self {
            process: process.clone(),
            name: thread_name(process),
            is_shell,
            exe,
            file: file(process),
        }
    }

    /// Says what has taken its place, if something has. One that has ended since still has its name, until it is
    /// collected.
    pub(super) fn replaced(&self) -> Option<String> {
        let by = match self.process.life() {
            Presence::Ended if self.is_shell => {
                let now = thread_name(&self.process);
                now.filter(|now| self.name.as_ref().is_some_and(|then| then != now))
            }
            Presence::Here if file(&self.process) != self.file => exe(&self.process),
            _ => None,
        }?;
        let (then, now) = (printable(&self.exe), printable(&by));
        Some(format!(
            "{then} has been replaced by {now} (exec), and was measured until then; --follow goes on with {now}"
        ))
    }

    /// A failure to find functions of these patterns in it, with what was meant where `subject` is a shell or a script of one.
    pub(super) fn not_found(
        &self,
        failure: Failure,
        patterns: &[Pattern],
        subject: &str,
    ) -> Failure {
        // Who names a module knows what the program is.
        if !self.is_shell || patterns.iter().all(Pattern::has_module) {
            return failure;
        }
        let exe = &self.exe;
        failure.hint(hint!(
            "the program is {}, and what it starts is not followed: --follow does, or name the program itself in the place of {}",
            Word(exe),
            Word(subject)
        ))
    }
}

fn exe(process: &Process) -> Option<String> {
    let exe = process.exe()?.to_string_lossy().into_owned();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
    Some(exe.to_owned())
}

fn file(process: &Process) -> Option<(u64, u64)> {
    let meta = process.exe_metadata()?;
    Some((meta.dev(), meta.ino()))
}

fn thread_name(process: &Process) -> Option<String> {
    let name = fs::read(format!("/proc/{}/comm", process.pid)).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

fn file_name(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| !name.is_empty())
}
