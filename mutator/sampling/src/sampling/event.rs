//! The perf events of a thread: the clock of its CPU time, and its being switched off its processor.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC,
    PERF_TYPE_SOFTWARE, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};

use super::record::{OF_CLOCK, OF_SWITCHES};
use super::ring::Ring;
use crate::arch::MASK;
use ipath_target::process::Tid;

/// What can be seen of a process, the least last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seeing {
    /// All of it, by perf events.
    #[default]
    Whole,
    /// What it does in user mode alone: not where it waits.
    UserMode,
    /// Where its threads are that run when they are stopped for a moment, and where they wait.
    Stops,
}

/// What is seen of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// All of it.
    Whole,
    /// What it does in user mode alone: the kernel does not allow more (`kernel.perf_event_paranoid`).
    UserMode,
}

/// How a thread is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// What of it is seen.
    pub(super) sight: Sight,
    /// CPU time between two samples, ns.
    pub(super) period: u64,
    /// Every so many-th of the moments is sampled at which it is switched out.
    pub(super) waits: u64,
    /// Bytes of its stack in a sample.
    pub(super) stack: u32,
    /// Bytes of its ring.
    pub(super) ring: usize,
}

/// Why there are no events of a thread.
#[derive(Debug)]
pub enum NoEvents {
    /// There is no event: perf_event_open(2) or what belongs to it has failed.
    Event(io::Error),
    /// There is no ring: mmap(2) has failed. EPERM says that this user has locked as much memory as he may.
    Ring(io::Error),
}

impl From<io::Error> for NoEvents {
    fn from(error: io::Error) -> Self {
        Self::Event(error)
    }
}

/// The events of a thread.
pub(super) struct Events {
    pub(super) ring: Ring,
    _clock: File,
    /// What its id is in samples.
    pub(super) clock_id: u64,
    switches: Option<File>,
}

impl Events {
    /// Opens the events of a thread.
    pub(super) fn open(tid: Tid, manner: Manner) -> Result<Self, NoEvents> {
        let mut attributes = attributes(PERF_COUNT_SW_TASK_CLOCK, OF_CLOCK, manner);
        attributes.__bindgen_anon_1.sample_period = manner.period;
        attributes.set_context_switch(u64::from(manner.sight == Sight::Whole));
        let clock = open(&mut attributes, tid)?;
        let ring = Ring::map(&clock, manner.ring).map_err(NoEvents::Ring)?;
        let clock_id = id(&clock)?;
        let switches = match manner.sight {
            Sight::Whole => Some(open_switches(tid, manner, &clock)?),
            Sight::UserMode => None,
        };
        Ok(Self {
            ring,
            _clock: clock,
            clock_id,
            switches,
        })
    }

    /// Has every `waits`-th switch sampled from now on.
    pub(super) fn sample_waits(&self, waits: u64) {
        if let Some(switches) = &self.switches {
            let waits = waits.max(1);
            // The address of the number, not the number, is what the kernel wants here (perf_event_open(2)).
            let at = (&raw const waits).expose_provenance() as u64;
            // SAFETY: the kernel reads a word. What it refuses stays as it was, and each sample tells its period.
            unsafe { ioctls::PERIOD(switches.as_raw_fd(), at) };
        }
    }
}

fn open_switches(tid: Tid, manner: Manner, clock: &File) -> io::Result<File> {
    let mut attributes = attributes(PERF_COUNT_SW_CONTEXT_SWITCHES, OF_SWITCHES, manner);
    attributes.__bindgen_anon_1.sample_period = manner.waits.max(1);
    let switches = open(&mut attributes, tid)?;
    // SAFETY: takes two descriptors.
    match unsafe { ioctls::SET_OUTPUT(switches.as_raw_fd(), clock.as_raw_fd()) } {
        0 => Ok(switches),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attributes(config: u32, sample_type: u64, manner: Manner) -> perf_event_attr {
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: config.into(),
        sample_type,
        sample_regs_user: MASK,
        sample_stack_user: manner.stack,
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attributes.set_use_clockid(1);
    attributes.set_sample_id_all(1);
    attributes.set_exclude_hv(1);
    attributes.set_exclude_kernel(u64::from(manner.sight == Sight::UserMode));
    attributes
}

fn open(attributes: &mut perf_event_attr, tid: Tid) -> io::Result<File> {
    const ANY_CPU: i32 = -1;
    const NO_GROUP: i32 = -1;
    let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attributes tell their size themselves. The descriptor is nobody else's.
    unsafe {
        match perf_event_open(attributes, tid.0, ANY_CPU, NO_GROUP, flags) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(File::from_raw_fd(descriptor)),
        }
    }
}

fn id(event: &File) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the kernel writes a word.
    match unsafe { ioctls::ID(event.as_raw_fd(), &mut id) } {
        0 => Ok(id),
        _ => Err(io::Error::last_os_error()),
    }
}
