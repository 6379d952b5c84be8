//! `doctor`: the capabilities of this machine and the state of a process.

mod debug_files;
mod family;
mod interpreters;
mod line;
mod memory;
mod process;
mod unread;

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use super::output::print;
use crate::failure::Failure;
use ipath_base::hint::{Cause, Hint, hint};
use ipath_base::printable::{Page, printable};
use ipath_session::counter;
use ipath_session::metric::Metric;
use ipath_target::process::Pid;
use line::{Line, Verdict, line};

/// Prints a line per check. The exit status is 1 if one fails.
pub(super) fn doctor(pid: Option<Pid>) -> Result<ExitCode, Failure> {
    let mut lines = vec![
        architecture(),
        kernel(),
        ptrace(),
        segment_folder(),
        clock(),
        counters(),
    ];
    if let Some(pid) = pid {
        lines.extend(process::lines(pid));
    }
    let mut text = String::new();
    for line in &lines {
        let verdict = match line.verdict {
            Verdict::Pass => "pass",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{verdict}  {}", printable(&line.what));
        if line.verdict != Verdict::Pass && line.mend != Hint::default() {
            let _ = writeln!(text, "      {}", line.mend);
        }
    }
    print(&Page::of(&text))?;
    let failed = lines.iter().any(|l| l.verdict == Verdict::Fail);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn architecture() -> Line {
    line(Verdict::Pass, "processor: x86-64", "")
}

fn kernel() -> Line {
    // MADV_POPULATE_WRITE is the newest feature required. It is in Linux 5.14.
    const NEEDED: (u32, u32) = (5, 14);
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= NEEDED {
        line(Verdict::Pass, format!("kernel: {release}"), "")
    } else {
        line(
            Verdict::Fail,
            format!("kernel: {release}"),
            "Linux 5.14 or newer is needed",
        )
    }
}

fn ptrace() -> Line {
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    // SAFETY: takes no argument and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    match (scope.as_deref(), is_root) {
        (None | Some("0"), false) => line(
            Verdict::Pass,
            "ptrace: processes of the same user can be attached to",
            "",
        ),
        (Some("3"), _) => line(
            Verdict::Fail,
            "ptrace: forbidden (kernel.yama.ptrace_scope = 3)",
            "only a reboot can allow it again",
        ),
        (_, true) => line(
            Verdict::Pass,
            "ptrace: every process can be attached to (root)",
            "",
        ),
        (Some(scope), false) => line(
            Verdict::Warn,
            format!("ptrace: only children can be traced (kernel.yama.ptrace_scope = {scope})"),
            "use `ipath run`, become root, or set kernel.yama.ptrace_scope to 0",
        ),
    }
}

fn segment_folder() -> Line {
    let path = "/dev/shm";
    if nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_err() {
        let mend = "mount a tmpfs there; without it, sessions are found only through the mappings \
            of visible processes";
        return line(
            Verdict::Warn,
            "shared memory: /dev/shm cannot be written",
            mend,
        );
    }
    match nix::sys::statvfs::statvfs(path) {
        Ok(stat) => {
            let free = stat.blocks_available() * stat.fragment_size() / (1 << 20);
            if free < 64 {
                line(
                    Verdict::Warn,
                    format!("shared memory: {free} MiB free in /dev/shm"),
                    "free some: results are stored there",
                )
            } else {
                line(
                    Verdict::Pass,
                    format!("shared memory: {free} MiB free in /dev/shm"),
                    "",
                )
            }
        }
        Err(_) => line(
            Verdict::Warn,
            "shared memory: /dev/shm cannot be examined",
            "",
        ),
    }
}

fn clock() -> Line {
    let flags = read("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| {
        flags
            .lines()
            .find(|l| l.starts_with("flags"))
            .is_some_and(|l| l.split(' ').any(|f| f == flag))
    };
    if has("constant_tsc") && has("nonstop_tsc") {
        let hz = ipath_profile::clock::frequency();
        line(
            Verdict::Pass,
            format!("clock: time-stamp counter at {:.0} MHz", hz as f64 / 1e6),
            "",
        )
    } else {
        line(
            Verdict::Warn,
            "clock: the time-stamp counter's speed varies",
            "times are not reliable here",
        )
    }
}

fn counters() -> Line {
    match Metric::counter_of_cycles() {
        Ok(_) => {
            let names: Vec<&str> = counter::here().collect();
            line(Verdict::Pass, format!("counters: {}", names.join(", ")), "")
        }
        Err(cause) => line(
            Verdict::Warn,
            "counters: cycles are reference cycles (TSC)",
            hint!("{}", Cause(&cause.to_string())),
        ),
    }
}
