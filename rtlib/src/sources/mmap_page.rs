//! The page in which the kernel describes a mapped perf event: how to read its counter, and for how
//! long it was counted (`struct perf_event_mmap_page` in include/uapi/linux/perf_event.h, which
//! documents the fields).

use core::mem::offset_of;
use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
    compiler_fence,
};

/// The first words of the page.
#[repr(C)]
pub struct MmapPage {
    version: u32,
    compat_version: u32,
    /// Odd while the kernel writes. Each write changes it.
    lock: AtomicU32,
    /// The number of the hardware counter, plus 1; 0 while the event is not counted.
    index: AtomicU32,
    /// The value to add to the hardware counter.
    offset: AtomicU64,
    /// Run time of the thread with the event when the page was written, in ns.
    time_enabled: AtomicU64,
    /// The part of `time_enabled` in which the event was counted, in ns.
    time_running: AtomicU64,
    capabilities: AtomicU64,
    /// Width of the hardware counter in bits.
    pmc_width: AtomicU16,
    /// Conversion of the time-stamp counter to ns since the page was written: `time_offset + (tsc *
    /// time_mult >> time_shift)`.
    time_shift: AtomicU16,
    time_mult: AtomicU32,
    time_offset: AtomicU64,
    /// The offset for conversion to the kernel's clock; not used.
    time_zero: AtomicU64,
    size: u32,
    reserved: u32,
    /// If the usable time-stamp counter has fewer bits than 64: its value at the write.
    time_cycles: AtomicU64,
    /// The mask of the usable bits of the time-stamp counter, for `time_cycles`.
    time_mask: AtomicU64,
}

/// Byte offset of the sequence number in the page.
pub const LOCK: usize = offset_of!(MmapPage, lock);

/// Bits of `capabilities`.
const CAP_USER_RDPMC: u64 = 1 << 2;
const CAP_USER_TIME: u64 = 1 << 3;
const CAP_USER_TIME_SHORT: u64 = 1 << 5;

/// A reading of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The count of the event.
    pub count: u64,
    /// The page's sequence number.
    pub lock: u32,
    /// True if the event is being counted now.
    pub is_counted: bool,
    /// Run time of the thread with the event when the page was written, in ns.
    pub enabled: u64,
    /// The part of `enabled` in which the event was counted, in ns.
    pub running: u64,
    /// Elapsed time since the kernel wrote the page, in ns; `None` if the page does not show it.
    /// While the event is not counted, the thread need not have run all the time.
    pub since: Option<u64>,
}

impl MmapPage {
    /// A page without an event.
    pub const fn unused() -> Self {
        Self {
            version: 0,
            compat_version: 0,
            lock: AtomicU32::new(0),
            index: AtomicU32::new(0),
            offset: AtomicU64::new(0),
            time_enabled: AtomicU64::new(0),
            time_running: AtomicU64::new(0),
            capabilities: AtomicU64::new(0),
            pmc_width: AtomicU16::new(0),
            time_shift: AtomicU16::new(0),
            time_mult: AtomicU32::new(0),
            time_offset: AtomicU64::new(0),
            time_zero: AtomicU64::new(0),
            size: 0,
            reserved: 0,
            time_cycles: AtomicU64::new(0),
            time_mask: AtomicU64::new(0),
        }
    }

    /// The page's current sequence number.
    #[inline(always)]
    pub fn lock(&self) -> u32 {
        self.lock.load(Relaxed)
    }

    /// Reads the event. `counter` reads the hardware counter with a number, and `tsc` the
    /// time-stamp counter. `None` if the thread may not read the counter, if the counter's width is
    /// invalid, or if the page keeps changing.
    #[inline(always)]
    pub fn read(&self, counter: impl Fn(u32) -> u64, tsc: impl Fn() -> u64) -> Option<Reading> {
        self.consistently(|capabilities| {
            if capabilities & CAP_USER_RDPMC == 0 {
                return None;
            }
            let index = self.index.load(Relaxed);
            let mut count = self.offset.load(Relaxed);
            if let Some(number) = index.checked_sub(1) {
                let width = u32::from(self.pmc_width.load(Relaxed));
                let unused = u64::BITS.checked_sub(width).filter(|_| width != 0)?;
                let held = (counter(number) << unused) as i64 >> unused;
                count = count.wrapping_add(held as u64);
            }
            Some(Reading {
                count,
                lock: 0,
                is_counted: index != 0,
                enabled: self.time_enabled.load(Relaxed),
                running: self.time_running.load(Relaxed),
                since: self.since(capabilities, &tsc),
            })
        })
    }

    /// Run time of the thread with a software event, which is always counted, in ns. `None` if the
    /// page does not show it.
    #[inline(always)]
    pub fn time(&self, tsc: impl Fn() -> u64) -> Option<u64> {
        let reading = self.consistently(|capabilities| {
            Some(Reading {
                count: 0,
                lock: 0,
                is_counted: true,
                enabled: self.time_enabled.load(Relaxed),
                running: 0,
                since: self.since(capabilities, &tsc),
            })
        })?;
        Some(reading.enabled.wrapping_add(reading.since?))
    }

    /// The result of `read` while the page does not change. `None` if the page keeps changing, or
    /// `read` returns `None`.
    #[inline(always)]
    fn consistently(&self, read: impl Fn(u64) -> Option<Reading>) -> Option<Reading> {
        /// The maximum number of readings. The thread is not switched out at every one.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            let lock = self.lock.load(Acquire);
            compiler_fence(Acquire);
            let found = read(self.capabilities.load(Relaxed));
            compiler_fence(Acquire);
            if lock & 1 == 0 && self.lock.load(Relaxed) == lock {
                return found.map(|found| Reading { lock, ..found });
            }
        }
        None
    }

    /// Elapsed time since the page was written, in ns. `None` if the page has no factors for the
    /// time-stamp counter.
    #[inline(always)]
    fn since(&self, capabilities: u64, tsc: impl Fn() -> u64) -> Option<u64> {
        if capabilities & CAP_USER_TIME == 0 {
            return None;
        }
        let mut now = tsc();
        if capabilities & CAP_USER_TIME_SHORT != 0 {
            let then = self.time_cycles.load(Relaxed);
            now = then.wrapping_add(now.wrapping_sub(then) & self.time_mask.load(Relaxed));
        }
        let mult = u64::from(self.time_mult.load(Relaxed));
        let shift = u32::from(self.time_shift.load(Relaxed)).min(u64::BITS - 1);
        let (whole, rest) = (now >> shift, now & ((1 << shift) - 1));
        let ns = whole
            .wrapping_mul(mult)
            .wrapping_add(rest.wrapping_mul(mult) >> shift);
        let since = self.time_offset.load(Relaxed).wrapping_add(ns);
        // The time-stamp counter of this processor may be slightly behind that of the processor
        // that wrote the page.
        Some((since as i64).max(0) as u64)
    }
}

const _: () = {
    assert!(offset_of!(MmapPage, offset) == 16);
    assert!(offset_of!(MmapPage, capabilities) == 40);
    assert!(offset_of!(MmapPage, time_offset) == 56);
    assert!(offset_of!(MmapPage, time_mask) == 88);
};

#[cfg(test)]
mod tests;
