//! Programs replaced by others (exec(2)), and scripts, which run in a shell.

use std::fs;
use std::sync::Arc;

use patcher::select::Pattern;

use crate::failure::Failure;
use ipath_base::files;
use ipath_base::hint::{Word, hint};
use ipath_base::printable::printable;
use ipath_session::session::has_leak_check;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Presence, Process, Space, read_text, stat_field};

/// Programs that start or exec other programs and do not rename themselves.
const SHELLS: [&str; 12] = [
    "sh", "dash", "bash", "zsh", "ksh", "mksh", "ash", "busybox", "env", "nice", "setsid",
    "timeout",
];

/// A program as of the start of its measurement.
pub(super) struct Begun {
    process: Process,
    /// The process's address space, which distinguishes the program from one that it executes, even
    /// from the same file. `None` if it cannot be read.
    space: Option<Arc<Space>>,
    /// The path of the program's file.
    exe: String,
    /// The name of the process's first thread. `None` if it cannot be read.
    name: Option<String>,
    /// True if that name changes only through exec(2).
    is_shell: bool,
    /// The page faults of the process's reaped children at the start.
    of_children: u64,
    /// The largest number of these page faults at any look.
    of_children_now: u64,
    /// The largest number of these page faults at a look before the process was ending.
    of_children_before: u64,
    /// The process's modules at the start.
    modules: Vec<Module>,
    /// The time of the start, by the clock of process start times: in ticks since boot.
    since: u64,
}

impl Begun {
    /// The program that a process runs now.
    pub(super) fn of(process: &Process) -> Self {
        let exe = exe(process).unwrap_or_default();
        Self {
            process: process.clone(),
            space: Space::open(process).ok().map(Arc::new),
            name: thread_name(process),
            is_shell: is_shell(&exe),
            of_children: faults_of_children(process).unwrap_or(0),
            of_children_now: 0,
            of_children_before: 0,
            modules: process
                .maps()
                .map_or_else(|_| Vec::new(), |maps| modules(process, &maps)),
            since: ticks_since_boot(),
            exe,
        }
    }

    /// True if the program has the file name of a shell, or of a program that only runs another one
    /// ([`SHELLS`]).
    pub(super) fn is_shell(&self) -> bool {
        self.is_shell
    }

    /// Updates the page faults of its children.
    pub(super) fn look(&mut self) {
        // Checked first, since the process may end in between.
        let is_ending = is_ending(&self.process);
        let now = faults_of_children(&self.process).unwrap_or(0);
        self.of_children_now = self.of_children_now.max(now);
        if !is_ending {
            self.of_children_before = self.of_children_before.max(now);
        }
    }

    /// True if the program has started processes since its measurement began: live ones, or
    /// children that it has reaped.
    pub(super) fn has_started_others(&mut self) -> bool {
        self.look();
        let is_new = |child: &Process| child.start_time >= self.since;
        self.has_reaped() || self.process.descendants().iter().any(is_new)
    }

    /// True if it has reaped children since. The process that LeakSanitizer starts at the end, in
    /// the same memory (compiler-rt's sanitizer_stoptheworld_linux_libcdep.cpp), is not one.
    fn has_reaped(&self) -> bool {
        self.of_children_before > self.of_children
            || self.of_children_now > self.of_children && !has_leak_check(&self.modules)
    }

    /// A note on the program that has replaced it. `None` if no other program is known to have. An
    /// ended process keeps its name until it is collected.
    pub(super) fn replaced(&self) -> Option<String> {
        let is_other = |space: &Arc<Space>| space.is_current() == Presence::OtherProgram;
        let by = match self.process.life() {
            Presence::Ended if self.is_shell => {
                let now = thread_name(&self.process);
                now.filter(|now| self.name.as_ref().is_some_and(|then| then != now))
            }
            Presence::Here if self.space.as_ref().is_some_and(is_other) => exe(&self.process),
            _ => None,
        }?;
        Some(replaced(&self.exe, &by))
    }

    /// Adds to a failure to find functions a hint that `subject` is a shell or a script.
    pub(super) fn not_found(
        &self,
        failure: Failure,
        patterns: &[Pattern],
        subject: &str,
    ) -> Failure {
        // A user who names a module knows the program.
        if !self.is_shell || patterns.iter().all(Pattern::has_module) {
            return failure;
        }
        let exe = &self.exe;
        failure.hint(hint!(
            "the program is {}, and processes that it starts are not measured: give --follow, or \
            name the program itself instead of {}",
            Word(exe),
            Word(subject)
        ))
    }
}

/// The note that a measured program was replaced by another one.
pub(super) fn replaced(then: &str, now: &str) -> String {
    let (then, now) = (printable(then), printable(now));
    // A shell that executes a shell runs another script.
    if then == now && !is_shell(&then) {
        format!(
            "{then} has executed itself again (exec), and was measured until then; --follow \
            continues with it"
        )
    } else {
        format!(
            "{then} has been replaced by {now} (exec), and was measured until then; --follow \
            continues with {now}"
        )
    }
}

/// True if the program mainly runs other programs.
pub(super) fn is_shell(exe: &str) -> bool {
    file_name(exe).is_some_and(|name| SHELLS.contains(&name))
}

/// The path of the file that a process runs. `None` if it cannot be read.
pub(super) fn exe(process: &Process) -> Option<String> {
    let exe = process.exe()?.to_string_lossy().into_owned();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
    Some(exe.to_owned())
}

/// The time since boot in clock ticks, the unit of process start times (proc(5)). 0 if it cannot be
/// read.
fn ticks_since_boot() -> u64 {
    const TICKS: u64 = 100;
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    now.map_or(0, |now| {
        now.tv_sec() as u64 * TICKS + now.tv_nsec() as u64 * TICKS / 1_000_000_000
    })
}

/// True if the process exits or has ended (proc(5), flags; include/linux/sched.h, PF_EXITING). Also
/// true if its state cannot be read.
fn is_ending(process: &Process) -> bool {
    const FLAGS: usize = 9;
    const EXITING: u64 = 4;
    let stat = read_text(format!("/proc/{}/stat", process.pid));
    let flags = stat.ok().and_then(|stat| stat_field(&stat, FLAGS));
    flags.is_none_or(|flags| flags & EXITING != 0)
}

/// Minor faults of the process's reaped children (proc(5), cminflt). `None` if they cannot be read.
fn faults_of_children(process: &Process) -> Option<u64> {
    const CMINFLT: usize = 11;
    let stat = read_text(format!("/proc/{}/stat", process.pid)).ok()?;
    stat_field(&stat, CMINFLT)
}

fn thread_name(process: &Process) -> Option<String> {
    let name = fs::read(format!("/proc/{}/comm", process.pid)).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

fn file_name(path: &str) -> Option<&str> {
    Some(files::file_name(path)).filter(|name| !name.is_empty())
}
