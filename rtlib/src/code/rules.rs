//! The cache of rules by return address: one for the process, read without a lock.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::segment::address_and_module;
use unwind::{Rule, rule};

use super::successors;
use crate::os::hash;

/// Unwind rules by return address.
pub static RULES: Rules = Rules::new();

/// The number of buckets of the cache, a power of two. A program's call sites that reach a probe
/// are far fewer.
const BUCKETS: usize = 1 << u16::BITS;

/// The bucket of the return address 0 only: its key equals that of a free bucket.
const OF_ZERO: usize = 0;

/// Buckets probed before the cache counts as full for an address.
const PROBES: usize = 16;

#[repr(C, align(16))]
struct Bucket {
    /// The return address; 0 if the bucket is free. With [`GONE`] set, the call site in the path
    /// tree of a former return address at which another file is mapped now.
    key: AtomicU64,
    /// The encoded rule, of kind 0 if there is none, and the flag [`ASKED`].
    rule: AtomicU64,
}

/// Set in the word of a rule that was requested from the command. It stays set when the rule is
/// forgotten.
const ASKED: u64 = 1 << 24;

/// Flag in [`Bucket::key`] of an address at which another file is mapped now.
const GONE: u64 = 1 << 63;

/// The validity of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The rule is valid.
    New,
    /// The rule may be wrong. If it was requested from the command, it need not be requested again.
    Old,
    /// The rule belongs to code that has been replaced.
    OfOther,
}

/// Rules by return address.
pub struct Rules {
    buckets: [Bucket; BUCKETS],
    /// True if any bucket belongs to code that has been replaced.
    have_gone: AtomicBool,
}

impl Rules {
    /// An empty cache.
    pub const fn new() -> Self {
        Self {
            buckets: [const {
                Bucket {
                    key: AtomicU64::new(0),
                    rule: AtomicU64::new(0),
                }
            }; BUCKETS],
            have_gone: AtomicBool::new(false),
        }
    }

    /// The word of the rule for `address`, of kind 0 if it is unknown, and the number of its
    /// bucket, 0 if it has none. No other address gets this bucket for the rest of the session.
    #[inline(always)]
    pub fn get(&self, address: u64) -> (u64, u16) {
        let first = bucket_of(address);
        let bucket = &self.buckets[first];
        if bucket.key.load(Ordering::Relaxed) == address {
            return (bucket.rule.load(Ordering::Acquire), first as u16);
        }
        self.search(address)
    }

    /// The result of [`Rules::get`] if the first bucket is not that of `address`.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = ".text.fast")]
    fn search(&self, address: u64) -> (u64, u16) {
        let first = bucket_of(address);
        for at in first..first + PROBES {
            if at % BUCKETS == OF_ZERO {
                continue;
            }
            let bucket = &self.buckets[at % BUCKETS];
            let key = bucket.key.load(Ordering::Relaxed);
            if key == address {
                return (bucket.rule.load(Ordering::Acquire), (at % BUCKETS) as u16);
            }
            if key == 0 {
                break;
            }
        }
        (0, 0)
    }

    /// The rule for `address`. `None` unless a [`Rule::FromSp`] or [`Rule::FromFp`] is known.
    pub fn frame(&self, address: u64) -> Option<Rule> {
        let (word, _) = self.get(address);
        matches!(rule::kind(word), rule::FROM_SP | rule::FROM_FP).then(|| Rule::decode(word))
    }

    /// The return address with bucket number `site`, even if its code has been replaced.
    pub fn address(&self, site: u16) -> u64 {
        let key = self.key(site);
        self.gone(key)
            .map_or(key, |site| address_and_module(site).0)
    }

    /// The call site with bucket number `site`, as the path tree stores it.
    #[inline(always)]
    pub fn site(&self, site: u16) -> u64 {
        let key = self.key(site);
        self.gone(key).unwrap_or_else(|| successors::site(key))
    }

    /// The key of bucket number `site`: its return address; if the code there has been replaced,
    /// its former call site in the path tree with the highest bit set; 0 if the bucket is free.
    #[inline(always)]
    pub fn key(&self, site: u16) -> u64 {
        self.buckets[usize::from(site)].key.load(Ordering::Relaxed)
    }

    /// The call site in the path tree of an address whose code was replaced, by the key of its
    /// bucket. `None` if the code was not replaced.
    #[inline(always)]
    fn gone(&self, key: u64) -> Option<u64> {
        let is_gone = key & GONE != 0 && self.have_gone.load(Ordering::Relaxed);
        is_gone.then_some(key & !GONE)
    }

    /// Assigns other buckets to addresses whose call sites change. An address that returns to an
    /// earlier call site gets its earlier bucket back. `change` returns the call sites of an
    /// address before and after, or `None` if they do not change.
    pub fn rename(&self, change: impl Fn(u64) -> Option<(u64, u64)>) {
        for bucket in &self.buckets {
            let key = bucket.key.load(Ordering::Relaxed);
            if key == 0 {
                continue;
            }
            let gone = self.gone(key);
            let address = gone.map_or(key, |site| address_and_module(site).0);
            let Some((before, after)) = change(address).filter(|(before, after)| before != after)
            else {
                continue;
            };
            match gone {
                Some(site) if site == after => bucket.key.store(address, Ordering::Relaxed),
                Some(_) => {}
                None => {
                    bucket.change(|_| 0);
                    bucket.key.store(before | GONE, Ordering::Relaxed);
                    self.have_gone.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Caches the rule for `address`. False if there is no room; the rule must then be found again
    /// each time.
    pub fn insert(&self, address: u64, rule: Rule) -> bool {
        let Some(bucket) = self.claim(address) else {
            return false;
        };
        bucket.change(|word| rule.encode() | word & ASKED);
        true
    }

    /// Notes that the rule of `address` is requested. False if it was requested before, or if there
    /// is no room.
    pub fn ask(&self, address: u64) -> bool {
        let bucket = self.claim(address);
        bucket.is_some_and(|bucket| bucket.rule.fetch_or(ASKED, Ordering::Relaxed) & ASKED == 0)
    }

    /// Notes that the rule of `address` was not requested after all.
    pub fn forget_question(&self, address: u64) {
        if let Some(bucket) = self.claim(address) {
            bucket.change(|word| word & !ASKED);
        }
    }

    /// Forgets the rule for `address`.
    pub fn forget_one(&self, address: u64) {
        let is_its = |bucket: &&Bucket| bucket.key.load(Ordering::Relaxed) == address;
        if let Some(bucket) = self.probed(address).find(is_its) {
            bucket.change(|word| word & ASKED);
        }
    }

    /// Forgets the rules for which `age`, called with address and word, is not [`Age::New`].
    /// Returns their number.
    pub fn forget(&self, age: impl Fn(u64, u64) -> Age) -> usize {
        let known = self.buckets.iter().filter(|bucket| {
            let (key, word) = (&bucket.key, bucket.rule.load(Ordering::Relaxed));
            let age = match rule::kind(word) {
                0 => Age::New,
                _ => age(key.load(Ordering::Relaxed), word),
            };
            match age {
                Age::New => {}
                Age::Old => bucket.change(|word| word & ASKED),
                Age::OfOther => bucket.change(|_| 0),
            }
            age != Age::New
        });
        known.count()
    }

    /// The buckets in which `address` may be, in probing order.
    fn probed(&self, address: u64) -> impl Iterator<Item = &Bucket> {
        let first = bucket_of(address);
        let places = (first..first + PROBES).map(|at| at % BUCKETS);
        places
            .filter(move |&at| at != OF_ZERO || address == 0)
            .map(|at| &self.buckets[at])
    }

    /// The bucket of `address`, assigned now if necessary. `None` if there is no room.
    fn claim(&self, address: u64) -> Option<&Bucket> {
        if address == 0 {
            return Some(&self.buckets[OF_ZERO]);
        }
        self.probed(address).find(|bucket| {
            let key = &bucket.key;
            let claimed = key.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
            claimed.is_ok() || claimed == Err(address)
        })
    }
}

impl Bucket {
    /// Replaces the word of the rule by the result of `change`, called with the word before.
    fn change(&self, change: impl Fn(u64) -> u64) {
        let change = |word| Some(change(word));
        // The update cannot fail, because `change` always returns a value.
        let _ = self
            .rule
            .fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn bucket_of(address: u64) -> usize {
    hash::bucket(address, u16::BITS)
}

#[cfg(test)]
mod tests {
    use super::{Age, Rules};
    use crate::code::successors::{Change, site};
    use abi::segment::call_site;
    use unwind::{Rule, rule};

    #[test]
    fn gives_back_what_was_inserted() {
        static RULES: Rules = Rules::new();
        let rule = |n: u64| Rule::FromSp {
            cfa_offset: n as i32,
            fp_words: 0,
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

    #[test]
    fn what_is_forgotten_can_be_found_again_and_is_asked_for_once() {
        static RULES: Rules = Rules::new();
        let (one, other) = (0x1000, 0x2000);
        assert!(RULES.insert(one, Rule::Root) && RULES.insert(other, Rule::Full));
        assert!(RULES.ask(one) && !RULES.ask(one) && RULES.ask(other));
        RULES.forget_question(one);
        assert!(RULES.ask(one) && !RULES.ask(one));
        assert_eq!(Rule::decode(RULES.get(one).0), Rule::Root);
        RULES.forget_one(one);
        RULES.forget_one(0x3000);
        let kind = |pc| rule::kind(RULES.get(pc).0);
        assert_eq!((kind(one), kind(other)), (0, rule::FULL));
        assert_eq!(
            RULES.forget(|_, _| Age::OfOther),
            1,
            "one has no rule any more"
        );
        assert_eq!(kind(other), 0);
        assert!(RULES.insert(one, Rule::Full) && !RULES.ask(one) && RULES.ask(other));
        assert_eq!(RULES.forget(|_, _| Age::New), 0);
        assert_eq!(RULES.forget(|_, _| Age::Old), 1);
        assert!(kind(one) == 0 && !RULES.ask(one));
        assert!(RULES.insert(one, Rule::Full));
        assert_eq!(Rule::decode(RULES.get(one).0), Rule::Full);
    }

    /// A single test, because all places share one table.
    #[test]
    fn addresses_are_told_apart_by_what_is_mapped() {
        const START: u64 = 0x7000_1000_0000;
        const END: u64 = START + 0x1000;
        static RULES: Rules = Rules::new();
        let come = |start, end, module| {
            let change = Change::of(start, end, module);
            let Some(change) = change else {
                return;
            };
            RULES.rename(|pc| change.keys(pc));
            change.settle();
        };
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
        let at_end = END + 0x100;
        assert_eq!(site(at_end), call_site(at_end, 7), "a call at its end");
        assert_eq!(site(at_end + 1), at_end + 1);

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
