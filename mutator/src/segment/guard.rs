//! A shared map whose file somebody makes shorter raises SIGBUS where it is touched (mmap(2)). The
//! command must not die of that: it has a page of zeroes put there, and is told that the segment is
//! broken.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::MmapRaw;

/// Maps that are watched over at a time; more are not, but for one at a time there is seldom a reason.
const MOST: usize = 64;

struct Slot {
    /// First address; 0 for a free one.
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; MOST];

/// A map that is watched over.
#[derive(Debug)]
pub(super) struct Guarded {
    map: MmapRaw,
    slot: usize,
}

impl Guarded {
    /// Takes a map in; an error where there are too many.
    pub(super) fn new(map: MmapRaw) -> io::Result<Self> {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let start = map.as_ptr() as usize;
        let free = |slot: &&Slot| {
            let taken = slot
                .start
                .compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let slot = SLOTS.iter().position(|slot| free(&slot));
        let slot = slot.ok_or_else(|| io::Error::other("too many segments are open"))?;
        SLOTS[slot].broken.store(false, Ordering::Relaxed);
        SLOTS[slot].len.store(map.len(), Ordering::Release);
        Ok(Self { map, slot })
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.map.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether a part of it that was touched was not there.
    pub(super) fn is_broken(&self) -> bool {
        SLOTS[self.slot].broken.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        SLOTS[self.slot].len.store(0, Ordering::Relaxed);
        SLOTS[self.slot].start.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: plain data, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is of the type SA_SIGINFO asks for and does nothing but what signal-safety(7)
    // allows.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn handle(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    const PAGE: usize = abi::PAGE as usize;
    // SAFETY: the kernel passes a live siginfo, with an address for SIGBUS.
    let at = unsafe { (*info).si_addr() } as usize;
    let inside = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && start <= at && at - start < slot.len.load(Ordering::Acquire)
    };
    if let Some(slot) = SLOTS.iter().find(inside) {
        slot.broken.store(true, Ordering::Release);
        let page = (at & !(PAGE - 1)) as *mut libc::c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a map of ours, which is only ever accessed as atomics and bytes
        // that may change at any time.
        let mapped = unsafe { libc::mmap(page, PAGE, protection, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    // Something else: as if there were no handler.
    // SAFETY: sets a disposition; the access is made again when this returns.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_made_shorter_reads_as_zeroes_and_is_known_to_be_broken() {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty());
        let file = std::fs::File::from(fd.expect("made"));
        file.set_len(4 * abi::PAGE).expect("grown");
        let map = Guarded::new(MmapRaw::map_raw(&file).expect("mapped")).expect("watched");
        let byte = |at: u64| {
            // SAFETY: inside the map.
            unsafe { map.as_ptr().add(at as usize).read_volatile() }
        };
        assert_eq!(byte(0) | byte(3 * abi::PAGE), 0);
        assert!(!map.is_broken());
        file.set_len(abi::PAGE).expect("shortened");
        assert_eq!(byte(0), 0);
        assert!(!map.is_broken());
        assert_eq!(byte(2 * abi::PAGE + 5), 0);
        assert!(map.is_broken());
    }
}
