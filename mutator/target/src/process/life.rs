//! Whether a process lives, and what of it does.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Mapping, Pid, Presence, Process, ProcessError, Tid, read_text};
use super::{is_no_process, parse_stat, stat_field, status_field};
use crate::progress::{THREADS, over};

/// The signals that stop a process, those of them that it does not handle.
pub const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// How often it is looked again where a process, or the thread that was looked at, is about to end.
const TRIES: u32 = 1000;
/// How long between.
const A_MOMENT: Duration = Duration::from_millis(1);

/// How far a thread is with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As far as can be told.
    NotBegun,
    /// SIGKILL is under way to it, or it has begun (PF_EXITING, include/linux/sched.h).
    Begun,
    /// It may wait to be collected.
    Over,
}

impl Process {
    /// `Here` where the process still runs, under the same start time; a zombie does not.
    pub fn life(&self) -> Presence {
        for _ in 0..TRIES {
            if let Some(presence) = self.life_now() {
                return presence;
            }
            std::thread::sleep(A_MOMENT);
        }
        Presence::Unknown("its threads begin and end faster than they can be looked at".to_owned())
    }

    /// The same as far as one look tells.
    fn life_now(&self) -> Option<Presence> {
        let (state, threads) = match self.state() {
            Ok(Some(state)) => state,
            Ok(None) => return Some(Presence::Ended),
            Err(error) if is_no_process(&error) => return Some(self.unseen()),
            Err(error) => return Some(Presence::Unknown(ipath_base::error::io_text(&error))),
        };
        match state {
            // A leader that has ended stays while others of its threads run; on its own it has been counted last.
            'Z' if threads <= 1 => Some(Presence::Ended),
            'Z' => self.life_of_others(),
            // Another thread has called exec(2), and takes its place.
            'X' => None,
            _ => Some(Presence::Here),
        }
    }

    /// The same by the other threads, where the first has ended. All have ended if as many as the kernel counts
    /// are seen to have, and are still listed after it has counted: a thread may begin another one and end.
    fn life_of_others(&self) -> Option<Presence> {
        let tids = self.list_tids().ok()?;
        if tids.iter().any(|&tid| !self.is_dead(tid)) {
            return Some(Presence::Here);
        }
        let (state, threads) = self.state().ok()??;
        let are_all = threads == tids.len() as u64 && tids.iter().all(|&tid| self.has_thread(tid));
        (state == 'Z' && are_all).then_some(Presence::Ended)
    }

    /// State of its first thread, and how many threads there are, those included that have ended and are not
    /// collected; `None` where another process has its id.
    fn state(&self) -> io::Result<Option<(char, u64)>> {
        let stat = read_text(format!("/proc/{}/stat", self.pid))?;
        let (state, start_time) =
            parse_stat(&stat).ok_or_else(|| io::Error::other("/proc/PID/stat is not readable"))?;
        let threads = stat_field(&stat, 20).unwrap_or(0);
        Ok((start_time == self.start_time).then_some((state, threads)))
    }

    /// How it stands, in words, where it is stopped.
    pub fn stands(&self) -> Option<String> {
        let (state, _) = self.state().ok()??;
        match state {
            'T' => Some("stopped by a signal".to_owned()),
            't' => {
                let by = self.tracer().map(|(_, by)| by);
                // What this command follows it lets go on at once.
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

    /// Where /proc hides the processes of others (hidepid of proc(5)), a signal still finds them.
    pub(super) fn unseen(&self) -> Presence {
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid.0), None) {
            Err(nix::errno::Errno::ESRCH) => Presence::Ended,
            _ => Presence::Unknown("it is there, and /proc does not show it".to_owned()),
        }
    }

    /// True if it is known to have ended: what cannot be told is not.
    pub fn has_ended(&self) -> bool {
        self.life() == Presence::Ended
    }

    /// What of it has entries in /proc: itself, or where its first thread has ended, one that has
    /// not, the latest. An ended thread has no memory, and nothing that goes with it.
    pub fn entry(&self) -> Pid {
        if self.has_memory(Tid(self.pid.0)) {
            return self.pid;
        }
        let tids = self.tids().unwrap_or_default().into_iter().rev();
        let living = tids.into_iter().find(|&tid| self.has_memory(tid));
        living.map_or(self.pid, |tid| Pid(tid.0))
    }

    /// True if a thread has not begun to end.
    fn has_memory(&self, tid: Tid) -> bool {
        // Bytes of its address space, `vsize` of proc(5).
        let size = |stat: String| stat_field(&stat, 23);
        self.thread_stat(tid).is_ok_and(|stat| size(stat) > Some(0))
    }

    /// What `read` gives of a file in the folder that a living thread of it has in /proc: of another thread's
    /// where that one ends meanwhile.
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
        let why = "its threads end faster than they can be looked at";
        Err(self.proc_error(file, io::Error::other(why)))
    }

    fn thread_stat(&self, tid: Tid) -> io::Result<String> {
        read_text(format!("/proc/{}/task/{tid}/stat", self.pid))
    }

    /// True if a thread has ended; it may wait to be collected.
    fn is_dead(&self, tid: Tid) -> bool {
        match self.thread_stat(tid) {
            Ok(stat) => is_over(&stat),
            Err(error) => is_no_process(&error),
        }
    }

    /// True if all of its threads are about to end, as far as that is known: by a signal, or by exit_group(2) with a status that is not
    /// 0. A thread may have taken its SIGKILL and not begun with its end.
    fn is_ending(&self) -> bool {
        /// What the process ends with, once that is known, or the signal that it is stopped by; 0 where it is hidden (`exit_code` of
        /// proc(5)). Those of its threads have it only once each has begun to end (fs/proc/array.c).
        const EXIT_CODE: usize = 52;
        let stat = read_text(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // As long as the process does not end, it is that of its first thread: what a tracer has stopped it for (ptrace_stop in
        // kernel/signal.c), or what it has ended with, alone.
        let is_of_first =
            parse_stat(&stat).is_none_or(|(state, _)| matches!(state, 't' | 'Z' | 'X'));
        let code = stat_field(&stat, EXIT_CODE).unwrap_or(0);
        code != 0 && !is_of_first && !STOPS.iter().any(|&stop| code == stop as u64)
    }

    /// How far a thread is with its end.
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
            // Or it has just gone.
            _ => End::Begun,
        }
    }

    /// Its mappings ([`Process::maps`]), never none; or why there are none. A process that is about to end has no memory for a
    /// moment, nor has its first thread where that alone ends.
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

    /// What has become of it, where an address space that it was in has gone.
    pub(super) fn after_loss(&self) -> Presence {
        self.living_maps()
            .map_or_else(|presence| presence, |_| Presence::OtherProgram)
    }

    /// What it is, once those of its threads that are about to end have ended. Where one that was traced
    /// is gone, the process may be next.
    pub fn settled(&self) -> Presence {
        /// On a busy machine what has been killed ends when it is its turn.
        const PATIENCE: Duration = Duration::from_secs(10);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Err(presence) = self.living_maps() {
                return presence;
            }
            let Some(tids) = self.tids() else {
                return Presence::Here;
            };
            // Where all have ended since it was looked at, it has.
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

/// True if the stat file of a thread is of one that has ended.
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

    /// Stopped by a tracer for any signal, or by one for the whole process; or its first thread has ended alone.
    #[test]
    fn what_is_stopped_does_not_end() {
        let mut command = Command::new("sleep");
        // SAFETY: takes no memory.
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
                // SAFETY: it is stopped, and this thread's to trace.
                unsafe { libc::ptrace(libc::PTRACE_CONT, raw.as_raw(), 0, 0) };
            }
            // SAFETY: of an own child, of which nothing is asked.
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
