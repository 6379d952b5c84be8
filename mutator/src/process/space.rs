//! One address space of a process. exec(2) gives a process another under the same id and start time;
//! what was read of the one must not be used in the other.
//!
//! The kernel ties an open /proc/PID/mem and /proc/PID/maps to the address space there was when they
//! were opened (fs/proc/base.c `proc_mem_open`): after an exec they show nothing.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::sync::Mutex;

use patcher::Avma;

use super::memory::Memory;
use super::{Mapping, Process, ProcessError, maps};

/// An address space and the process it was found in.
#[derive(Debug)]
pub struct Space {
    process: Process,
    memory: Memory,
    maps: Mutex<File>,
    /// Where the kernel has put random bytes for the program (AT_RANDOM of getauxval(3)).
    random: Option<Avma>,
}

/// Whether something that a process was found to have is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Here,
    /// The process has ended.
    Ended,
    /// The process has become another program (exec), or has itself unmapped what there was.
    OtherProgram,
    /// It cannot be told, for this cause. That is not the same as gone.
    Unknown(String),
}

impl Space {
    /// The address space of the process as it is now.
    pub fn open(process: &Process) -> Result<Self, ProcessError> {
        const AT_RANDOM: u64 = 25;
        /// An exec may come between.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let memory = process.open_memory()?;
            let path = format!("/proc/{}/maps", process.entry());
            let maps = File::open(path).map_err(|e| process.proc_error("maps", e))?;
            let space = Self {
                process: process.clone(),
                memory,
                maps: Mutex::new(maps),
                random: process.auxiliary(AT_RANDOM).map(Avma),
            };
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
        let mut file = self
            .maps
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut text = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut text));
        read.map_err(|e| self.process.proc_error("maps", e))?;
        match text.is_empty() {
            true => Err(ProcessError::OtherProgram(self.process.pid)),
            false => Ok(text),
        }
    }

    /// The same for choosing free addresses: a program without a heap has an empty one where it will
    /// begin.
    pub fn maps_with_heap(&self) -> Result<Vec<Mapping>, ProcessError> {
        let mut maps = self.maps()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.entry()));
        if let Some(start) = stat.ok().and_then(|stat| super::stat_field(&stat, 47)) {
            maps::expect_heap(&mut maps, Avma(start));
        }
        Ok(maps)
    }

    /// Whether the process still is in this address space: the random bytes that each exec gives a
    /// program are the same through what was opened then and what is opened now.
    pub fn is_current(&self) -> Presence {
        match self.process.life() {
            Presence::Here => {}
            other => return other,
        }
        let bytes = |memory: &Memory| {
            let at = self
                .random
                .ok_or_else(|| io::Error::other("no AT_RANDOM"))?;
            memory.read_vec(at, 16)
        };
        // The descriptor of an address space that nobody is in any more reads as an empty file.
        let Ok(then) = bytes(&self.memory) else {
            return match self.maps() {
                Err(ProcessError::OtherProgram(_)) => self.ended_or_other(),
                Err(error) => Presence::Unknown(error.to_string()),
                // Unmapped by the program itself: its maps tell.
                Ok(_) => Presence::Here,
            };
        };
        match self.process.open_memory() {
            Ok(now) => match bytes(&now) {
                Ok(now) if now == then => Presence::Here,
                _ => self.ended_or_other(),
            },
            Err(ProcessError::Gone(_)) => self.ended_or_other(),
            Err(error) => Presence::Unknown(error.to_string()),
        }
    }

    /// A process that is about to end has no memory for a moment, nor has one that is killed.
    fn ended_or_other(&self) -> Presence {
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            match (self.process.life(), self.process.maps()) {
                (Presence::Here, Ok(maps)) if !maps.is_empty() => return Presence::OtherProgram,
                (Presence::Here, _) => std::thread::sleep(std::time::Duration::from_millis(1)),
                (other, _) => return other,
            }
        }
        Presence::Unknown("it has no memory".to_owned())
    }
}
