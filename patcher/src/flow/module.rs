//! Facts about a module that all its functions share, computed once.

use std::ops::Range;
use std::sync::OnceLock;

use crate::addr::Svma;
use crate::elf::{RelocatedWord, le64, relocated_words, text_fields};
use crate::image::Image;

use super::address_set::AddressSet;
use super::popping;
use super::scan::{self, LongBranch};

/// Facts about one image that every plan in it shares.
///
/// Construction reads the whole text once (less than 1 ns a byte) and keeps four bits for each
/// byte.
pub struct ModuleContext<'d> {
    /// The data of the image, so that a plan can detect the context of another image.
    pub(crate) data: &'d [u8],
    /// Possible targets of branches with a 32-bit displacement.
    pub(crate) branches: AddressSet,
    /// The targets in `branches` that two or more branches may have.
    pub(crate) crowded: AddressSet,
    /// Addresses that instructions may compute relative to themselves.
    pub(crate) formed: AddressSet,
    /// Addresses that are stored in data.
    pub(crate) words: AddressSet,
    /// The code ranges of the module's restartable sequences (rseq).
    pub(crate) restartable: Vec<Range<Svma>>,
    /// The words that the loader fills with addresses, sorted by location.
    relocated: Vec<RelocatedWord>,
    /// The words with addresses in the text, sorted by the addresses that they contain.
    pointers: OnceLock<Vec<RelocatedWord>>,
    /// The locations in the text that the loader changes, sorted.
    text_fields: Vec<Svma>,
    /// The target of each branch to a crowded address, sorted.
    arrivals: OnceLock<Vec<u64>>,
    /// The branches between functions ([`scan::crossing`]).
    crossing: OnceLock<Vec<LongBranch>>,
    /// The addresses of Go's `runtime.deferreturn`, which runs deferred functions before a return.
    deferreturns: OnceLock<Vec<u64>>,
    /// The return addresses of goroutines.
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
            crossing: OnceLock::new(),
            deferreturns: OnceLock::new(),
            goroutine_ends: OnceLock::new(),
            callees_pop: OnceLock::new(),
        }
    }

    /// The number of branches with a 32-bit displacement that may have the target `to`. The first
    /// query reads the whole text once more.
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

    /// The branches from other functions that may lead to one of `wanted`, which are no starts of
    /// functions. The first query reads the whole text once more.
    pub(crate) fn crossing_to(&self, image: &Image<'_>, wanted: &[Svma]) -> Vec<LongBranch> {
        let all = self.crossing.get_or_init(|| scan::crossing(image));
        let of = |to: &Svma| {
            let first = all.partition_point(|branch| branch.to < *to);
            let after = all.partition_point(|branch| branch.to <= *to);
            all[first..after].iter().copied()
        };
        wanted.iter().flat_map(of).collect()
    }

    /// The addresses of Go's `runtime.deferreturn`, under both its names. Empty for code not
    /// written in Go.
    pub(crate) fn deferreturns(&self, image: &Image<'_>) -> &[u64] {
        const NAMES: [&str; 2] = ["runtime.deferreturn", "runtime.deferreturn.abi0"];
        self.deferreturns.get_or_init(|| {
            let found = image.functions().with_name(|name| NAMES.contains(&name));
            found.iter().map(|f| f.range.start.0).collect()
        })
    }

    /// The return addresses of Go's goroutines (runtime/asm_amd64.s, `goexit`).
    ///
    /// Each is one instruction into a function that has no caller, so that this function seems to
    /// have called the goroutine's first function.
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

    /// The word at `at` after loading, as a link-time address. `None` if the file has no word
    /// there.
    pub(crate) fn word(&self, image: &Image<'_>, at: Svma) -> Option<Svma> {
        if let Ok(index) = self.relocated.binary_search_by_key(&at, |word| word.at) {
            return Some(Svma(self.relocated[index].value));
        }
        let bytes = image.bytes(at, 8)?.first_chunk()?;
        Some(Svma(u64::from_le_bytes(*bytes)))
    }

    /// True if data stores the address `to` only within `tables` or nowhere, no instruction
    /// computes it, and no restartable sequence ends at it.
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

    /// True if the loader may change one of the bytes in `range`.
    pub(crate) fn is_relocated(&self, range: &Range<Svma>) -> bool {
        // No relocated field is longer than a word.
        let first = self
            .text_fields
            .partition_point(|at| at.plus(8) <= range.start);
        self.text_fields
            .get(first)
            .is_some_and(|at| *at < range.end)
    }

    /// True if `at` is in an executable segment.
    pub(crate) fn is_text(&self, at: Svma) -> bool {
        self.branches.covers(at)
    }

    /// True if anything in the module takes the address.
    pub(crate) fn is_taken(&self, at: Svma) -> bool {
        self.formed.contains(at) || self.words.contains(at)
    }
}

/// The critical sections listed in `__rseq_cs`, with the layout of `struct rseq_cs` in
/// linux/rseq.h: `u32 version, u32 flags, u64 start_ip, u64 post_commit_offset, u64 abort_ip`, 32
/// bytes each.
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
