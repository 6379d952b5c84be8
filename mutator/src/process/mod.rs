//! A process as /proc shows it, before and between the moments it is stopped.

pub mod identity;
pub mod maps;
pub mod modules;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use patcher::Avma;

pub use maps::Mapping;

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub i32);

/// A thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
            Self::Proc(pid, file, error) => write!(f, "{pid}: /proc/{pid}/{file}: {error}"),
        }
    }
}

impl std::error::Error for ProcessError {}

impl ProcessError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied(..) => {
                Some("run ipath as that user or as root (CAP_SYS_PTRACE)".to_owned())
            }
            Self::Traced(.., by, name) => Some(format!("detach {name} (process {by}) first")),
            _ => None,
        }
    }
}

/// A process that can be worked on.
#[derive(Clone, Debug)]
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
        let stat =
            fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| ProcessError::Gone(pid))?;
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
        let threads_left = process.tids().is_some_and(|t| t.len() > 1);
        if (state == 'Z' && !threads_left) || state == 'X' {
            return Err(ProcessError::Zombie(pid));
        }
        Ok(process)
    }

    /// Whether it still runs, under the same start time.
    pub fn is_alive(&self) -> bool {
        Self::find(self.pid).is_ok_and(|p| p.start_time == self.start_time)
    }

    /// What of it has entries in /proc: itself, or where its first thread has ended, one that has
    /// not. An ended thread has no memory, and nothing that goes with it.
    pub fn entry(&self) -> Pid {
        let is_dead = |pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            parse_stat(&stat).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
        };
        if !is_dead(self.pid.0) {
            return self.pid;
        }
        let tids = self.tids().unwrap_or_default();
        let living = tids.into_iter().find(|tid| !is_dead(tid.0));
        living.map_or(self.pid, |tid| Pid(tid.0))
    }

    /// Checks what can be checked before it is touched: permission, kind of program, tracers.
    pub fn check(&self) -> Result<(), ProcessError> {
        let pid = self.pid;
        if pid.0 == std::process::id() as i32 {
            return Err(ProcessError::Own(pid));
        }
        let entry = self.entry();
        match fs::read_link(format!("/proc/{entry}/exe")) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(self.denied()),
            Err(_) => return Err(ProcessError::KernelThread(pid)),
        }
        for tid in self.tids().unwrap_or_default() {
            let tracer = status_field(&format!("/proc/{pid}/task/{tid}/status"), "TracerPid");
            if let Some(by) = tracer
                .and_then(|t| t.parse().ok())
                .filter(|&t: &i32| t != 0)
            {
                let name = fs::read_to_string(format!("/proc/{by}/comm")).unwrap_or_default();
                return Err(ProcessError::Traced(pid, tid, by, name.trim().to_owned()));
            }
        }
        self.check_program()?;
        // Needs the same right as ptrace itself, and does not stop anything.
        match fs::File::open(format!("/proc/{entry}/mem")) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(self.denied()),
            _ => Ok(()),
        }
    }

    /// Checks that its program is x86-64 code.
    pub fn check_program(&self) -> Result<(), ProcessError> {
        let pid = self.pid;
        let mut magic = [0u8; 20];
        match fs::File::open(format!("/proc/{}/exe", self.entry())) {
            Ok(file) => {
                let _ = file.read_at(&mut magic, 0);
                if !magic.starts_with(b"\x7fELF") || magic[4] != 2 || magic[18] != 62 {
                    let what = match (magic[4], magic[18]) {
                        (1, 3) => "its program is 32-bit x86 (ELF32)",
                        (1, 62) => "its program uses the x32 ABI (ELF32)",
                        _ => "its program is not an x86-64 ELF file",
                    };
                    return Err(ProcessError::NotElf64(pid, what));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(self.denied()),
            Err(_) => {}
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

    /// Its mappings, ordered by address.
    pub fn maps(&self) -> Result<Vec<Mapping>, ProcessError> {
        let path = format!("/proc/{}/maps", self.entry());
        let text = fs::read(path).map_err(|e| self.proc_error("maps", e))?;
        Ok(maps::parse(&String::from_utf8_lossy(&text)))
    }

    /// The same for choosing free addresses: a program without a heap has an empty one where it will
    /// begin.
    pub fn maps_with_heap(&self) -> Result<Vec<Mapping>, ProcessError> {
        let mut maps = self.maps()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.entry()));
        if let Some(start) = stat.ok().and_then(|stat| stat_field(&stat, 47)) {
            maps::expect_heap(&mut maps, Avma(start));
        }
        Ok(maps)
    }

    /// The ids of its threads.
    pub fn tids(&self) -> Option<Vec<Tid>> {
        tids(self.pid)
    }

    /// A value of /proc/PID/status.
    pub fn status(&self, key: &str) -> Option<String> {
        status_field(&format!("/proc/{}/status", self.pid), key)
    }

    /// Its id in its own pid namespace.
    pub fn inner_pid(&self) -> i32 {
        let ids = self.status("NSpid").unwrap_or_default();
        ids.split_whitespace()
            .last()
            .and_then(|id| id.parse().ok())
            .unwrap_or(self.pid.0)
    }

    /// Path of its program.
    pub fn exe(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.entry())).ok()
    }

    /// Its command line.
    pub fn args(&self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.entry())).unwrap_or_default();
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        bytes
            .split(|&b| b == 0)
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect()
    }

    /// A value of its auxiliary vector, getauxval(3).
    pub fn auxiliary(&self, kind: u64) -> Option<u64> {
        let bytes = fs::read(format!("/proc/{}/auxv", self.entry())).ok()?;
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
        bytes.chunks_exact(16).find_map(|pair| {
            let (key, value) = pair.split_at(8);
            (word(key)? == kind).then(|| word(value))?
        })
    }

    /// Its memory, for reading and, where the right is there, writing.
    pub fn memory(&self) -> Result<Memory, ProcessError> {
        let path = format!("/proc/{}/mem", self.entry());
        let file = fs::File::options().read(true).write(true).open(path);
        file.map(Memory).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => self.denied(),
            io::ErrorKind::NotFound => ProcessError::Gone(self.pid),
            _ => self.proc_error("mem", e),
        })
    }

    fn proc_error(&self, file: &'static str, error: io::Error) -> ProcessError {
        match error.kind() {
            io::ErrorKind::NotFound => ProcessError::Gone(self.pid),
            io::ErrorKind::PermissionDenied => self.denied(),
            _ if error.raw_os_error() == Some(libc::ESRCH) => ProcessError::Gone(self.pid),
            _ => ProcessError::Proc(self.pid, file, error),
        }
    }
}

/// State letter and start time: fields 3 and 22 of /proc/PID/stat, behind the command's name, which
/// may hold anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.trim_start().chars().next()?;
    Some((state, stat_field(stat, 22)?))
}

/// A number of /proc/PID/stat by its place in proc(5), which is above 3.
fn stat_field(stat: &str, place: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(place - 3)?.parse().ok()
}

/// The ids of a process's threads, those included that have ended and nobody has collected.
pub fn tids(pid: Pid) -> Option<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let tids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok().map(Tid));
    Some(tids.collect())
}

fn status_field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// The memory of a process through /proc/PID/mem, which reads and writes whatever the protection
/// of the pages.
#[derive(Debug)]
pub struct Memory(fs::File);

impl Memory {
    /// Fills `buffer` from `at`.
    pub fn read(&self, at: Avma, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, at.0)
    }

    /// `len` bytes from `at`.
    pub fn read_vec(&self, at: Avma, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The word at `at`.
    pub fn read_word(&self, at: Avma) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes `bytes` at `at`.
    pub fn write(&self, at: Avma, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at.0)?;
        crate::faults::step("write memory");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse_stat() {
        let tail: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("42 (a) b) (c) S {}", tail.join(" "));
        assert_eq!(parse_stat(&stat), Some(('S', 22)));
    }

    #[test]
    fn finds_itself() {
        let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
        assert!(own.is_alive() && !own.args().is_empty());
        assert!(matches!(own.check(), Err(ProcessError::Own(_))));
        assert!(
            own.maps()
                .expect("readable")
                .iter()
                .any(|m| m.name == "[stack]")
        );
        assert_eq!(own.auxiliary(6), Some(4096));
    }
}
