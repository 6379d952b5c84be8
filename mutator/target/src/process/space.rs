//! One address space of a process. exec(2) gives a process another under the same id and start time;
//! what was read of the one must not be used in the other.
//!
//! The kernel ties an open /proc/PID/mem and /proc/PID/maps to the address space there was when they
//! were opened (fs/proc/base.c `proc_mem_open`): after an exec they show nothing.

use std::fs::File;
use std::io::{self, Seek};
use std::sync::Mutex;
use std::time::Duration;

use patcher::Avma;

use super::memory::Memory;
use super::presence::Presence;
use super::procfs::read_on;
use super::{Mapping, Process, ProcessError, is_no_process, maps, read_text};
use crate::fault_injection::look;

/// An address space and the process it was found in.
#[derive(Debug)]
pub struct Space {
    process: Process,
    memory: Memory,
    maps: Mutex<File>,
    /// Where the kernel has put random bytes for the program (AT_RANDOM of getauxval(3)).
    random: Option<Avma>,
}

impl Space {
    /// The address space of the process as it is now.
    pub fn open(process: &Process) -> Result<Self, ProcessError> {
        const AT_RANDOM: u64 = 25;
        /// An exec may come between.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let memory = process.open_memory()?;
            let (maps, _) = open_maps(process)?;
            let space = Self {
                process: process.clone(),
                memory,
                maps: Mutex::new(maps),
                random: process.auxiliary(AT_RANDOM).map(Avma),
            };
            // The same as for the maps.
            if space.random_bytes().is_err_and(|e| is_nobodys(&e)) {
                continue;
            }
            match space.is_current() {
                Presence::Here => return Ok(space),
                Presence::OtherProgram => {}
                Presence::Ended => return Err(ProcessError::Gone(process.pid)),
                Presence::Unknown(cause) => {
                    return Err(process.proc_error("mem", io::Error::other(cause)));
                }
            }
        }
        let cause = io::Error::other("it becomes another program all the time");
        Err(process.proc_error("maps", cause))
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Its mappings, ordered by address; an error where the process has another address space by now.
    pub fn maps(&self) -> Result<Vec<Mapping>, ProcessError> {
        let text = self.maps_text()?;
        Ok(maps::parse(&String::from_utf8_lossy(&text)))
    }

    /// The same as the kernel prints it.
    pub fn maps_text(&self) -> Result<Vec<u8>, ProcessError> {
        look("maps");
        let text = self.read_maps()?;
        if !text.is_empty() {
            return Ok(text);
        }
        Err(match self.process.after_loss() {
            Presence::Ended => ProcessError::Gone(self.process.pid),
            Presence::Here | Presence::OtherProgram => ProcessError::OtherProgram(self.process.pid),
            Presence::Unknown(cause) => self.process.proc_error("maps", io::Error::other(cause)),
        })
    }

    /// What the kernel prints: nothing, where nobody is in this address space any more.
    fn read_maps(&self) -> Result<Vec<u8>, ProcessError> {
        let mut file = self
            .maps
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match read_all(&mut file) {
            // The thread that they were opened of has ended.
            Err(error) if is_no_process(&error) => {}
            other => return other.map_err(|e| self.process.proc_error("maps", e)),
        }
        let (maps, text) = open_maps(&self.process)?;
        // An address space that has been left is never entered again: these are not another one's.
        match self.is_entered() {
            Ok(true) => {
                *file = maps;
                Ok(text)
            }
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(self.process.proc_error("maps", error)),
        }
    }

    /// True if the process is in this address space, by the random bytes; an error where these do not tell.
    fn is_entered(&self) -> io::Result<bool> {
        let then = match self.random_bytes() {
            Err(error) if is_nobodys(&error) => return Ok(false),
            then => then?,
        };
        let now = self.process.open_memory().map_err(io::Error::other)?;
        Ok(self.random_in(&now)? == then)
    }

    fn random_bytes(&self) -> io::Result<Vec<u8>> {
        self.random_in(&self.memory)
    }

    fn random_in(&self, memory: &Memory) -> io::Result<Vec<u8>> {
        let at = self
            .random
            .ok_or_else(|| io::Error::other("no AT_RANDOM"))?;
        memory.read_vec(at, 16)
    }

    /// The same for choosing free addresses: a program without a heap has an empty one where it will
    /// begin.
    pub fn maps_with_heap(&self) -> Result<Vec<Mapping>, ProcessError> {
        let mut maps = self.maps()?;
        let stat = read_text(format!("/proc/{}/stat", self.process.entry()));
        if let Some(start) = stat.ok().and_then(|stat| super::stat_field(&stat, 47)) {
            maps::expect_heap(&mut maps, Avma(start));
        }
        Ok(maps)
    }

    /// `Here` where the process still is in this address space: the random bytes that each exec gives a
    /// program are the same through what was opened then and what is opened now.
    pub fn is_current(&self) -> Presence {
        /// The process may be about to end, or its first thread.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            match self.process.life() {
                Presence::Here => {}
                other => return other,
            }
            // The descriptor of an address space that nobody is in any more reads as an empty file.
            let Ok(then) = self.random_bytes() else {
                return match self.read_maps() {
                    Ok(maps) if maps.is_empty() => self.process.after_loss(),
                    // Unmapped by the program itself: its maps tell.
                    Ok(_) => Presence::Here,
                    Err(error) => Presence::Unknown(error.to_string()),
                };
            };
            match self.process.open_memory().map(|now| self.random_in(&now)) {
                Ok(Ok(now)) if now == then => return Presence::Here,
                Ok(Ok(_)) => return Presence::OtherProgram,
                Ok(Err(error)) if is_nobodys(&error) => {}
                Ok(Err(_)) => return Presence::OtherProgram,
                Err(ProcessError::Gone(_)) => {}
                Err(error) => return Presence::Unknown(error.to_string()),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Presence::Unknown("its threads end faster than they can be looked at".to_owned())
    }

    /// The same as an error, where it no longer is; a process that is about to end has ended.
    pub fn check(&self) -> Result<(), ProcessError> {
        let pid = self.process.pid;
        let presence = match self.process.settled() {
            Presence::Here => self.is_current(),
            other => other,
        };
        match presence {
            Presence::Here => Ok(()),
            Presence::Ended => Err(ProcessError::Gone(pid)),
            Presence::OtherProgram => Err(ProcessError::OtherProgram(pid)),
            Presence::Unknown(cause) => {
                Err(self.process.proc_error("maps", io::Error::other(cause)))
            }
        }
    }
}

/// Opened of a thread that has begun to end, they show nothing for ever.
fn open_maps(process: &Process) -> Result<(File, Vec<u8>), ProcessError> {
    process.of_living("maps", |path| {
        let mut file = File::open(path)?;
        let text = read_all(&mut file)?;
        if text.is_empty() {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        } else {
            Ok((file, text))
        }
    })
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    // A page at a time.
    const USUAL: usize = 32 << 10;
    file.rewind()?;
    read_on(file, USUAL)
}

/// True if it is what /proc/PID/mem answers for an address space that nobody is in any more.
fn is_nobodys(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}
