//! The cache of rules by return address: one for the process, read without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::rule::Rule;

/// Slots; a power of two. A program's call sites that reach a probe are far fewer.
const SLOTS: usize = 1 << 16;

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

    /// The rule for `address`, if it is known.
    #[inline(always)]
    pub fn get(&self, address: u64) -> Option<Rule> {
        let first = slot_of(address);
        for at in first..first + PROBES {
            let slot = &self.slots[at % SLOTS];
            let key = slot.key.load(Ordering::Relaxed);
            if key == address {
                return match slot.rule.load(Ordering::Acquire) {
                    0 => None,
                    word => Some(Rule::decode(word)),
                };
            }
            if key == 0 {
                return None;
            }
        }
        None
    }

    /// Remembers the rule for `address`; false where there is no room, and the rule must be found
    /// anew each time.
    pub fn insert(&self, address: u64, rule: Rule) -> bool {
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
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
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
            assert_eq!(RULES.get(n * 37), None);
            if RULES.insert(n * 37, rule(n)) {
                assert_eq!(RULES.get(n * 37), Some(rule(n)));
            }
        }
        let kept = (1..20_000)
            .filter(|&n| RULES.get(n * 37) == Some(rule(n)))
            .count();
        assert!(kept > 19_900, "{kept} of 19999 kept");
    }
}
