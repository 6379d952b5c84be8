//! The cache of rules by return address: one for the process, read without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::rule::Rule;

use crate::os::hash;

/// Unwind rules by return address.
pub static RULES: Rules = Rules::new();

/// Slots; a power of two. A program's call sites that reach a probe are far fewer.
const SLOTS: usize = 1 << u16::BITS;

/// Slots looked at before the cache counts as full for an address.
const PROBES: usize = 16;

#[repr(C, align(16))]
struct Slot {
    /// The return address; 0 while free.
    key: AtomicU64,
    /// The encoded rule; 0 until it is stored.
    rule: AtomicU64,
}

/// Rules by return address.
pub struct Rules {
    slots: [Slot; SLOTS],
}

impl Rules {
    /// An empty cache.
    pub const fn new() -> Self {
        Self {
            slots: [const {
                Slot {
                    key: AtomicU64::new(0),
                    rule: AtomicU64::new(0),
                }
            }; SLOTS],
        }
    }

    /// The word of the rule for `address`, 0 if it is not known, and the number of its slot, which is no
    /// other address's for as long as the session lasts.
    #[inline(always)]
    pub fn get(&self, address: u64) -> (u64, u16) {
        let first = slot_of(address);
        let slot = &self.slots[first];
        if slot.key.load(Ordering::Relaxed) == address {
            return (slot.rule.load(Ordering::Acquire), first as u16);
        }
        self.search(address)
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = ".text.fast")]
    fn search(&self, address: u64) -> (u64, u16) {
        let first = slot_of(address);
        for at in first..first + PROBES {
            let slot = &self.slots[at % SLOTS];
            let key = slot.key.load(Ordering::Relaxed);
            if key == address {
                return (slot.rule.load(Ordering::Acquire), (at % SLOTS) as u16);
            }
            if key == 0 {
                break;
            }
        }
        (0, 0)
    }

    /// The address whose rule is in slot number `site`.
    pub fn address(&self, site: u16) -> u64 {
        self.slots[usize::from(site)].key.load(Ordering::Relaxed)
    }

    /// Remembers the rule for `address`; false where there is no room, and the rule must be found
    /// anew each time.
    pub fn insert(&self, address: u64, rule: Rule) -> bool {
        if address == 0 {
            // A free slot has that key.
            return false;
        }
        let first = slot_of(address);
        for at in first..first + PROBES {
            let slot = &self.slots[at % SLOTS];
            let claimed =
                slot.key
                    .compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() || claimed == Err(address) {
                slot.rule.store(rule.encode(), Ordering::Release);
                return true;
            }
        }
        false
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn slot_of(address: u64) -> usize {
    hash::slot(address, u16::BITS)
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use abi::rule::Rule;

    #[test]
    fn gives_back_what_was_inserted() {
        static RULES: Rules = Rules::new();
        let rule = |n: u64| Rule::FromRsp {
            cfa_offset: n as i32,
            rbp_words: 0,
        };
        for n in 1..20_000u64 {
            assert_eq!(RULES.get(n * 37).0, 0);
            if RULES.insert(n * 37, rule(n)) {
                let (word, site) = RULES.get(n * 37);
                assert_eq!(Rule::decode(word), rule(n));
                assert_eq!(RULES.address(site), n * 37);
            }
        }
        let kept = (1..20_000).filter(|n| RULES.get(n * 37).0 != 0).count();
        assert!(kept > 19_900, "{kept} of 19999 kept");
    }
}
