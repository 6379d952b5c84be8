//! The perf events of a thread: its CPU clock, and its switches off the processor.

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

/// The visible part of a process, from most to least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seeing {
    /// Everything, by perf events.
    #[default]
    Whole,
    /// Only user mode. Waits are not visible.
    UserMode,
    /// By stopping threads for a moment: the positions of running threads, and the waits.
    Stops,
}

/// The visible part of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Everything.
    Whole,
    /// Only user mode. The kernel does not allow more (`kernel.perf_event_paranoid`).
    UserMode,
}

/// How a thread is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// The visible part.
    pub(super) sight: Sight,
    /// CPU time between two samples, in nanoseconds.
    pub(super) period: u64,
    /// One in this many switches off the processor is sampled.
    pub(super) waits: u64,
    /// Bytes of the stack in a sample.
    pub(super) stack: u32,
    /// The size of the ring, in bytes.
    pub(super) ring: usize,
}

/// The reason why a thread has no events.
#[derive(Debug)]
pub enum NoEvents {
    /// perf_event_open(2) or a related call has failed.
    Event(io::Error),
    /// mmap(2) of the ring has failed. EPERM means that this user has reached the limit of locked
    /// memory.
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
    /// The id of the clock's event in samples.
    pub(super) clock_id: u64,
    /// The event of switches off the processor. `None` for [`Sight::UserMode`].
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

    /// Changes the sampling rate to one in `waits` switches. Does nothing for [`Sight::UserMode`].
    pub(super) fn sample_waits(&self, waits: u64) {
        if let Some(switches) = &self.switches {
            let waits = waits.max(1);
            // The kernel expects the address of the number, not the number itself
            // (perf_event_open(2)).
            let at = (&raw const waits).expose_provenance() as u64;
            // SAFETY: the kernel reads a word. If it refuses the number, the old one stays, and
            // each sample states its period.
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
    // SAFETY: the attributes state their own size. The new descriptor is owned by nothing else.
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
