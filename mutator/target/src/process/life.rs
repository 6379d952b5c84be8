//! The life of a process: running, ending, ended.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Mapping, Pid, Presence, Process, ProcessError, Tid, read_text};
use super::{is_no_process, parse_stat, stat_field, status_field};
use crate::progress::{THREADS, over};

/// The signals that stop a process unless it handles them.
pub const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The most retries if a process, or the thread being inspected, is about to end.
const TRIES: u32 = 1000;
/// The time between retries.
const A_MOMENT: Duration = Duration::from_millis(1);

/// The progress of a thread's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not begun, judging by /proc.
    NotBegun,
    /// A SIGKILL is pending, or the thread has begun to end (PF_EXITING, include/linux/sched.h).
    Begun,
    /// Ended. It may still wait to be collected.
    Over,
}

impl Process {
    /// `Here` if the process still runs, under the same start time. A zombie does not.
    pub fn life(&self) -> Presence {
        for _ in 0..TRIES {
            if let Some(presence) = self.life_now() {
                return presence;
            }
            std::thread::sleep(A_MOMENT);
        }
        Presence::Unknown("its threads start and end faster than they can be inspected".to_owned())
    }

    /// One attempt of [`life`](Self::life). `None` if it is inconclusive.
    fn life_now(&self) -> Option<Presence> {
        let (state, threads) = match self.state() {
            Ok(Some(state)) => state,
            Ok(None) => return Some(Presence::Ended),
            Err(error) if is_no_process(&error) => return Some(self.unseen()),
            Err(error) => return Some(Presence::Unknown(ipath_base::error::io_text(&error))),
        };
        match state {
            // An ended leader stays while other threads run. A leader that is its group's last
            // thread has ended for good.
            'Z' if threads <= 1 => Some(Presence::Ended),
            'Z' => self.life_of_others(),
            // Another thread has called exec(2) and takes over the leader's id.
            'X' => None,
            _ => Some(Presence::Here),
        }
    }

    /// The presence as shown by the other threads, after the first one has ended.
    ///
    /// The process has ended if the ended threads seen equal the kernel's count, and all are still
    /// listed after that count. A thread may start another one and end in between.
    fn life_of_others(&self) -> Option<Presence> {
        let tids = self.list_tids().ok()?;
        if tids.iter().any(|&tid| !self.is_dead(tid)) {
            return Some(Presence::Here);
        }
        let (state, threads) = self.state().ok()??;
        let are_all = threads == tids.len() as u64 && tids.iter().all(|&tid| self.has_thread(tid));
        (state == 'Z' && are_all).then_some(Presence::Ended)
    }

    /// The state of the first thread, and the number of threads including ended ones not yet
    /// collected. `None` if another process has this id.
    fn state(&self) -> io::Result<Option<(char, u64)>> {
        let stat = read_text(format!("/proc/{}/stat", self.pid))?;
        let (state, start_time) =
            parse_stat(&stat).ok_or_else(|| io::Error::other("/proc/PID/stat is not readable"))?;
        let threads = stat_field(&stat, 20).unwrap_or(0);
        Ok((start_time == self.start_time).then_some((state, threads)))
    }

    /// The reason why the process is stopped, in words. `None` if it is not stopped, or only by a
    /// tracer thread of this command.
    pub fn stands(&self) -> Option<String> {
        let (state, _) = self.state().ok()??;
        match state {
            'T' => Some("stopped by a signal".to_owned()),
            't' => {
                let by = self.tracer().map(|(_, by)| by);
                // A follower in this command resumes its tracees at once.
                if by.is_some_and(|by| Path::new(&format!("/proc/self/task/{by}")).exists()) {
                    return None;
                }
                let name = by.and_then(|by| {
                    let name = read_text(format!("/proc/{by}/comm")).ok()?;
                    Some(format!("stopped by {by} ({})", name.trim()))
                });
                Some(name.unwrap_or_else(|| "stopped by its tracer".to_owned()))
            }
            _ => None,
        }
    }

    /// The presence of a process that /proc does not show. kill(2) finds it even if /proc hides
    /// other users' processes (hidepid in proc(5)).
    pub(super) fn unseen(&self) -> Presence {
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid.0), None) {
            Err(nix::errno::Errno::ESRCH) => Presence::Ended,
            _ => Presence::Unknown("it exists, but /proc does not show it".to_owned()),
        }
    }

    /// True if the process is known to have ended. False if unknown.
    pub fn has_ended(&self) -> bool {
        self.life() == Presence::Ended
    }

    /// An id with memory in /proc: its own, or the latest living thread's if the first thread has
    /// ended. An ended thread has no memory and no memory-related files.
    pub fn entry(&self) -> Pid {
        if self.has_memory(Tid(self.pid.0)) {
            return self.pid;
        }
        let tids = self.tids().unwrap_or_default().into_iter().rev();
        let living = tids.into_iter().find(|&tid| self.has_memory(tid));
        living.map_or(self.pid, |tid| Pid(tid.0))
    }

    /// True if the thread has not begun to end.
    fn has_memory(&self, tid: Tid) -> bool {
        // Bytes of its address space, `vsize` of proc(5).
        let size = |stat: String| stat_field(&stat, 23);
        self.thread_stat(tid).is_ok_and(|stat| size(stat) > Some(0))
    }

    /// Reads a file of a living thread in /proc: `read` gets its path. Retries with another thread
    /// if that one ends meanwhile.
    pub(super) fn of_living<T>(
        &self,
        file: &'static str,
        read: impl Fn(&str) -> io::Result<T>,
    ) -> Result<T, ProcessError> {
        for _ in 0..TRIES {
            match read(&format!("/proc/{}/{file}", self.entry())) {
                Err(error) if is_no_process(&error) => match self.life() {
                    Presence::Here | Presence::OtherProgram => {}
                    _ => return Err(self.proc_error(file, error)),
                },
                other => return other.map_err(|e| self.proc_error(file, e)),
            }
            std::thread::sleep(A_MOMENT);
        }
        let why = "its threads end faster than they can be inspected";
        Err(self.proc_error(file, io::Error::other(why)))
    }

    fn thread_stat(&self, tid: Tid) -> io::Result<String> {
        read_text(format!("/proc/{}/task/{tid}/stat", self.pid))
    }

    /// True if the thread has ended. It may still wait to be collected.
    fn is_dead(&self, tid: Tid) -> bool {
        match self.thread_stat(tid) {
            Ok(stat) => is_over(&stat),
            Err(error) => is_no_process(&error),
        }
    }

    /// True if the whole process is known to be ending: by a signal, or by exit_group(2) with a
    /// nonzero status. A thread may have taken its SIGKILL without having begun to end.
    fn is_ending(&self) -> bool {
        /// The status that the process ends with once known, or the signal that stops it. 0 if
        /// hidden (`exit_code` in proc(5)). The stat files of its threads show it only once each
        /// has begun to end (fs/proc/array.c).
        const EXIT_CODE: usize = 52;
        let stat = read_text(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let code = stat_field(&stat, EXIT_CODE).unwrap_or(0);
        match parse_stat(&stat) {
            // The cause of the first thread's ptrace-stop (ptrace_stop in kernel/signal.c).
            None | Some(('t', _)) => false,
            // The first thread's own status. A signal that ends it ends the process.
            Some(('Z' | 'X', _)) => code & 0x7f != 0,
            Some(_) => code != 0 && !STOPS.iter().any(|&stop| code == stop as u64),
        }
    }

    /// The progress of a thread's end.
    fn end_of(&self, tid: Tid) -> End {
        const PF_EXITING: u64 = 0x4;
        const SIGKILL: u64 = libc::SIGKILL as u64;
        let stat = match self.thread_stat(tid) {
            Ok(stat) => stat,
            Err(error) if is_no_process(&error) => return End::Over,
            Err(_) => return End::NotBegun,
        };
        if is_over(&stat) {
            return End::Over;
        }
        let is_exiting = stat_field(&stat, 9).is_some_and(|flags| flags & PF_EXITING != 0);
        if is_exiting {
            return End::Begun;
        }
        let path = format!("/proc/{}/task/{tid}/status", self.pid);
        let pending = status_field(&path, "SigPnd");
        match pending.map(|mask| u64::from_str_radix(&mask, 16)) {
            Some(Ok(mask)) if mask & 1 << (SIGKILL - 1) == 0 => End::NotBegun,
            // Pending, or the thread has just ended.
            _ => End::Begun,
        }
    }

    /// The process's mappings ([`Process::maps`]), never empty.
    ///
    /// # Errors
    /// The presence that explains why there are none. A process that is about to end briefly has no
    /// memory. Neither does an ending first thread.
    pub fn living_maps(&self) -> Result<Vec<Mapping>, Presence> {
        for _ in 0..TRIES {
            match self.life() {
                Presence::Here => {}
                other => return Err(other),
            }
            match self.maps() {
                Ok(maps) if !maps.is_empty() => return Ok(maps),
                Ok(_) | Err(ProcessError::Gone(_)) => {}
                Err(error) => return Err(Presence::Unknown(error.to_string())),
            }
            std::thread::sleep(A_MOMENT);
        }
        Err(Presence::Unknown("it has no memory".to_owned()))
    }

    /// The presence of a process that has lost the address space it was in.
    pub(super) fn after_loss(&self) -> Presence {
        self.living_maps()
            .map_or_else(|presence| presence, |_| Presence::OtherProgram)
    }

    /// The presence once all ending threads have ended. [`Presence::Here`] also if they have not
    /// within 10 seconds. If a traced thread is gone, the whole process may be ending.
    pub fn settled(&self) -> Presence {
        /// On a busy machine a killed thread ends only once it is scheduled.
        const PATIENCE: Duration = Duration::from_secs(10);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Err(presence) = self.living_maps() {
                return presence;
            }
            let Some(tids) = self.tids() else {
                return Presence::Here;
            };
            // If all threads have ended since the maps were read, so has the process.
            let mut lives = false;
            let mut ends = over(THREADS, tids).map(|tid| self.end_of(tid));
            let is_dying = ends.any(|end| {
                lives |= end == End::NotBegun;
                end == End::Begun
            });
            if lives && !is_dying && !self.is_ending() {
                return Presence::Here;
            }
            std::thread::sleep(A_MOMENT);
        }
        Presence::Here
    }
}

/// True if the stat file is of a thread that has ended.
fn is_over(stat: &str) -> bool {
    parse_stat(stat).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// A program whose threads sleep.
    const PROGRAM: &str = "
import threading, time
for i in range(8): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print('ready', flush=True)
time.sleep(100)
";

    #[test]
    fn what_has_been_killed_settles_as_ended() {
        for round in 0..40 {
            let mut command = Command::new("python3");
            command.args(["-c", PROGRAM]).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            let output = child.stdout.take().unwrap();
            BufReader::new(output).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            let pid = Pid(child.id() as i32);
            let process = Process::find(pid).unwrap();
            assert_eq!(process.settled(), Presence::Here);
            kill(nix::unistd::Pid::from_raw(pid.0), Signal::SIGKILL).unwrap();
            let settled = process.settled();
            child.wait().unwrap();
            assert_eq!(settled, Presence::Ended, "round {round}");
        }
    }

    /// Waits until the process is in this state.
    fn await_state(process: &Process, wanted: char) {
        loop {
            let stat = read_text(format!("/proc/{}/stat", process.pid)).unwrap();
            if parse_stat(&stat).is_some_and(|(state, _)| state == wanted) {
                return;
            }
            std::thread::sleep(A_MOMENT);
        }
    }

    /// Covers three kinds of stops: by a tracer at any signal, by a stop signal to the whole
    /// process, and a first thread that has ended alone.
    #[test]
    fn what_is_stopped_does_not_end() {
        let mut command = Command::new("sleep");
        // SAFETY: the closure allocates no memory.
        unsafe {
            command.arg("100").pre_exec(|| {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let process = Process::find(Pid(child.id() as i32)).unwrap();
        let raw = nix::unistd::Pid::from_raw(process.pid.0);
        for signal in [
            None,
            Some(Signal::SIGUSR1),
            Some(Signal::SIGSEGV),
            Some(Signal::SIGSTOP),
        ] {
            if let Some(signal) = signal {
                kill(raw, signal).unwrap();
                // SAFETY: the child is stopped, and this thread traces it.
                unsafe { libc::ptrace(libc::PTRACE_CONT, raw.as_raw(), 0, 0) };
            }
            // SAFETY: the pid is an own child's, and no status is written.
            unsafe { libc::waitpid(raw.as_raw(), std::ptr::null_mut(), 0) };
            await_state(&process, 't');
            assert!(!process.is_ending(), "{signal:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let script = "
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(100,)).start()
ctypes.CDLL(None).syscall(60, 3)
";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let process = Process::find(Pid(child.id() as i32)).unwrap();
        await_state(&process, 'Z');
        assert!(!process.is_ending());
        assert_eq!(process.settled(), Presence::Here);
        child.kill().unwrap();
        child.wait().unwrap();

        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::find(Pid(child.id() as i32)).unwrap();
        kill(nix::unistd::Pid::from_raw(process.pid.0), Signal::SIGSTOP).unwrap();
        await_state(&process, 'T');
        assert!(!process.is_ending());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
