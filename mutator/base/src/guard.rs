//! Guards maps of files that may be truncated while they are read.
//!
//! Accessing a page of a map beyond the end of the file raises SIGBUS (mmap(2)). If the page is in
//! a guarded map, a handler replaces it with a page of zeroes and records that the file was
//! truncated. Any other SIGBUS is passed to the previous handler.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The maximum number of guarded maps at a time.
const MAX_MAPPINGS: usize = 2048;
const PAGE: usize = abi::PAGE as usize;

/// A guarded map's addresses, or an unused entry, whose `start` is 0.
struct Watched {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The number of pages that the handler replaced.
    cut: AtomicUsize,
}

/// The entries that the handler looks through.
static WATCHED: [Watched; MAX_MAPPINGS] = [const {
    Watched {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
    }
}; MAX_MAPPINGS];

/// A start address that marks an entry as being filled in.
const TAKEN: usize = 1;

/// Guards a range of addresses as long as it lives. It must be dropped before the map is unmapped,
/// because the handler must only replace pages of our maps. Its number is an index into `WATCHED`.
#[derive(Debug)]
pub struct Watch(usize);

impl Watch {
    /// Guards a map of a file: `len` bytes from `start`. `None` if 2048 maps are guarded already.
    ///
    /// # Errors
    /// The handler for SIGBUS cannot be installed.
    ///
    /// # Safety
    /// The range must be a map of the caller. While the file can be truncated, no reference to
    /// bytes that must not change may be handed out.
    pub unsafe fn over(start: *const u8, len: usize) -> io::Result<Option<Self>> {
        install()?;
        let take = |s: &Watched| s.start.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok();
        let Some(index) = WATCHED.iter().position(take) else {
            return Ok(None);
        };
        let watched = &WATCHED[index];
        let start = start as usize;
        watched.cut.store(0, Relaxed);
        let end = start.saturating_add(len).next_multiple_of(PAGE);
        watched.end.store(end, Relaxed);
        watched.start.store(start, Release);
        Ok(Some(Self(index)))
    }

    /// True if a page was accessed that was beyond the end of the file.
    pub fn is_cut(&self) -> bool {
        WATCHED[self.0].cut.load(Acquire) > 0
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED[self.0].start.store(0, Release);
    }
}

/// The previous action for SIGBUS. Written once, before the handler can run.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::zeroed();

/// Installs the handler at the first call. It is an error, at every call, if that failed.
fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid sigaction. `BEFORE` is only written here, and once. The
        // handler has the signature that SA_SIGINFO requires.
        let result = unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), (&raw mut BEFORE).cast());
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
        };
        if result != 0 {
            FAILED.store(1, Relaxed);
        }
    });
    match FAILED.load(Relaxed) {
        0 => Ok(()),
        _ => Err(io::Error::other("no handler for SIGBUS")),
    }
}

/// Makes only async-signal-safe calls: it takes no lock and allocates nothing.
extern "C" fn on_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let at = unsafe { (*info).si_addr() } as usize;
    let holds = |s: &&Watched| {
        let start = s.start.load(Acquire);
        start > TAKEN && start <= at && at < s.end.load(Relaxed)
    };
    let Some(watched) = WATCHED.iter().find(holds) else {
        // SAFETY: `BEFORE` was written before this handler was installed. The instruction is
        // executed again and reaches the previous action.
        unsafe {
            libc::sigaction(
                libc::SIGBUS,
                (&raw const BEFORE).cast(),
                std::ptr::null_mut(),
            )
        };
        return;
    };
    watched.cut.fetch_add(1, Release);
    let page = (at & !(PAGE - 1)) as *mut libc::c_void;
    // SAFETY: errno belongs to this thread. The page is in a guarded map, which is only read or
    // holds atomics.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let made = libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        *errno = before;
        if made == libc::MAP_FAILED {
            libc::sigaction(
                libc::SIGBUS,
                (&raw const BEFORE).cast(),
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_made_shorter_reads_as_zeroes_and_is_known_to_be_cut() {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty());
        let file = std::fs::File::from(fd.expect("made"));
        file.set_len(4 * abi::PAGE).expect("grown");
        let map = memmap2::MmapRaw::map_raw(&file).expect("mapped");
        // SAFETY: the map is only read byte by byte.
        let watch = unsafe { Watch::over(map.as_ptr(), map.len()) };
        let watch = watch.expect("watched").expect("not too many");
        let byte = |at: u64| {
            // SAFETY: inside the map.
            unsafe { map.as_ptr().add(at as usize).read_volatile() }
        };
        assert_eq!(byte(0) | byte(3 * abi::PAGE), 0);
        assert!(!watch.is_cut());
        file.set_len(abi::PAGE).expect("shortened");
        assert_eq!(byte(0), 0);
        assert!(!watch.is_cut());
        assert_eq!(byte(2 * abi::PAGE + 5), 0);
        assert!(watch.is_cut());
    }
}
