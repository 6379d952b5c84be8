//! The start of a Go program's text, from the linker's module record
//! (cmd/link/internal/ld/symtab.go, `moduledata`; runtime/symtab.go). It is needed if the header of
//! the table does not contain the start. Headers do not contain it from Go 1.26 on. Before that, an
//! external linker leaves the field to the loader.

use crate::addr::Svma;
use crate::elf::{ElfFile, RelocatedWord, le64, relocated_words};

/// The size of a word, in bytes.
const WORD: usize = 8;
/// The number of words of the record that are searched. The two needed are the 21st and 22nd in Go
/// 1.27.
const RECORD: u64 = 48;

/// The address that offsets in the table at `table` are relative to; `None` if no record contains
/// it, or if records disagree. The functions of the table span `span` bytes, and the first one is
/// `first` bytes after that address.
///
/// The record begins with the table's address and contains the bounds of the code. These are the
/// adjacent words `start + first` and `start + first + span`. That pair is the proof.
pub(super) fn start_of_text(file: &ElfFile<'_>, table: Svma, first: u64, span: u64) -> Option<u64> {
    let words = Words::of(file);
    let mut starts = words.holding(table).filter_map(|record| {
        let fields = (1..RECORD).map(|index| words.at(record.plus(index * WORD as u64)));
        let fields: Vec<u64> = fields.map(Option::unwrap_or_default).collect();
        let mut pairs = fields.windows(2);
        let pair = pairs.find(|pair| {
            pair[0].checked_add(span) == Some(pair[1]) && file.is_code(Svma(pair[0]))
        })?;
        pair[0].checked_sub(first)
    });
    let start = starts.next()?;
    starts.all(|other| other == start).then_some(start)
}

/// The words of a file's data as loaded, without the bias.
struct Words<'f, 'd> {
    file: &'f ElfFile<'d>,
    /// The words that the loader fills in, by address.
    relocated: Vec<RelocatedWord>,
}

impl<'f, 'd> Words<'f, 'd> {
    fn of(file: &'f ElfFile<'d>) -> Self {
        let mut relocated = relocated_words(file);
        relocated.sort_unstable_by_key(|word| word.at);
        Self { file, relocated }
    }

    fn at(&self, at: Svma) -> Option<u64> {
        match self.relocated.binary_search_by_key(&at, |word| word.at) {
            Ok(index) => Some(self.relocated[index].value),
            Err(_) => self.file.bytes(at, WORD as u64).map(le64),
        }
    }

    /// The addresses that hold the value `value`.
    fn holding(&self, value: Svma) -> impl Iterator<Item = Svma> {
        let filled = self
            .relocated
            .iter()
            .filter(move |word| word.value == value.0);
        let filled = filled.map(|word| word.at);
        let is_fixed = !self.file.is_position_independent();
        let data = self
            .file
            .segments()
            .iter()
            .filter(move |s| is_fixed && !s.execute);
        let plain = data.flat_map(move |segment| {
            let skew = segment.range.start.0.wrapping_neg() % WORD as u64;
            let start = segment.range.start.plus(skew);
            let len = segment.file_end().0.saturating_sub(start.0);
            let bytes = self.file.bytes(start, len).unwrap_or_default();
            let words = bytes.chunks_exact(WORD).zip(0u64..);
            let found = words.filter(move |(word, _)| le64(word) == value.0);
            found.map(move |(_, index)| start.plus(index * WORD as u64))
        });
        filled.chain(plain)
    }
}
