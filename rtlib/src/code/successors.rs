//! Files that are mapped where others have been before: a return address there is another one from then on.
//!
//! The tree has it with the number of the mapping that it is in ([`abi::segment::call_site`]), and so have the buckets of rules that
//! paths are told by, which are renamed when such a file comes. Nobody walks through it before that: the loader tells of it first.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::segment::call_site;

/// Places of which that is known at a time. What comes to further ones is taken for what was there before.
const MOST: usize = u64::BITS as usize;

/// Where such a file is mapped, or was until something else has come.
struct Place {
    start: AtomicU64,
    /// First address after it; 0 where there is none.
    end: AtomicU64,
    /// What [`call_site`] has of it.
    module: AtomicU64,
}

static PLACES: [Place; MOST] = [const {
    Place {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        module: AtomicU64::new(0),
    }
}; MOST];

/// How many of them have ever been in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether any such file has come.
#[inline(always)]
pub fn are_any() -> bool {
    USED.load(Ordering::Acquire) != 0
}

/// The key of the call that returns to `pc`, as the tree has it.
///
/// Inlined, with nothing that takes room: paths are compared by it on the application's stack.
#[inline(always)]
pub fn site(pc: u64) -> u64 {
    let mut at = USED.load(Ordering::Acquire);
    while at != 0 {
        at -= 1;
        // SAFETY: no more are in use than there are.
        let place = unsafe { PLACES.get_unchecked(at) };
        if place.holds(pc) {
            return call_site(pc, place.module.load(Ordering::Relaxed));
        }
    }
    pc
}

/// A file that comes to a place. Under the lock of the modules.
pub struct Change {
    start: u64,
    end: u64,
    module: u64,
    /// The places that it takes, a bit each, and the one that it gets.
    leaving: u64,
    place: usize,
}

impl Change {
    /// Of a file that is mapped in this place, whose calls have `module` in their keys; `None` where nothing changes by that, or no more can
    /// be known.
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

    /// What the tree has had and has from then on of an address, where that may be another one.
    pub fn keys(&self, pc: u64) -> Option<(u64, u64)> {
        // A call returns to where the code may end.
        let is_in = (self.start..self.end).contains(&pc.wrapping_sub(1));
        let is_left = || self.leaving().any(|place| place.holds(pc));
        let module = if is_in { self.module } else { 0 };
        (is_in || self.leaving != 0 && is_left()).then(|| (site(pc), call_site(pc, module)))
    }

    /// Has it be so.
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

    fn leaving(&self) -> impl Iterator<Item = &'static Place> {
        let places = PLACES.iter().enumerate();
        let leaving = places.filter(|(at, _)| self.leaving >> at & 1 != 0);
        leaving.map(|(_, place)| place)
    }
}

impl Place {
    /// Whether the call is here that returns to `pc`.
    #[inline(always)]
    fn holds(&self, pc: u64) -> bool {
        let end = self.end.load(Ordering::Acquire);
        (self.start.load(Ordering::Relaxed)..end).contains(&pc.wrapping_sub(1))
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start.load(Ordering::Relaxed) < end && start < self.end.load(Ordering::Relaxed)
    }
}
