//! Checks of a process.

use crate::commands::failures::ProcessFailure;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::debug_files::debug_files;
use super::family::children;
use super::interpreters::interpreters;
use super::line::{Line, Verdict, line};
use super::memory::{addresses, mappings, memory};
use super::unread::unread;
use ipath_session::session::filters;
use ipath_symbols::jit::JitNames;
use ipath_target::emulators::Runner;
use ipath_target::process::{Pid, Process, ProcessError};

/// The lines about a process: one for the process itself, and one for each obstacle. If the process
/// cannot be attached to, there is only one line, which says why.
pub(super) fn lines(pid: Pid) -> Vec<Line> {
    let found = Process::find(pid).and_then(|p| p.check().map(|()| p));
    let process = match found {
        Ok(process) => process,
        Err(error) => {
            let hint = match error {
                ProcessError::Gone(_) => "`pgrep -a NAME` shows the ids of those that run".into(),
                _ => error.advice().unwrap_or_default(),
            };
            return vec![line(Verdict::Fail, format!("process {error}"), hint)];
        }
    };
    let exe = process
        .exe()
        .map(|e| e.display().to_string())
        .unwrap_or_default();
    let mut lines = vec![line(
        Verdict::Pass,
        format!("process {pid}: {exe} can be attached to"),
        "",
    )];
    let further = [
        seccomp(&process),
        runner(&process),
        root(&process),
        inner_proc(&process),
        inner_folder(&process),
        scheduling(&process),
        shadow_stacks(&process),
    ];
    lines.extend(further.into_iter().flatten());
    lines.extend(memory(&process));
    lines.extend(addresses(&process));
    lines.extend(mappings(&process));
    lines.extend(unread(&process));
    lines.extend(debug_files(&process));
    lines.extend(interpreters(&process, generated_names(&process)));
    lines.extend(children(&process));
    lines
}

fn warn(process: &Process, what: &str, mend: &'static str) -> Option<Line> {
    let what = format!("process {}: {what}", process.pid);
    Some(line(Verdict::Warn, what, mend))
}

/// A line if any thread runs under a seccomp filter. The program's first thread may have none.
fn seccomp(process: &Process) -> Option<Line> {
    let tids = process.tids().unwrap_or_default();
    let of = |key: &str| -> Vec<String> {
        let values = tids.iter().map(|&tid| process.thread_status(tid, key));
        values.flatten().collect()
    };
    let modes = of("Seccomp");
    let filtered = modes.iter().filter(|mode| *mode != "0").count();
    let most = of("Seccomp_filters")
        .iter()
        .filter_map(|n| n.parse().ok())
        .max();
    let what = match most {
        _ if filtered == 0 => return None,
        _ if modes.iter().any(|mode| mode == "1") => "runs in seccomp's strict mode".to_owned(),
        Some(n @ 2..) => format!("runs under {n} seccomp filters"),
        None | Some(0_u32..=1) => "runs under a seccomp filter".to_owned(),
    };
    let some = match modes.len().saturating_sub(filtered) {
        0 => String::new(),
        _ => format!(" in {filtered} of {} threads", modes.len()),
    };
    let is_strict = modes.iter().any(|mode| mode == "1");
    let mend = match (is_strict, filters::may_end(process)) {
        (true, _) => "it forbids the time-stamp counter: such a process is refused",
        (_, false) => {
            "the runtime makes no system call in it: metrics that need one are refused (cpu, cycles, page-faults and others)"
        }
        (_, true) => {
            "it may kill the program for the system calls of attaching: run ipath as root, or \
            give --allow-seccomp if the filter answers with errors; metrics that need system \
            calls are refused (cpu, cycles, page-faults and others)"
        }
    };
    warn(process, &format!("{what}{some}"), mend)
}

/// The number of known names in code that the process has generated.
fn generated_names(process: &Process) -> usize {
    let mut names = JitNames::of(process);
    names.learn(&process.maps().unwrap_or_default());
    names.refresh();
    names.names().count()
}

fn runner(process: &Process) -> Option<Line> {
    // The line about the language already covers Java.
    let runner = Runner::of_process(process).filter(|runner| *runner != Runner::Java)?;
    let note = runner.note();
    warn(process, &note, "measure it without that, if possible")
}

/// A line if the process has another root or another mount namespace.
fn root(process: &Process) -> Option<Line> {
    let entry = process.entry();
    let root = fs::read_link(format!("/proc/{entry}/root")).ok()?;
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let theirs = fs::read_link(format!("/proc/{entry}/ns/mnt")).ok()?;
    let what = if root != std::path::Path::new("/") {
        format!("its root is {}", root.display())
    } else if own != theirs {
        "runs in another mount namespace".to_owned()
    } else {
        return None;
    };
    let mend = "its paths can name other files than the same paths here";
    warn(process, &what, mend)
}

/// A line if there is no `/proc` below the root of the process.
fn inner_proc(process: &Process) -> Option<Line> {
    let path = format!("/proc/{}/root/proc/self", process.entry());
    if fs::symlink_metadata(path).is_ok() {
        return None;
    }
    let mend = "the runtime cannot read its mappings there: libraries loaded later are known only after \
        `ipath add`";
    warn(process, "there is no /proc in its root", mend)
}

/// A line if the process has another `/dev/shm` than this command.
fn inner_folder(process: &Process) -> Option<Line> {
    let of = |path: &str| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let own = of("/dev/shm")?;
    if of(&format!("/proc/{}/root/dev/shm", process.entry())) == Some(own) {
        return None;
    }
    let mend = "its session is found only through its mappings, by users who may read them";
    warn(process, "it does not share /dev/shm", mend)
}

fn scheduling(process: &Process) -> Option<Line> {
    // SAFETY: takes a number and no pointer.
    let policy =
        unsafe { libc::sched_getscheduler(process.entry().0) } & !libc::SCHED_RESET_ON_FORK;
    let (name, mend) = match policy {
        libc::SCHED_FIFO => ("SCHED_FIFO", "while it is busy, stopping it takes longer"),
        libc::SCHED_RR => ("SCHED_RR", "while it is busy, stopping it takes longer"),
        libc::SCHED_DEADLINE => ("SCHED_DEADLINE", "a stop may cost it a deadline"),
        libc::SCHED_IDLE => (
            "SCHED_IDLE",
            "it gets no processor while others run, so stopping it takes long",
        ),
        _ => return None,
    };
    warn(process, &format!("runs under {name}"), mend)
}

fn shadow_stacks(process: &Process) -> Option<Line> {
    let mend = "calls are not moved in it: a function with a call too near its entry is refused \
        as `shadow-stack`";
    if process.has_shadow_stacks() {
        warn(process, "runs with user shadow stacks", mend)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process_nothing_is_said_but_whose_it_is() {
        let lines = lines(Pid(std::process::id() as i32));
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].verdict, Verdict::Fail);
        assert!(lines[0].what.contains("ipath itself"), "{}", lines[0].what);
    }
}
