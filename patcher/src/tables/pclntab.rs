//! The table that Go's runtime has of a program's functions. It stays in a stripped file (runtime/symtab.go,
//! `pcHeader`, `functab` and `pcvalue`; runtime/runtime2.go, `_func`).

use std::ops::Range;

use super::go_text;
use crate::addr::Svma;
use crate::elf::{ElfFile, c_str, half, relocated_words, word};

/// Where the table stands: the second in position-independent programs, the others where a C linker has put it
/// among other things.
const SECTIONS: [&str; 4] = [
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".data.rel.ro",
    ".rodata",
];
/// Where a Go program without C starts.
const ENTRY: &str = "_rt0_amd64_linux";
/// Bytes of a word, and of an address.
const WORD: usize = 8;
/// The header's word that tells where the text starts, in later layouts.
const TEXT: usize = 3;

/// How the table is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Go 1.16 and 1.17: functions by address.
    Addresses,
    /// Go 1.18 and later: by their distance from the start of the text.
    Distances,
}

impl Layout {
    /// As the first bytes of a table tell it: its kind, two zeros, the granularity of addresses and the size of
    /// one.
    fn of(first: [u8; WORD]) -> Option<Self> {
        let [a, b, c, d, rest @ ..] = first;
        if rest != [0, 0, 1, WORD as u8] {
            return None;
        }
        match u32::from_le_bytes([a, b, c, d]) {
            0xffff_fffa => Some(Self::Addresses),
            0xffff_fff0 | 0xffff_fff1 => Some(Self::Distances),
            _ => None,
        }
    }

    /// Bytes of an address or distance.
    fn size(self) -> usize {
        match self {
            Self::Addresses => WORD,
            Self::Distances => WORD / 2,
        }
    }
}

/// The table of an file.
pub(crate) struct Pclntab<'d> {
    layout: Layout,
    /// The names, each ended by a zero.
    names: &'d [u8],
    /// What belongs to addresses of functions, each list at a place of its own.
    values: &'d [u8],
    /// The functions in order, and after them what they refer to.
    functions: &'d [u8],
    count: usize,
    /// What the rows count from.
    text: u64,
}

/// A function that the table knows.
pub(crate) struct GoFunction<'d> {
    /// Its code, with what the linker has filled up after it.
    pub(crate) range: Range<Svma>,
    /// Its name, which stands in the file.
    pub(crate) name: &'d str,
    /// Where its list of stack heights begins.
    heights: u32,
}

impl<'d> Pclntab<'d> {
    pub(crate) fn of(file: &ElfFile<'d>) -> Option<Self> {
        let sections = SECTIONS.iter().filter_map(|name| file.section(name));
        let (at, bytes, layout) = sections.into_iter().find_map(|(start, bytes)| {
            let mut words = bytes.chunks_exact(WORD).enumerate();
            let (index, layout) = words
                .find_map(|(index, word)| Some((index, Layout::of(word.try_into().ok()?)?)))?;
            let at = index * WORD;
            Some((start.plus(at as u64), &bytes[at..], layout))
        })?;
        let word = |index: usize| word(bytes, index * WORD);
        let from = |index: usize| bytes.get(usize::try_from(word(index)?).ok()?..);
        let (names, values, functions, text) = match layout {
            Layout::Addresses => (from(3)?, from(6)?, from(7)?, 0),
            Layout::Distances => (from(4)?, from(7)?, from(8)?, word(TEXT)?),
        };
        let mut table = Self {
            layout,
            names,
            values,
            functions,
            count: usize::try_from(word(1)?).ok()?,
            text,
        };
        // The row after the last one ends it.
        let len = table.count.checked_mul(2 * layout.size())?;
        table.text = (len < functions.len()).then(|| table.start_of_text(file, at))??;
        Some(table)
    }

    /// All functions, in the order of the table, which is that of their addresses.
    pub(crate) fn functions(&self) -> impl Iterator<Item = GoFunction<'d>> + '_ {
        (0..self.count).filter_map(|index| self.function(index))
    }

    /// The function that starts at `at`.
    pub(crate) fn function_at(&self, at: Svma) -> Option<GoFunction<'d>> {
        let wanted = at.0.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.place(middle)? < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = (low < self.count).then(|| self.function(low))?;
        found.filter(|function| function.range.start == at)
    }

    /// By how many bytes `function` has moved the stack pointer down, each with the address up to which that
    /// holds, ascending.
    pub(crate) fn stack_heights(
        &self,
        function: &GoFunction<'d>,
    ) -> impl Iterator<Item = (Svma, i64)> + use<'d> {
        let list = match function.heights {
            0 => None,
            at => self.values.get(at as usize..),
        };
        let mut list = list.unwrap_or_default().iter();
        let Range { start: mut at, end } = function.range;
        let mut height = -1i32;
        std::iter::from_fn(move || {
            // No change ends the list. Each entry takes at least a byte of the code.
            let change = number(&mut list).filter(|&change| change != 0)?;
            let bytes = number(&mut list)?;
            height = height.wrapping_add(signed(change));
            at = (at < end && bytes != 0).then(|| at.plus(bytes.into()))?;
            Some((at, height.into()))
        })
        .fuse()
    }

    /// A number of a row, of the size that this layout has them.
    fn number(&self, at: usize) -> Option<u64> {
        match self.layout {
            Layout::Addresses => word(self.functions, at),
            Layout::Distances => half(self.functions, at).map(u64::from),
        }
    }

    /// Where row `index`, or the end after the last one, says that it is.
    fn place(&self, index: usize) -> Option<u64> {
        self.number(index.checked_mul(2 * self.layout.size())?)
    }

    fn function(&self, index: usize) -> Option<GoFunction<'d>> {
        /// Halves of a word from the name's place to that of the stack heights.
        const HEIGHTS: usize = 3;
        let size = self.layout.size();
        let described = usize::try_from(self.number((2 * index + 1) * size)?).ok()?;
        let name_at = described.checked_add(size)?;
        let name = half(self.functions, name_at)?;
        let heights = half(self.functions, name_at.checked_add(HEIGHTS * WORD / 2)?)?;
        let start = self.text.wrapping_add(self.place(index)?);
        let end = self.text.wrapping_add(self.place(index + 1)?);
        Some(GoFunction {
            range: Svma(start)..Svma(end),
            name: c_str(self.names.get(name as usize..)?)?,
            heights,
        })
    }

    /// The text start for the rows of the table at `at`. `None` if it is not known. A linker may
    /// leave it to the loader, or to the module record. Without either, it is derived from the
    /// program's entry.
    fn start_of_text(&self, file: &ElfFile<'d>, at: Svma) -> Option<u64> {
        if self.layout == Layout::Addresses || file.is_code(Svma(self.text)) {
            return Some(self.text);
        }
        let first = self.place(0)?;
        let span = self.place(self.count)?.checked_sub(first)?;
        if let Some(start) = go_text::start_of_text(file, at, first, span) {
            return Some(start);
        }
        let field = at.plus((TEXT * WORD) as u64);
        let mut relocated = relocated_words(file).into_iter();
        if let Some(word) = relocated.find(|word| word.at == field && word.value != 0) {
            return Some(word.value);
        }
        let mut rows = (0..self.count).filter(|&index| {
            let function = self.function(index);
            function.is_some_and(|function| function.name == ENTRY)
        });
        file.entry().0.checked_sub(self.place(rows.next()?)?)
    }
}

/// The next number of seven bits a byte, the lowest first.
fn number(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u32> {
    const BITS: u32 = 7;
    const MORE: u8 = 0x80;
    let mut number = 0;
    for shift in (0..u32::BITS).step_by(BITS as usize) {
        let byte = *bytes.next()?;
        number |= u32::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            return Some(number);
        }
    }
    None
}

/// The lowest bit is the sign.
fn signed(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}
