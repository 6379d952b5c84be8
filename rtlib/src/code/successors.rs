//! Files mapped where another file was mapped before. A return address there has a new meaning from
//! then on.
//!
//! The path tree stores such an address with the number of its mapping
//! ([`abi::segment::call_site`]). Rule buckets, which identify the call sites of paths, are renamed
//! when such a file is mapped. No thread executes the file before that, because the loader reports
//! it first.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::segment::call_site;

/// The maximum number of known successor files. Further ones are confused with their predecessors.
const MAX_SITES: usize = u64::BITS as usize;

/// The mapping of a file that has succeeded another one, valid until another file is mapped there.
struct Successor {
    start: AtomicU64,
    /// First address after the mapping; 0 if the entry is free.
    end: AtomicU64,
    /// The file's module number for [`call_site`].
    module: AtomicU64,
}

static PLACES: [Successor; MAX_SITES] = [const {
    Successor {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        module: AtomicU64::new(0),
    }
}; MAX_SITES];

/// Length of the prefix of entries that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// True if any file was mapped where another one was mapped before.
#[inline(always)]
pub fn are_any() -> bool {
    USED.load(Ordering::Acquire) != 0
}

/// The key in the path tree of the call that returns to `pc`.
///
/// It is inlined and uses little stack, because paths are compared with it on the application's
/// stack.
#[inline(always)]
pub fn site(pc: u64) -> u64 {
    let mut at = USED.load(Ordering::Acquire);
    while at != 0 {
        at -= 1;
        // SAFETY: at most `MAX_SITES` entries are in use.
        let place = unsafe { PLACES.get_unchecked(at) };
        if place.holds(pc) {
            return call_site(pc, place.module.load(Ordering::Relaxed));
        }
    }
    pc
}

/// The change of call sites by a newly mapped file. Created and used under the lock of the modules.
pub struct Change {
    start: u64,
    end: u64,
    module: u64,
    /// The entries of files that the new file replaces: bit `n` is entry `n`.
    leaving: u64,
    /// The index of the entry that the new file gets.
    place: usize,
}

impl Change {
    /// The change for a file mapped from `start` to `end` whose call sites have `module` in their
    /// keys. `None` if no key changes, or if all entries are in use.
    pub fn of(start: u64, end: u64, module: u64) -> Option<Self> {
        let places = || PLACES.iter().enumerate();
        let leaving = places().filter(|(_, place)| place.overlaps(start, end));
        let leaving = leaving.fold(0, |all, (at, _)| all | 1 << at);
        if module == 0 && leaving == 0 {
            return None;
        }
        let mut free = places()
            .filter(|(at, place)| leaving >> at & 1 != 0 || place.end.load(Ordering::Relaxed) == 0);
        let (place, _) = free.next()?;
        Some(Self {
            start,
            end,
            module,
            leaving,
            place,
        })
    }

    /// The keys in the path tree of an address before and after the change; `None` if it is not
    /// affected.
    pub fn keys(&self, pc: u64) -> Option<(u64, u64)> {
        // A return address may be the end of the code.
        let is_in = (self.start..self.end).contains(&pc.wrapping_sub(1));
        let is_left = || self.leaving().any(|place| place.holds(pc));
        let module = if is_in { self.module } else { 0 };
        (is_in || self.leaving != 0 && is_left()).then(|| (site(pc), call_site(pc, module)))
    }

    /// Applies the change.
    pub fn settle(self) {
        for place in self.leaving() {
            place.end.store(0, Ordering::Relaxed);
        }
        if let Some(place) = PLACES.get(self.place).filter(|_| self.module != 0) {
            place.start.store(self.start, Ordering::Relaxed);
            place.module.store(self.module, Ordering::Relaxed);
            place.end.store(self.end, Ordering::Release);
            USED.fetch_max(self.place + 1, Ordering::Release);
        }
    }

    /// The entries of the files that the new file replaces.
    fn leaving(&self) -> impl Iterator<Item = &'static Successor> {
        let places = PLACES.iter().enumerate();
        let leaving = places.filter(|(at, _)| self.leaving >> at & 1 != 0);
        leaving.map(|(_, place)| place)
    }
}

impl Successor {
    /// True if the call that returns to `pc` is in the mapping.
    #[inline(always)]
    fn holds(&self, pc: u64) -> bool {
        let end = self.end.load(Ordering::Acquire);
        (self.start.load(Ordering::Relaxed)..end).contains(&pc.wrapping_sub(1))
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start.load(Ordering::Relaxed) < end && start < self.end.load(Ordering::Relaxed)
    }
}
