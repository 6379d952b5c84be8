//! Maps of files that may be cut short while they are read.
//!
//! Touching a page of a map after the file's end raises SIGBUS (mmap(2)). A handler puts a page of zeroes in
//! its stead, if it lies in one of these maps, and notes that the file has been cut; any other SIGBUS goes
//! where it went before.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Maps at a time.
const MOST: usize = 2048;
const PAGE: usize = abi::PAGE as usize;

/// A map that is watched; zeroes where there is none.
struct Watched {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Pages that have been replaced.
    cut: AtomicUsize,
}

static WATCHED: [Watched; MOST] = [const {
    Watched {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
    }
}; MOST];

/// No address: what is watched is being written down.
const TAKEN: usize = 1;

/// A range of addresses that is watched for as long as this lives, which must end before the map does: what the
/// handler replaces must be a map of ours.
#[derive(Debug)]
pub struct Watch(usize);

impl Watch {
    /// Watches over a map of a file that starts at `start`; `None` where there are too many.
    ///
    /// # Safety
    /// The range is a map of the caller's, of which no reference to bytes that may not change is handed out while
    /// the file can be cut.
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

    /// True if a part of it that was touched was not there.
    pub fn is_cut(&self) -> bool {
        WATCHED[self.0].cut.load(Acquire) > 0
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED[self.0].start.store(0, Release);
    }
}

/// What was done at SIGBUS before; written once, before the handler can run.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::zeroed();

fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicUsize = AtomicUsize::new(0);
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid sigaction, `BEFORE` is written here alone and once, and the handler
        // has the form that SA_SIGINFO asks for.
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

/// Makes only calls that a signal handler may make: it takes no lock and allocates nothing.
extern "C" fn on_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO.
    let at = unsafe { (*info).si_addr() } as usize;
    let holds = |s: &&Watched| {
        let start = s.start.load(Acquire);
        start > TAKEN && start <= at && at < s.end.load(Relaxed)
    };
    let Some(watched) = WATCHED.iter().find(holds) else {
        // SAFETY: `BEFORE` was written before this handler was installed. The instruction is executed again
        // and meets what there was before.
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
    // SAFETY: errno belongs to this thread; the page lies in a map that is watched, and is only read or holds atomics.
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
