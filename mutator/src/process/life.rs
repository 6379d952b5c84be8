//! Whether a process lives, and what of it does.

use std::fs;
use std::io;
use std::time::Duration;

use super::{Mapping, Pid, Presence, Process, ProcessError, Tid};
use super::{is_no_process, parse_stat, stat_field, status_field};

/// How often it is looked again, a millisecond between, where a process is about to end.
const TRIES: u32 = 1000;

impl Process {
    /// Whether the process still runs, under the same start time; a zombie does not.
    pub fn life(&self) -> Presence {
        let path = format!("/proc/{}/stat", self.pid);
        let stat = match fs::read_to_string(path) {
            Ok(stat) => stat,
            Err(error) if is_no_process(&error) => return self.unseen(),
            Err(error) => return Presence::Unknown(crate::error::io_text(&error)),
        };
        match parse_stat(&stat) {
            None => Presence::Unknown("/proc/PID/stat is not readable".to_owned()),
            Some((_, start_time)) if start_time != self.start_time => Presence::Ended,
            Some(('X', _)) => Presence::Ended,
            // A leader that has ended stays while others of its threads run.
            Some(('Z', _)) => match self.list_tids() {
                Ok(tids) if tids.iter().any(|&tid| !self.is_dead(tid)) => Presence::Here,
                Ok(_) => Presence::Ended,
                Err(error) if is_no_process(&error) => Presence::Ended,
                Err(error) => Presence::Unknown(crate::error::io_text(&error)),
            },
            Some(_) => Presence::Here,
        }
    }

    /// Where /proc hides the processes of others (hidepid of proc(5)), a signal still finds them.
    fn unseen(&self) -> Presence {
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid.0), None) {
            Err(nix::errno::Errno::ESRCH) => Presence::Ended,
            _ => Presence::Unknown("a process of this id runs, and cannot be looked at".to_owned()),
        }
    }

    /// Whether it is known to have ended: what cannot be told is not.
    pub fn has_ended(&self) -> bool {
        self.life() == Presence::Ended
    }

    /// What of it has entries in /proc: itself, or where its first thread has ended, one that has
    /// not. An ended thread has no memory, and nothing that goes with it.
    pub fn entry(&self) -> Pid {
        if !self.is_dead(Tid(self.pid.0)) {
            return self.pid;
        }
        let tids = self.tids().unwrap_or_default();
        let living = tids.into_iter().find(|&tid| !self.is_dead(tid));
        living.map_or(self.pid, |tid| Pid(tid.0))
    }

    fn thread_stat(&self, tid: Tid) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/task/{tid}/stat", self.pid))
    }

    /// Whether a thread has ended; it may wait to be collected.
    fn is_dead(&self, tid: Tid) -> bool {
        match self.thread_stat(tid) {
            Ok(stat) => parse_stat(&stat).is_none_or(|(state, _)| matches!(state, 'Z' | 'X')),
            Err(error) => is_no_process(&error),
        }
    }

    /// Whether a thread is on its way to its end: SIGKILL is under way to it, or it has begun
    /// (PF_EXITING, include/linux/sched.h).
    fn is_dying(&self, tid: Tid) -> bool {
        const PF_EXITING: u64 = 0x4;
        const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
        let path = format!("/proc/{}/task/{tid}/status", self.pid);
        let pending = status_field(&path, "SigPnd");
        let pending = pending.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
        let flags = || stat_field(&self.thread_stat(tid).ok()?, 9);
        let is_dying = pending.is_some_and(|mask| mask & SIGKILL != 0)
            || flags().is_some_and(|flags| flags & PF_EXITING != 0);
        is_dying && !self.is_dead(tid)
    }

    /// The same, never empty; or why there are none. A process that is about to end has no memory for a
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
            std::thread::sleep(Duration::from_millis(1));
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
        for _ in 0..TRIES {
            if let Err(presence) = self.living_maps() {
                return presence;
            }
            let tids = self.tids().unwrap_or_default();
            if !tids.into_iter().any(|tid| self.is_dying(tid)) {
                return Presence::Here;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Presence::Here
    }
}
