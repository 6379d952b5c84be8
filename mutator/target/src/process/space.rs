//! One address space of a process. exec(2) replaces it under the same id and start time. Data read
//! from one address space must not be used in another.
//!
//! The kernel ties an open /proc/PID/mem and /proc/PID/maps to the address space at the time of the
//! open (fs/proc/base.c `proc_mem_open`). After an exec they read as empty.

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

/// An address space and its process.
#[derive(Debug)]
pub struct Space {
    process: Process,
    memory: Memory,
    maps: Mutex<File>,
    /// The address of the random bytes that the kernel gives to each program (AT_RANDOM of
    /// getauxval(3)).
    random: Option<Avma>,
}

impl Space {
    /// Opens the current address space of the process.
    ///
    /// # Errors
    /// The process has ended, or its memory or maps cannot be opened.
    pub fn open(process: &Process) -> Result<Self, ProcessError> {
        const AT_RANDOM: u64 = 25;
        /// An exec may happen between the opens.
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
            // An exec may have happened between the opens here as well.
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
        let cause = io::Error::other("it keeps executing other programs (exec)");
        Err(process.proc_error("maps", cause))
    }

    /// The process that has the address space.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The memory of the address space.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The mappings of the address space, ordered by address.
    ///
    /// # Errors
    /// The process has another address space, has ended, or its maps cannot be read.
    pub fn maps(&self) -> Result<Vec<Mapping>, ProcessError> {
        let text = self.maps_text()?;
        Ok(maps::parse(&String::from_utf8_lossy(&text)))
    }

    /// The mappings of the address space as the kernel prints them.
    ///
    /// # Errors
    /// The process has another address space, has ended, or its maps cannot be read.
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

    /// The text of the process's maps. Empty if the process has left this address space.
    fn read_maps(&self) -> Result<Vec<u8>, ProcessError> {
        let mut file = self
            .maps
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match read_all(&mut file) {
            // The thread whose file was opened has ended.
            Err(error) if is_no_process(&error) => {}
            other => return other.map_err(|e| self.process.proc_error("maps", e)),
        }
        let (maps, text) = open_maps(&self.process)?;
        // A process never returns to an address space that it has left. So if it is in this one
        // now, the maps just read are of this one.
        match self.is_entered() {
            Ok(true) => {
                *file = maps;
                Ok(text)
            }
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(self.process.proc_error("maps", error)),
        }
    }

    /// True if the process is in this address space, by comparison of the random bytes. An error if
    /// they are not readable.
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

    /// The mappings of the address space, for the choice of free addresses. If the program has no
    /// heap yet, an empty one is inserted at its future start.
    ///
    /// # Errors
    /// See [`Self::maps`].
    pub fn maps_with_heap(&self) -> Result<Vec<Mapping>, ProcessError> {
        let mut maps = self.maps()?;
        let stat = read_text(format!("/proc/{}/stat", self.process.entry()));
        if let Some(start) = stat.ok().and_then(|stat| super::stat_field(&stat, 47)) {
            maps::expect_heap(&mut maps, Avma(start));
        }
        Ok(maps)
    }

    /// `Here` if the process is still in this address space. Each exec gives a program random
    /// bytes. These must be equal when read through the old descriptor and through a new one.
    pub fn is_current(&self) -> Presence {
        /// The process or its first thread may be about to end.
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            match self.process.life() {
                Presence::Here => {}
                other => return other,
            }
            // The descriptor of an abandoned address space reads as an empty file.
            let Ok(then) = self.random_bytes() else {
                return match self.read_maps() {
                    Ok(maps) if maps.is_empty() => self.process.after_loss(),
                    // The program itself has unmapped the bytes, as its maps show.
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
        Presence::Unknown("its threads end faster than they can be inspected".to_owned())
    }

    /// Checks that the process is still in this address space. A process that is about to end
    /// counts as ended.
    ///
    /// # Errors
    /// The process has ended or has executed another program, or its maps cannot be read.
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

/// Opens the maps and reads them. If opened for a thread that has begun to end, they would read as
/// empty forever.
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
    // The kernel returns a page per read.
    const USUAL: usize = 32 << 10;
    file.rewind()?;
    read_on(file, USUAL)
}

/// True if the error is /proc/PID/mem's answer for an abandoned address space.
fn is_nobodys(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}
