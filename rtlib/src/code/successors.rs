//! Files that are mapped where others have been before: a return address there is another one from then on.
//!
//! The tree has it with the number of the mapping that it is in ([`abi::segment::call_site`]), and so have the buckets of rules that
//! paths are told by, which are renamed when such a file comes. Nobody walks through it before that: the loader tells of it first.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::segment::call_site;

use super::rules::RULES;

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

/// Notes that the file is mapped in this place whose calls have `module` in their keys. Under the lock of the modules.
pub fn come(start: u64, end: u64, module: u64) {
    let places = PLACES.iter().enumerate();
    // Those that it takes the place of, a bit each.
    let leaving = places
        .filter(|(_, place)| place.overlaps(start, end))
        .fold(0u64, |all, (at, _)| all | 1 << at);
    if module == 0 && leaving == 0 {
        return;
    }
    let all_leaving = || {
        let places = PLACES.iter().enumerate();
        places.filter(move |(at, _)| leaving >> at & 1 != 0)
    };
    let is_free = |(at, place): &(usize, &Place)| {
        leaving >> at & 1 != 0 || place.end.load(Ordering::Relaxed) == 0
    };
    let Some((free, place)) = PLACES.iter().enumerate().find(is_free) else {
        return;
    };
    RULES.rename(|pc| {
        // A call returns to where the code may end.
        let is_in = (start..end).contains(&pc.wrapping_sub(1));
        let is_left = is_in || leaving != 0 && all_leaving().any(|(_, place)| place.holds(pc));
        is_left.then(|| (site(pc), call_site(pc, if is_in { module } else { 0 })))
    });
    for (_, place) in all_leaving() {
        place.end.store(0, Ordering::Relaxed);
    }
    if module != 0 {
        place.start.store(start, Ordering::Relaxed);
        place.module.store(module, Ordering::Relaxed);
        place.end.store(end, Ordering::Release);
        USED.fetch_max(free + 1, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;
    use abi::rule::Rule;

    /// One test, for the places are one for all.
    #[test]
    fn addresses_are_told_apart_by_what_is_mapped() {
        const START: u64 = 0x7000_1000_0000;
        const END: u64 = START + 0x1000;
        let (pc, beside) = (START + 0x123, START - 0x123);
        let number = |pc| {
            assert!(RULES.insert(pc, Rule::Root));
            RULES.get(pc).1
        };
        let (first, other) = (number(pc), number(beside));
        come(START, END, 0);
        assert_eq!((site(pc), RULES.site(first)), (pc, pc));

        come(START - 0x100, END + 0x100, 7);
        assert_eq!(RULES.get(pc), (0, 0), "no rule of the one before is left");
        let second = number(pc);
        assert_ne!(first, second);
        assert_eq!(RULES.site(first), pc);
        assert_eq!(RULES.site(second), call_site(pc, 7));
        assert_eq!([first, second].map(|n| RULES.address(n)), [pc, pc]);
        assert_eq!(
            site(END + 0x100),
            call_site(END + 0x100, 7),
            "a call at its end"
        );
        assert_eq!(site(END + 0x101), END + 0x101);

        come(START, END, 0);
        assert_eq!(number(pc), first, "back in its place");
        assert_eq!(RULES.site(second), call_site(pc, 7));
        assert_eq!(site(END + 0x80), END + 0x80, "nothing of the other is left");

        come(START - 0x100, END + 0x100, 7);
        assert_eq!(number(pc), second);
        assert_eq!(RULES.site(first), pc);
        assert_eq!((RULES.get(beside).1, RULES.site(other)), (other, beside));
    }
}
