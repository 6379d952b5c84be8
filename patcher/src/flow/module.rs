//! What the checks over the whole module need, computed once.

use std::ops::Range;
use std::sync::OnceLock;

use crate::addr::Svma;
use crate::elf::{RelocatedWord, le64, relocated_words, text_fields};
use crate::image::Image;

use super::address_set::AddressSet;
use super::popping;
use super::scan;

/// Facts about one image that every plan in it shares.
///
/// Building it reads the whole text once (less than 1 ns a byte) and keeps four bits for each byte.
pub struct ModuleContext<'d> {
    /// Tells a plan that it was given the context of another image.
    pub(crate) data: &'d [u8],
    /// Where a branch with a long displacement may land.
    pub(crate) branches: AddressSet,
    /// Those of them where two or more may.
    pub(crate) crowded: AddressSet,
    /// What instructions may form relative to themselves.
    pub(crate) formed: AddressSet,
    /// What stands in data as an address.
    pub(crate) words: AddressSet,
    pub(crate) restartable: Vec<Range<Svma>>,
    /// The words that the loader fills with addresses, by where they stand.
    relocated: Vec<RelocatedWord>,
    /// The words with addresses in the text, by those addresses.
    pointers: OnceLock<Vec<RelocatedWord>>,
    /// What the loader fills of the text, sorted.
    text_fields: Vec<Svma>,
    /// The target of each branch to a crowded address, sorted.
    arrivals: OnceLock<Vec<u64>>,
    /// Where Go's runtime has what runs deferred functions before a return.
    deferreturns: OnceLock<Vec<u64>>,
    /// Where goroutines return to.
    goroutine_ends: OnceLock<Vec<Svma>>,
    /// True if code without unwind entries pops its arguments.
    callees_pop: OnceLock<bool>,
}

impl<'d> ModuleContext<'d> {
    /// Scans `image`.
    pub fn new(image: &Image<'d>) -> Self {
        let found = scan::text(image);
        let mut words = scan::over_text(image);
        let mut relocated = relocated_words(image);
        relocated.sort_unstable_by_key(|word| word.at);
        for word in relocated.iter().copied().chain(scan::plain_words(image)) {
            words.insert(word.value);
        }
        let restartable = restartable(image, &relocated);
        for sequence in &restartable {
            words.insert(sequence.end.0);
        }
        let scan::TextTargets {
            branches,
            crowded,
            formed,
        } = found;
        Self {
            data: image.data(),
            branches,
            crowded,
            formed,
            words,
            restartable,
            relocated,
            text_fields: text_fields(image),
            pointers: OnceLock::new(),
            arrivals: OnceLock::new(),
            deferreturns: OnceLock::new(),
            goroutine_ends: OnceLock::new(),
            callees_pop: OnceLock::new(),
        }
    }

    /// How many branches with a long displacement may land at `to`. The first question reads the
    /// whole text once more.
    pub(crate) fn arrivals(&self, image: &Image<'_>, to: Svma) -> usize {
        if !self.crowded.contains(to) {
            return usize::from(self.branches.contains(to));
        }
        let all = self
            .arrivals
            .get_or_init(|| scan::arrivals(image, &self.crowded));
        let first = all.partition_point(|at| *at < to.0);
        all[first..].iter().take_while(|at| **at == to.0).count()
    }

    /// The addresses of Go's `runtime.deferreturn`, by either of its names; none in what is not written in Go.
    pub(crate) fn deferreturns(&self, image: &Image<'_>) -> &[u64] {
        const NAMES: [&str; 2] = ["runtime.deferreturn", "runtime.deferreturn.abi0"];
        self.deferreturns.get_or_init(|| {
            let found = image.functions().with_name(|name| NAMES.contains(&name));
            found.iter().map(|f| f.range.start.0).collect()
        })
    }

    /// Where goroutines of Go return to (runtime/asm_amd64.s, `goexit`). That is one instruction into a
    /// function that nothing has called, so that it seems to have called their first functions.
    pub(crate) fn goroutine_ends(&self, image: &Image<'_>) -> &[Svma] {
        const NAMES: [&str; 2] = ["runtime.goexit", "runtime.goexit.abi0"];
        self.goroutine_ends.get_or_init(|| {
            let found = image.functions().with_name(|name| NAMES.contains(&name));
            found.iter().map(|f| f.range.start.plus(1)).collect()
        })
    }

    /// True if code without unwind entries pops its arguments, as V8's built-in functions do. After
    /// the call, the stack pointer of the caller then differs from that at the call.
    pub(crate) fn callees_pop(&self, image: &Image<'_>) -> bool {
        *self
            .callees_pop
            .get_or_init(|| popping::has_popping_return(image))
    }

    /// The word at `at` once the module is loaded, without the bias.
    pub(crate) fn word(&self, image: &Image<'_>, at: Svma) -> Option<Svma> {
        if let Ok(index) = self.relocated.binary_search_by_key(&at, |word| word.at) {
            return Some(Svma(self.relocated[index].value));
        }
        let bytes = image.bytes(at, 8)?.first_chunk()?;
        Some(Svma(u64::from_le_bytes(*bytes)))
    }

    /// Is `to`, which stands in data as an address, there within `tables` alone, and formed by no instruction?
    pub(crate) fn is_pointed_at_within(
        &self,
        image: &Image<'_>,
        to: Svma,
        tables: &[Range<Svma>],
    ) -> bool {
        let pointers = self.pointers.get_or_init(|| {
            let mut pointers = self.relocated.clone();
            pointers.extend(scan::plain_words(image));
            pointers.retain(|word| self.is_text(Svma(word.value)));
            pointers.sort_unstable_by_key(|word| word.value);
            pointers
        });
        let first = pointers.partition_point(|word| word.value < to.0);
        let mut places = pointers[first..]
            .iter()
            .take_while(|word| word.value == to.0);
        let is_sequence = self.restartable.iter().any(|sequence| sequence.end == to);
        !is_sequence
            && !self.formed.contains(to)
            && places.all(|word| tables.iter().any(|table| table.contains(&word.at)))
    }

    /// May the loader change one of these bytes?
    pub(crate) fn is_relocated(&self, range: &Range<Svma>) -> bool {
        // No field that a relocation fills is longer than a word.
        let first = self
            .text_fields
            .partition_point(|at| at.plus(8) <= range.start);
        self.text_fields
            .get(first)
            .is_some_and(|at| *at < range.end)
    }

    /// Is `at` in an executable segment?
    pub(crate) fn is_text(&self, at: Svma) -> bool {
        self.branches.covers(at)
    }

    /// Is the address taken by anything in the module?
    pub(crate) fn is_taken(&self, at: Svma) -> bool {
        self.formed.contains(at) || self.words.contains(at)
    }
}

/// The critical sections listed in `__rseq_cs`, as `struct rseq_cs` of linux/rseq.h lays them out:
/// `u32 version, u32 flags, u64 start_ip, u64 post_commit_offset, u64 abort_ip`, 32 bytes each.
fn restartable(image: &Image<'_>, words: &[RelocatedWord]) -> Vec<Range<Svma>> {
    let Some((base, bytes)) = image.section("__rseq_cs") else {
        return Vec::new();
    };
    let start_of = |at: Svma, in_file: u64| match words.iter().find(|w| w.at == at) {
        Some(RelocatedWord { value, .. }) => *value,
        None => in_file,
    };
    bytes
        .chunks_exact(32)
        .enumerate()
        .map(|(i, entry)| {
            let at = base.plus(32 * i as u64 + 8);
            Svma(start_of(at, le64(&entry[8..]))).range(le64(&entry[16..]))
        })
        .collect()
}
