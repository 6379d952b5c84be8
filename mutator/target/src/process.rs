//! A process as /proc shows it, before stops and between them.

mod activity;
mod args;
mod extent;
mod family;
pub mod headroom;
pub mod identity;
mod ids;
mod life;
pub mod limits;
pub mod maps;
pub mod memory;
pub mod modules;
pub mod pidfd;
mod presence;
mod procfs;
mod remapped;
mod root;
pub mod shadow;
mod sharing;
mod space;
mod state;
pub mod unread;

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use patcher::Avma;

use crate::progress::{THREADS, over};

pub use activity::Activity;
pub use extent::Extent;
pub use ids::{Pid, Tid};
pub use life::STOPS;
pub use maps::Mapping;
pub use memory::{Memory, Own, Text};
pub use presence::Presence;
pub use procfs::{host, read_text};
pub use root::Root;
pub use space::Space;
pub use state::{state_letter, thread_state};

/// The reason why a process cannot be measured.
#[derive(Debug)]
pub enum ProcessError {
    /// No process has this id.
    Gone(Pid),
    /// A zombie: it has ended, and its parent has not collected it.
    Zombie(Pid),
    /// A kernel thread, which has no program.
    KernelThread(Pid),
    /// The process is ipath itself.
    Own(Pid),
    /// Permission denied, with the owner or the reason.
    Denied(Pid, String),
    /// The program is not x86-64.
    NotElf64(Pid, &'static str),
    /// A debugger or another tracer traces this thread: the thread, the tracer and its name.
    Traced(Pid, Tid, i32, String),
    /// A file in /proc cannot be read.
    Proc(Pid, &'static str, io::Error),
    /// The process has executed another program since it was inspected.
    OtherProgram(Pid),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "{pid}: no such process"),
            Self::Zombie(pid) => write!(f, "{pid}: the process has ended and waits for its parent"),
            Self::KernelThread(pid) => write!(
                f,
                "{pid}: it is a kernel thread, which has no \
                program"
            ),
            Self::Own(pid) => write!(f, "{pid}: that is ipath itself"),
            Self::Denied(pid, whose) => write!(f, "{pid}: permission denied: {whose}"),
            Self::NotElf64(pid, what) => write!(f, "{pid}: not an x86-64 process: {what}"),
            Self::Traced(pid, tid, by, name) => {
                write!(f, "{pid}: thread {tid} is traced by {by} ({name})")
            }
            Self::Proc(pid, file, error) => write!(
                f,
                "{pid}: /proc/{pid}/{file}: {}",
                ipath_base::error::io_text(error)
            ),
            Self::OtherProgram(pid) => {
                write!(f, "{pid}: it has become another program (exec) meanwhile")
            }
        }
    }
}

impl std::error::Error for ProcessError {}

impl ProcessError {
    /// The presence that this error implies, if the process has ended or become another program.
    /// `None` for any other error.
    pub fn loss(&self) -> Option<Presence> {
        match self {
            Self::Gone(_) | Self::Zombie(_) => Some(Presence::Ended),
            Self::OtherProgram(_) => Some(Presence::OtherProgram),
            _ => None,
        }
    }

    /// Returns [`Traced`](Self::Traced) with the name of the tracer `by`.
    pub fn traced(pid: Pid, tid: Tid, by: i32) -> Self {
        let name = read_text(format!("/proc/{by}/comm")).unwrap_or_default();
        Self::Traced(pid, tid, by, name.trim().to_owned())
    }
}

/// A process, identified by id and start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: Pid,
    /// The start time in clock ticks since boot. Together with `pid` it identifies the process
    /// uniquely.
    pub start_time: u64,
}

impl Process {
    /// Finds the process with this id. A thread's id gives the process of that thread.
    ///
    /// # Errors
    /// No process has this id, it is a zombie, or its stat file cannot be read.
    pub fn find(pid: Pid) -> Result<Self, ProcessError> {
        if pid.0 <= 0 {
            return Err(ProcessError::Gone(pid));
        }
        let stat = read_text(format!("/proc/{pid}/stat"));
        let stat = stat.map_err(|error| {
            let hidden = Self { pid, start_time: 0 };
            match is_no_process(&error).then(|| hidden.unseen()) {
                Some(Presence::Unknown(cause)) => {
                    ProcessError::Proc(pid, "stat", io::Error::other(cause))
                }
                Some(_) => ProcessError::Gone(pid),
                None => ProcessError::Proc(pid, "stat", error),
            }
        })?;
        let (state, start_time) = parse_stat(&stat).ok_or(ProcessError::Gone(pid))?;
        let process = Self { pid, start_time };
        // A thread's id has a /proc entry too. The process is the thread group, which owns the
        // memory.
        let tgid = process
            .status("Tgid")
            .and_then(|v| v.parse().ok())
            .unwrap_or(pid.0);
        if tgid != pid.0 {
            return Self::find(Pid(tgid));
        }
        if matches!(state, 'Z' | 'X') && process.has_ended() {
            Err(ProcessError::Zombie(pid))
        } else {
            Ok(process)
        }
    }

    /// Checks permissions, the kind of program and tracers without touching the process.
    ///
    /// # Errors
    /// The reason why the process cannot be instrumented.
    pub fn check(&self) -> Result<(), ProcessError> {
        let pid = self.pid;
        if pid.0 == std::process::id() as i32 {
            return Err(ProcessError::Own(pid));
        }
        if self.is_kernel_thread() {
            return Err(ProcessError::KernelThread(pid));
        }
        // The link is unreadable once a process is about to end.
        self.of_living("exe", |path| fs::read_link(path))?;
        self.check_tracer()?;
        self.check_program()?;
        // Needs the same permission as ptrace, and stops nothing.
        self.of_living("mem", |path| fs::File::open(path)).map(drop)
    }

    /// The signals that the process's first thread blocks, and the signals that the process
    /// ignores, as masks (bit `n - 1` for signal `n`). A mask that cannot be read is 0.
    ///
    /// # Errors
    /// The process's status cannot be read.
    pub fn signals(&self) -> io::Result<[u64; 2]> {
        let status = read_text(format!("/proc/{}/status", self.pid))?;
        let mask = |key| u64::from_str_radix(status_line(&status, key)?, 16).ok();
        Ok(["SigBlk", "SigIgn"].map(|key| mask(key).unwrap_or(0)))
    }

    /// True if PF_KTHREAD is set (include/linux/sched.h).
    fn is_kernel_thread(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        let stat = read_text(format!("/proc/{}/stat", self.pid));
        let flags = stat.ok().and_then(|stat| stat_field(&stat, 9));
        flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// Checks that the process is not traced. Waits for another ipath, which traces for
    /// milliseconds. Fails with [`ProcessError::Traced`].
    fn check_tracer(&self) -> Result<(), ProcessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.tracer() {
                None => return Ok(()),
                Some((_, by)) if is_passing(by) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Some((tid, by)) => {
                    return Err(ProcessError::traced(self.pid, tid, by));
                }
            }
        }
    }

    /// A traced thread of the process, and the id of the process that traces it. `None` if no
    /// thread is traced. While a tracer detaches from a thread, the kernel reports the thread's
    /// parent for a moment (`__ptrace_unlink`, kernel/ptrace.c), so this reads until two results
    /// agree.
    pub fn tracer(&self) -> Option<(Tid, i32)> {
        const TIMES: usize = 10;
        let tids = self.tids().unwrap_or_default();
        let look = || {
            let mut tids = over(THREADS, tids.clone());
            tids.find_map(|tid| Some((tid, self.tracer_of(tid)?)))
        };
        let mut found = look()?;
        for _ in 0..TIMES {
            std::thread::sleep(Duration::from_millis(1));
            let again = look()?;
            if again.1 == found.1 {
                break;
            }
            found = again;
        }
        Some(found)
    }

    /// The id of the process that traces the thread `tid`. `None` if the thread is not traced, or
    /// has ended: it stays listed until its tracer has waited for it, and is no longer stopped.
    pub fn tracer_of(&self, tid: Tid) -> Option<i32> {
        let status = read_text(format!("/proc/{}/task/{tid}/status", self.pid)).ok()?;
        let has_ended = status_line(&status, "State")?.starts_with(['Z', 'X']);
        let by = status_line(&status, "TracerPid")?.parse().ok()?;
        (by != 0 && !has_ended).then_some(by)
    }

    /// Checks that the program is x86-64 code.
    ///
    /// # Errors
    /// [`ProcessError::NotElf64`] if it is not. Otherwise its file cannot be read.
    pub fn check_program(&self) -> Result<(), ProcessError> {
        /// The type of the size of a program header entry in the auxiliary vector (AT_PHENT).
        const ENTRY: u64 = 4;
        /// The size of a program header entry of ELF64 in bytes.
        const ENTRY_OF_64: u64 = 56;
        let pid = self.pid;
        let mut magic = [0u8; 20];
        let file = match self.of_living("exe", |path| fs::File::open(path)) {
            Ok(file) => file,
            // Root may not read the file: it is on another user's FUSE mount, or it may only be
            // executed. The auxiliary vector shows its class instead. It describes the process, not
            // the file.
            Err(ProcessError::Denied(..)) if self.auxiliary(ENTRY) == Some(ENTRY_OF_64) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let _ = file.read_at(&mut magic, 0);
        if !magic.starts_with(b"\x7fELF") || magic[4] != 2 || magic[18] != 62 {
            let what = match (magic[4], magic[18]) {
                (1, 3) => "its program is 32-bit x86 (ELF32)",
                (1, 62) => "its program uses the x32 ABI (ELF32)",
                _ => "its program is not an x86-64 ELF file",
            };
            return Err(ProcessError::NotElf64(pid, what));
        }
        Ok(())
    }

    /// The error for a read that the kernel does not permit, with the owner of the process.
    fn denied(&self) -> ProcessError {
        let owner = fs::metadata(format!("/proc/{}", self.pid)).map(|m| m.uid());
        // SAFETY: takes no argument and cannot fail.
        let own = unsafe { libc::geteuid() };
        let whose = match owner {
            Ok(uid) if uid != own => format!("it belongs to user {uid}, not to user {own}"),
            _ => "the system does not allow it to be traced".to_owned(),
        };
        ProcessError::Denied(self.pid, whose)
    }

    /// The current mappings, ordered by address. An exec replaces them: see [`Space`] for mappings
    /// tied to one address space.
    ///
    /// # Errors
    /// The maps cannot be read, or the process has ended.
    pub fn maps(&self) -> Result<Vec<Mapping>, ProcessError> {
        let text = self.of_living("maps", |path| fs::read(path))?;
        Ok(maps::parse(&String::from_utf8_lossy(&text)))
    }

    /// The ids of the process's threads. `None` if they cannot be read.
    pub fn tids(&self) -> Option<Vec<Tid>> {
        tids(self.pid)
    }

    /// The ids of the process's threads.
    ///
    /// # Errors
    /// The folder of the threads in /proc cannot be read.
    pub fn list_tids(&self) -> io::Result<Vec<Tid>> {
        list_tids(self.pid)
    }

    /// The CPU time of all threads of the process since it started, in nanoseconds. `None` if it
    /// cannot be read. The clock's id is derived from the process id (clock_getcpuclockid(3)).
    pub fn cpu_time(&self) -> Option<u64> {
        const NS: u64 = 1_000_000_000;
        let mut clock = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both calls write only to the variables passed.
        let has_time = unsafe {
            libc::clock_getcpuclockid(self.pid.0, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        has_time.then(|| time.tv_sec as u64 * NS + time.tv_nsec as u64)
    }

    /// True unless the thread is known to have ended. A thread that cannot be inspected may exist.
    pub fn has_thread(&self, tid: Tid) -> bool {
        let folder = fs::metadata(format!("/proc/{}/task/{tid}", self.pid));
        folder.map_or_else(|e| !is_no_process(&e), |_| true)
    }

    /// The value of `key` in /proc/PID/status. `None` if the file cannot be read or has no such
    /// line.
    pub fn status(&self, key: &str) -> Option<String> {
        status_field(&format!("/proc/{}/status", self.pid), key)
    }

    /// The value of `key` in a thread's /proc/PID/task/TID/status. `None` if the file cannot be
    /// read or has no such line.
    pub fn thread_status(&self, tid: Tid, key: &str) -> Option<String> {
        status_field(&format!("/proc/{}/task/{tid}/status", self.pid), key)
    }

    /// True if the process has locked memory. It may then also lock all future mappings
    /// (mlockall(2)). False if unknown.
    pub fn locks_memory(&self) -> bool {
        let locked = status_field(&format!("/proc/{}/status", self.entry()), "VmLck");
        locked.is_some_and(|size| !size.starts_with("0 "))
    }

    /// The process's ids in its pid namespaces, ending with the innermost one. Empty if they cannot
    /// be read.
    fn ids(&self) -> Vec<i32> {
        let ids = self.status("NSpid").unwrap_or_default();
        ids.split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    /// The thread of the process whose id in its own (innermost) pid namespace is `inner`. `None`
    /// if there is none.
    pub fn tid_of_inner(&self, inner: u32) -> Option<Tid> {
        let is_it = |tid: &Tid| {
            let ids = self.thread_status(*tid, "NSpid").unwrap_or_default();
            ids.split_whitespace().last().and_then(|id| id.parse().ok()) == Some(inner)
        };
        over(THREADS, self.tids()?).find(is_it)
    }

    /// The process's id in its own (innermost) pid namespace. `pid` if that cannot be read.
    pub fn inner_pid(&self) -> i32 {
        self.ids().last().copied().unwrap_or(self.pid.0)
    }

    /// True if `pid` is its id in one of its pid namespaces. False also if they cannot be read.
    pub fn has_id(&self, pid: i32) -> bool {
        self.ids().contains(&pid)
    }

    /// The process's effective user id. `None` if it cannot be read.
    pub fn effective_user(&self) -> Option<u32> {
        let users = self.status("Uid")?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    /// The path of the process's program. `None` if it cannot be read.
    pub fn exe(&self) -> Option<PathBuf> {
        self.of_living("exe", |path| fs::read_link(path)).ok()
    }

    /// The metadata of the file of the process's program (stat(2)). `None` if they cannot be read.
    pub fn exe_metadata(&self) -> Option<fs::Metadata> {
        self.of_living("exe", |path| fs::metadata(path)).ok()
    }

    /// The process's working folder, to which its relative paths are resolved. `None` if it cannot
    /// be read.
    pub fn cwd(&self) -> Option<PathBuf> {
        self.of_living("cwd", |path| fs::read_link(path)).ok()
    }

    /// The base address of the loader (AT_BASE of getauxval(3)). `None` if the program has none or
    /// the auxiliary vector cannot be read.
    pub fn loader(&self) -> Option<Avma> {
        const AT_BASE: u64 = 7;
        let base = self.auxiliary(AT_BASE).filter(|&base| base != 0);
        base.map(Avma)
    }

    /// The value of type `kind` in the process's auxiliary vector (getauxval(3)). `None` if the
    /// vector cannot be read or has no such value.
    pub fn auxiliary(&self, kind: u64) -> Option<u64> {
        let bytes = self.of_living("auxv", |path| fs::read(path)).ok()?;
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
        bytes.chunks_exact(16).find_map(|pair| {
            let (key, value) = pair.split_at(8);
            (word(key)? == kind).then(|| word(value))?
        })
    }

    /// Opens the process's current memory. An exec replaces it: see [`Space`] for memory tied to
    /// one address space.
    ///
    /// # Errors
    /// The process has ended, or ipath may not open its memory.
    pub fn open_memory(&self) -> Result<Memory, ProcessError> {
        let open = |path: &str| fs::File::options().read(true).write(true).open(path);
        self.of_living("mem", open).map(Memory::new)
    }

    /// Converts an error of a read from /proc. A missing file means that the process has ended only
    /// if other evidence confirms it.
    pub(super) fn proc_error(&self, file: &'static str, error: io::Error) -> ProcessError {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return self.denied();
        }
        match is_no_process(&error).then(|| self.life()) {
            Some(Presence::Ended) => ProcessError::Gone(self.pid),
            Some(Presence::Unknown(cause)) => {
                ProcessError::Proc(self.pid, file, io::Error::other(cause))
            }
            _ => ProcessError::Proc(self.pid, file, error),
        }
    }
}

/// The longest wait for another ipath that traces the process.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of every ipath command's main thread, whatever its executable is called.
const NAME: &CStr = c"ipath";

/// Names the calling thread, so that other ipath commands recognize it.
pub fn take_name() {
    // Without the name, other commands refuse instead of waiting.
    let _ = nix::sys::prctl::set_name(NAME);
}

/// The name of ipath's tracer thread while processes are followed.
pub const FOLLOWER: &str = "ipath-follows";

/// True if a tracer traces only briefly: it is another ipath command, recognized by its name, or
/// has ended since. After a wrong match the caller merely waits longer.
pub fn is_passing(tid: i32) -> bool {
    match fs::read(format!("/proc/{tid}/comm")) {
        Ok(name) => tid != std::process::id() as i32 && name.trim_ascii_end() == NAME.to_bytes(),
        Err(error) => is_no_process(&error),
    }
}

/// True if the error is /proc's answer for a process that does not exist.
pub fn is_no_process(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The state letter and the start time (in clock ticks since boot, in any time namespace): fields 3
/// and 22 of /proc/PID/stat, behind a name of any characters. `None` if a field is missing.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let state = state_letter(stat)?;
    let start_time = stat_field(stat, 22)?;
    Some((state, start_time.wrapping_add_signed(-boot_offset())))
}

/// The offset of the boot-time clock in this process's time namespace, in clock ticks
/// (time_namespaces(7)). 0 if it cannot be read.
fn boot_offset() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // These offsets apply to children. They differ from this process's own only between
        // unshare(2) and fork(2).
        let offsets = read_text("/proc/self/timens_offsets").unwrap_or_default();
        parse_boot_offset(&offsets).unwrap_or(0)
    })
}

/// The offset of the boot-time clock in the text of timens_offsets, in clock ticks. `None` if the
/// text has none.
fn parse_boot_offset(offsets: &str) -> Option<i64> {
    const TICKS: i64 = 100;
    const NS_OF_TICK: i64 = 1_000_000_000 / TICKS;
    let line = offsets.lines().find_map(|l| l.strip_prefix("boottime"))?;
    let mut fields = line.split_whitespace().map(|f| f.parse::<i64>().ok());
    let (seconds, ns) = (fields.next()??, fields.next()??);
    seconds.checked_mul(TICKS)?.checked_add(ns / NS_OF_TICK)
}

/// The number in field `place` (3 or more, proc(5)) of `stat`, the text of /proc/PID/stat.
/// `None` if that field is missing or not a number.
pub fn stat_field(stat: &str, place: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(place - 3)?.parse().ok()
}

/// The ids of a process's threads, also of ended ones still to be collected. `None` on an error.
pub fn tids(pid: Pid) -> Option<Vec<Tid>> {
    list_tids(pid).ok()
}

fn list_tids(pid: Pid) -> io::Result<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    let tid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(entries.filter_map(tid).map(Tid).collect())
}

/// The value of `key` in a status file of /proc. `None` if the file or the line is missing.
pub fn status_field(path: &str, key: &str) -> Option<String> {
    let text = read_text(path).ok()?;
    status_line(&text, key).map(str::to_owned)
}

/// The value in the first line `KEY: VALUE` of `text`, trimmed. `None` if there is no such line.
pub fn status_line<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut lines = text.lines();
    let value = lines.find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim())
}

#[cfg(test)]
mod tests;
