//! Maps of files that may be cut short while they are read.
//!
//! Touching a page of a map after the file's end raises SIGBUS (mmap(2)). A handler puts a page of zeroes in
//! its stead, if it lies in one of these maps, and notes that the file has been cut; any other SIGBUS goes
//! where it went before.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use memmap2::Mmap;

/// Maps at a time; what comes after is read.
const MOST: usize = 2048;
const PAGE: usize = abi::PAGE as usize;

/// The range of a map; zeroes where there is none.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Pages that have been replaced.
    cut: AtomicUsize,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
    }
}; MOST];

/// No address: the slot is being filled.
const TAKEN: usize = 1;

/// A private, read-only map.
#[derive(Debug)]
pub(super) struct Guarded {
    /// Empty files cannot be mapped.
    map: Option<Mmap>,
    slot: usize,
}

impl Guarded {
    /// Maps a file; `None` where there are too many maps.
    pub(super) fn map(file: &File) -> io::Result<Option<Self>> {
        if file.metadata()?.len() == 0 {
            let (map, slot) = (None, MOST);
            return Ok(Some(Self { map, slot }));
        }
        install()?;
        let take = |s: &Slot| s.start.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok();
        let Some(slot) = SLOTS.iter().position(take) else {
            return Ok(None);
        };
        // SAFETY: the map is private and read only. What changes the file while it is mapped is root or the
        // user that runs ipath, who can change ipath as well; a page that goes is replaced by zeroes.
        let map = unsafe { Mmap::map(file) };
        let place = &SLOTS[slot];
        let Ok(map) = map else {
            place.start.store(0, Release);
            return map.map(|_| None);
        };
        let start = map.as_ptr() as usize;
        place.cut.store(0, Relaxed);
        let end = start.saturating_add(map.len()).next_multiple_of(PAGE);
        place.end.store(end, Relaxed);
        place.start.store(start, Release);
        Ok(Some(Self {
            map: Some(map),
            slot,
        }))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    pub(super) fn is_cut(&self) -> bool {
        SLOTS
            .get(self.slot)
            .is_some_and(|s| s.cut.load(Relaxed) > 0)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The slot goes first: what the handler replaces must be ours for as long as the slot says so, and
        // nobody reads the map any more.
        if let Some(slot) = SLOTS.get(self.slot) {
            slot.start.store(0, Release);
        }
        self.map = None;
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
    let holds = |s: &&Slot| {
        let start = s.start.load(Acquire);
        start > TAKEN && start <= at && at < s.end.load(Relaxed)
    };
    let Some(slot) = SLOTS.iter().find(holds) else {
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
    slot.cut.fetch_add(1, Relaxed);
    let page = (at & !(PAGE - 1)) as *mut libc::c_void;
    // SAFETY: errno belongs to this thread; the page lies in a map that is ours and is only read.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let made = libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0);
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
