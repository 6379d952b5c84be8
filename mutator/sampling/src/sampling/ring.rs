//! The ring to which the kernel writes the records of a thread: perf_event_open(2), "MMAP layout".

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::record::{self, Record};

/// The size of `struct perf_event_header`.
const HEADER: usize = 8;

/// A ring.
pub(super) struct Ring {
    map: MmapRaw,
    /// A buffer for the header or the body that is being read.
    whole: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event. `bytes` is a power of two of pages. If the limit of locked memory
    /// (`kernel.perf_event_mlock_kb`) is reached, smaller rings are tried, down to 8 pages.
    pub(super) fn map(event: &File, bytes: usize) -> io::Result<Self> {
        let page = abi::PAGE as usize;
        let mut bytes = bytes;
        loop {
            match MmapOptions::new().len(page + bytes).map_raw(event) {
                Ok(map) => {
                    return Ok(Self {
                        map,
                        whole: Vec::new(),
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && bytes > 8 * page => {
                    bytes /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The locked memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.map.len()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the head is a whole page, and its fields are aligned; the kernel changes this one
        // as a word.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// Passes the new records to `take`. Returns false if a record was truncated or inconsistent.
    /// All records count as read even then.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Record<'_>)) -> bool {
        let page = abi::PAGE as usize;
        let room = self.map.len() - page;
        let head = self
            .word(offset_of!(perf_event_mmap_page, data_head))
            .load(Acquire);
        let tail = self
            .word(offset_of!(perf_event_mmap_page, data_tail))
            .load(Acquire);
        let mut whole = std::mem::take(&mut self.whole);
        let mut at = tail;
        let mut is_sound = true;
        while at < head {
            self.copy(at, HEADER, room, &mut whole);
            let kind = u32::from_le_bytes([whole[0], whole[1], whole[2], whole[3]]);
            let misc = u16::from_le_bytes([whole[4], whole[5]]);
            let size = usize::from(u16::from_le_bytes([whole[6], whole[7]]));
            if size < HEADER || size as u64 > head - at {
                is_sound = false;
                break;
            }
            self.copy(at + HEADER as u64, size - HEADER, room, &mut whole);
            match record::parse(kind, misc, &whole) {
                Some(record) => take(record),
                None => is_sound = false,
            }
            at += size as u64;
        }
        self.whole = whole;
        self.word(offset_of!(perf_event_mmap_page, data_tail))
            .store(head, Release);
        is_sound
    }

    /// Replaces `into` by `len` bytes from position `at` of the ring's data, which has `room`
    /// bytes. `at` counts all bytes ever written.
    fn copy(&self, at: u64, len: usize, room: usize, into: &mut Vec<u8>) {
        into.clear();
        let from = at as usize & (room - 1);
        let first = len.min(room - from);
        for (from, len) in [(from, first), (0, len - first)] {
            // SAFETY: within the data pages. The kernel does not write there before the tail moves.
            let bytes = unsafe {
                let data = self.map.as_ptr().add(abi::PAGE as usize + from);
                std::slice::from_raw_parts(data, len)
            };
            into.extend_from_slice(bytes);
        }
    }
}
