//! A process as /proc shows it, before and between the moments it is stopped.

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
use ipath_base::error::Failure;
use ipath_base::hint::{Hint, Word, hint};

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

/// Why a process cannot be worked on.
#[derive(Debug)]
pub enum ProcessError {
    /// There is none of this id.
    Gone(Pid),
    /// It has ended and waits for its parent.
    Zombie(Pid),
    /// It has no program: a kernel thread.
    KernelThread(Pid),
    /// It is this very process.
    Own(Pid),
    /// It belongs to someone else.
    Denied(Pid, String),
    /// Its program is not x86-64.
    NotElf64(Pid, &'static str),
    /// A debugger or tracer holds it.
    Traced(Pid, Tid, i32, String),
    /// A file of /proc cannot be read.
    Proc(Pid, &'static str, io::Error),
    /// It has become another program since it was looked at.
    OtherProgram(Pid),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "{pid}: no such process"),
            Self::Zombie(pid) => write!(f, "{pid}: the process has ended and waits for its parent"),
            Self::KernelThread(pid) => write!(f, "{pid}: a kernel thread has no program"),
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
    /// Where it says that what the process was is no more: what has become of it.
    pub fn loss(&self) -> Option<Presence> {
        match self {
            Self::Gone(_) | Self::Zombie(_) => Some(Presence::Ended),
            Self::OtherProgram(_) => Some(Presence::OtherProgram),
            _ => None,
        }
    }

    /// As a user meets it, in the course of `operation`.
    pub fn failure(self, operation: &str) -> Failure {
        let hint = self.hint();
        Failure::of(operation, self).maybe_hint(hint)
    }

    /// A thread of a process is traced by somebody, who has a name.
    pub fn traced(pid: Pid, tid: Tid, by: i32) -> Self {
        let name = read_text(format!("/proc/{by}/comm")).unwrap_or_default();
        Self::Traced(pid, tid, by, name.trim().to_owned())
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            // SAFETY: takes no argument and cannot fail.
            Self::Denied(..) if unsafe { libc::geteuid() } == 0 => Some(
                "root is not enough here: a container without CAP_SYS_PTRACE, or a security module"
                    .into(),
            ),
            Self::Denied(..) => Some("run ipath as that user or as root (CAP_SYS_PTRACE)".into()),
            Self::NotElf64(..) => {
                Some("ipath measures 64-bit programs of x86-64, and no others".into())
            }
            Self::Zombie(_) => Some("there is nothing left to look at".into()),
            Self::OtherProgram(_) => Some("attach to what it is now".into()),
            Self::Own(_) => Some("name the process that is to be looked at".into()),
            Self::KernelThread(_) => Some("perf and bpftrace look into the kernel".into()),
            Self::Traced(.., by, name) if name == FOLLOWER => {
                let process = status_field(&format!("/proc/{by}/status"), "Tgid");
                let process = process.unwrap_or_else(|| by.to_string());
                Some(hint!(
                    "ipath follows it: change it in the view of that one, or end that (`kill {}`)",
                    Word(&process)
                ))
            }
            Self::Traced(.., by, name) => {
                Some(hint!("detach {} (process {}) first", Word(name), *by))
            }
            _ => None,
        }
    }
}

/// A process that can be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// Clock ticks between boot and its start: with `pid`, what names it for good.
    pub start_time: u64,
}

impl Process {
    /// The process of this id, if it exists and is not a kernel thread.
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
        // A thread's id has a /proc entry too; the process is what owns the memory.
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

    /// Checks what can be checked before it is touched: permission, kind of program, tracers.
    pub fn check(&self) -> Result<(), ProcessError> {
        let pid = self.pid;
        if pid.0 == std::process::id() as i32 {
            return Err(ProcessError::Own(pid));
        }
        if self.is_kernel_thread() {
            return Err(ProcessError::KernelThread(pid));
        }
        // One that is about to end has no program.
        self.of_living("exe", |path| fs::read_link(path))?;
        self.check_tracer()?;
        self.check_program()?;
        // Needs the same right as ptrace itself, and does not stop anything.
        self.of_living("mem", |path| fs::File::open(path)).map(drop)
    }

    /// The signals that its first thread blocks, and those that it ignores, as masks.
    pub fn signals(&self) -> io::Result<[u64; 2]> {
        let status = read_text(format!("/proc/{}/status", self.pid))?;
        let mask = |key| u64::from_str_radix(status_line(&status, key)?, 16).ok();
        Ok(["SigBlk", "SigIgn"].map(|key| mask(key).unwrap_or(0)))
    }

    /// PF_KTHREAD, include/linux/sched.h.
    fn is_kernel_thread(&self) -> bool {
        const PF_KTHREAD: u64 = 0x0020_0000;
        let stat = read_text(format!("/proc/{}/stat", self.pid));
        let flags = stat.ok().and_then(|stat| stat_field(&stat, 9));
        flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// Checks that nobody traces it. Another ipath does so for milliseconds, and is waited for.
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

    /// A traced thread and the process that traces it. While a tracer detaches from a thread, the
    /// kernel reports the thread's parent for a moment (`__ptrace_unlink`, kernel/ptrace.c), so
    /// this reads until two results agree.
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

    /// The thread that traces one of its threads.
    pub fn tracer_of(&self, tid: Tid) -> Option<i32> {
        let path = format!("/proc/{}/task/{tid}/status", self.pid);
        let by = status_field(&path, "TracerPid")?.parse().ok()?;
        (by != 0).then_some(by)
    }

    /// Checks that its program is x86-64 code.
    pub fn check_program(&self) -> Result<(), ProcessError> {
        /// Size of a program header entry (AT_PHENT), and its value for ELF64.
        const ENTRY: u64 = 4;
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

    /// Its mappings, ordered by address, as they are now: see [`Space`] for what must not change
    /// unnoticed.
    pub fn maps(&self) -> Result<Vec<Mapping>, ProcessError> {
        let text = self.of_living("maps", |path| fs::read(path))?;
        Ok(maps::parse(&String::from_utf8_lossy(&text)))
    }

    /// The ids of its threads.
    pub fn tids(&self) -> Option<Vec<Tid>> {
        tids(self.pid)
    }

    /// The same, or why they are not known.
    pub fn list_tids(&self) -> io::Result<Vec<Tid>> {
        list_tids(self.pid)
    }

    /// Its CPU time since it began, ns: the clock's id is made from its own (clock_getcpuclockid(3)).
    pub fn cpu_time(&self) -> Option<u64> {
        const NS: u64 = 1_000_000_000;
        let mut clock = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both write what they are given.
        let has_time = unsafe {
            libc::clock_getcpuclockid(self.pid.0, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        has_time.then(|| time.tv_sec as u64 * NS + time.tv_nsec as u64)
    }

    /// True if a thread is there, as far as can be seen: what cannot be read may be there.
    pub fn has_thread(&self, tid: Tid) -> bool {
        let folder = fs::metadata(format!("/proc/{}/task/{tid}", self.pid));
        folder.map_or_else(|e| !is_no_process(&e), |_| true)
    }

    /// A value of /proc/PID/status.
    pub fn status(&self, key: &str) -> Option<String> {
        status_field(&format!("/proc/{}/status", self.pid), key)
    }

    /// A value of a thread's /proc/PID/task/TID/status.
    pub fn thread_status(&self, tid: Tid, key: &str) -> Option<String> {
        status_field(&format!("/proc/{}/task/{tid}/status", self.pid), key)
    }

    /// True if it has memory locked, and may so have all locked that it maps from now on (mlockall(2)).
    pub fn locks_memory(&self) -> bool {
        let locked = status_field(&format!("/proc/{}/status", self.entry()), "VmLck");
        locked.is_some_and(|size| !size.starts_with("0 "))
    }

    /// Its ids in the pid namespaces that it is in, its own the last.
    fn ids(&self) -> Vec<i32> {
        let ids = self.status("NSpid").unwrap_or_default();
        ids.split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    /// The thread with this id in its own pid namespace.
    pub fn tid_of_inner(&self, inner: u32) -> Option<Tid> {
        let is_it = |tid: &Tid| {
            let ids = self.thread_status(*tid, "NSpid").unwrap_or_default();
            ids.split_whitespace().last().and_then(|id| id.parse().ok()) == Some(inner)
        };
        over(THREADS, self.tids()?).find(is_it)
    }

    /// Its id in its own pid namespace.
    pub fn inner_pid(&self) -> i32 {
        self.ids().last().copied().unwrap_or(self.pid.0)
    }

    /// True if this is its id in one of the pid namespaces that it is in.
    pub fn has_id(&self, pid: i32) -> bool {
        self.ids().contains(&pid)
    }

    /// The user with whose rights it acts.
    pub fn effective_user(&self) -> Option<u32> {
        let users = self.status("Uid")?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    /// Path of its program.
    pub fn exe(&self) -> Option<PathBuf> {
        self.of_living("exe", |path| fs::read_link(path)).ok()
    }

    /// What stat(2) says of its program.
    pub fn exe_metadata(&self) -> Option<fs::Metadata> {
        self.of_living("exe", |path| fs::metadata(path)).ok()
    }

    /// The folder in which names that begin with none are looked up.
    pub fn cwd(&self) -> Option<PathBuf> {
        self.of_living("cwd", |path| fs::read_link(path)).ok()
    }

    /// Where the loader of its program is; none where that has none (AT_BASE of getauxval(3)).
    pub fn loader(&self) -> Option<Avma> {
        const AT_BASE: u64 = 7;
        let base = self.auxiliary(AT_BASE).filter(|&base| base != 0);
        base.map(Avma)
    }

    /// A value of its auxiliary vector, getauxval(3).
    pub fn auxiliary(&self, kind: u64) -> Option<u64> {
        let bytes = self.of_living("auxv", |path| fs::read(path)).ok()?;
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
        bytes.chunks_exact(16).find_map(|pair| {
            let (key, value) = pair.split_at(8);
            (word(key)? == kind).then(|| word(value))?
        })
    }

    /// Its memory as it is now: see [`Space`] for what must not change unnoticed.
    pub fn open_memory(&self) -> Result<Memory, ProcessError> {
        let open = |path: &str| fs::File::options().read(true).write(true).open(path);
        self.of_living("mem", open).map(Memory::new)
    }

    /// What is not there says that the process has ended only if it has.
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

/// How long another ipath is waited for that traces the process.
const PATIENCE: Duration = Duration::from_secs(10);

/// What every ipath command is called, whatever its file is.
const NAME: &CStr = c"ipath";

/// Lets the calling thread be known to other ipath commands.
pub fn take_name() {
    // Without it, others refuse what they would have waited for.
    let _ = nix::sys::prctl::set_name(NAME);
}

/// The name of a thread of ipath's that traces for as long as something is followed.
pub const FOLLOWER: &str = "ipath-follows";

/// True if a thread that has been seen to trace does so for a moment only: one of another ipath command, told by
/// its name, or one that has ended since. One that is told wrongly is waited for in vain.
pub fn is_passing(tid: i32) -> bool {
    match fs::read(format!("/proc/{tid}/comm")) {
        Ok(name) => tid != std::process::id() as i32 && name.trim_ascii_end() == NAME.to_bytes(),
        Err(error) => is_no_process(&error),
    }
}

/// True if this is what /proc answers for a process that is not there.
pub fn is_no_process(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// State letter and start time: fields 3 and 22 of /proc/PID/stat, after the command's name, which
/// may hold anything. The start time is the same from every time namespace.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let state = state_letter(stat)?;
    let start_time = stat_field(stat, 22)?;
    Some((state, start_time.wrapping_add_signed(-boot_offset())))
}

/// How far the clock since boot is put forward for this process, clock ticks (time_namespaces(7)).
fn boot_offset() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // Those of its children; its own are the same but between unshare(2) and fork(2).
        let offsets = read_text("/proc/self/timens_offsets").unwrap_or_default();
        parse_boot_offset(&offsets).unwrap_or(0)
    })
}

fn parse_boot_offset(offsets: &str) -> Option<i64> {
    const TICKS: i64 = 100;
    const NS_OF_TICK: i64 = 1_000_000_000 / TICKS;
    let line = offsets.lines().find_map(|l| l.strip_prefix("boottime"))?;
    let mut fields = line.split_whitespace().map(|f| f.parse::<i64>().ok());
    let (seconds, ns) = (fields.next()??, fields.next()??);
    seconds.checked_mul(TICKS)?.checked_add(ns / NS_OF_TICK)
}

/// A number of /proc/PID/stat by its place in proc(5), which is above 3.
pub fn stat_field(stat: &str, place: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(place - 3)?.parse().ok()
}

/// The ids of a process's threads, those included that have ended and nobody has collected.
pub fn tids(pid: Pid) -> Option<Vec<Tid>> {
    list_tids(pid).ok()
}

fn list_tids(pid: Pid) -> io::Result<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    let tids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok().map(Tid));
    Ok(tids.collect())
}

fn status_field(path: &str, key: &str) -> Option<String> {
    let text = read_text(path).ok()?;
    status_line(&text, key).map(str::to_owned)
}

/// The value of a line `KEY: VALUE`.
pub fn status_line<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut lines = text.lines();
    let value = lines.find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_name_with_brackets_does_not_confuse_stat() {
        let tail: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("42 (a) b) (c) S {}", tail.join(" "));
        assert_eq!(parse_stat(&stat), Some(('S', 22)));
    }

    #[test]
    fn offsets_of_time_namespaces_are_read() {
        let text = "monotonic           0         0\nboottime        -1000  20000000\n";
        assert_eq!(parse_boot_offset(text), Some(-99_998));
        assert_eq!(parse_boot_offset("boottime 5 0\n"), Some(500));
        assert_eq!(parse_boot_offset(""), None);
    }

    #[test]
    fn finds_itself() {
        let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
        assert!(own.life() == Presence::Here && !own.args().is_empty());
        assert!(matches!(own.check(), Err(ProcessError::Own(_))));
        assert!(
            own.maps()
                .expect("readable")
                .iter()
                .any(|m| m.name == "[stack]")
        );
        assert_eq!(own.auxiliary(6), Some(4096));
    }

    /// A mapping is found whatever its file is called.
    #[test]
    fn names_that_are_no_text_hide_no_mapping() {
        let name = OsStr::from_bytes(b"ipath \xff\n[heap] (deleted) ");
        let path = std::env::temp_dir().join(format!("ipath-maps-{}", std::process::id()));
        fs::create_dir_all(&path).expect("room for a folder");
        let file = path.join(name);
        fs::write(&file, [0; 64]).expect("room for a file");
        let opened = fs::File::open(&file).expect("there");
        // SAFETY: nobody else has the file.
        let map = unsafe { memmap2::Mmap::map(&opened) }.expect("it can be mapped");
        let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
        let maps = own.maps().expect("readable");
        let found = maps.iter().find(|m| m.range.start.0 == map.as_ptr() as u64);
        let found = found.expect("it is mapped");
        assert!(identity::is_mapped_as(&opened, &found.file).expect("known"));
        fs::remove_dir_all(&path).expect("ours");
    }
}
