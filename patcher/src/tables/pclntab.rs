//! The function table of Go's runtime, which is kept even in a stripped file (runtime/symtab.go,
//! `pcHeader`, `functab` and `pcvalue`; runtime/runtime2.go, `_func`).

use std::ops::Range;

use super::go_text;
use crate::addr::Svma;
use crate::elf::{ElfFile, c_str, half, relocated_words, word};

/// Sections that may contain the table. The second is used in position-independent programs. A C
/// linker merges the table into one of the others.
const SECTIONS: [&str; 4] = [
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".data.rel.ro",
    ".rodata",
];
/// The name of the function at the entry of a Go program without C.
const ENTRY: &str = "_rt0_amd64_linux";
/// The size of a word and of an address, in bytes.
const WORD: usize = 8;
/// The index of the header's word with the start of the text, in later layouts.
const TEXT: usize = 3;

/// The layout of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Go 1.16 and 1.17: functions by address.
    Addresses,
    /// Go 1.18 and later: functions by distance from the start of the text.
    Distances,
}

impl Layout {
    /// The layout according to the first bytes of a table: its kind, two zeros, the granularity of
    /// addresses, and the size of one. `None` if it is none of these layouts.
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

    /// The size of an address or distance, in bytes.
    fn size(self) -> usize {
        match self {
            Self::Addresses => WORD,
            Self::Distances => WORD / 2,
        }
    }
}

/// The table of a file.
pub(crate) struct Pclntab<'d> {
    layout: Layout,
    /// The names, each terminated by a zero.
    names: &'d [u8],
    /// Lists of values for the addresses of functions, at offsets that the functions refer to.
    values: &'d [u8],
    /// The functions in order, followed by the data that they refer to.
    functions: &'d [u8],
    /// The number of functions.
    count: usize,
    /// The address that the rows are relative to.
    text: u64,
}

/// A function in the table.
pub(crate) struct GoFunction<'d> {
    /// The function's code, including the linker's filler after it.
    pub(crate) range: Range<Svma>,
    /// The function's name, stored in the file.
    pub(crate) name: &'d str,
    /// The offset in `values` of the function's list of stack heights, in bytes.
    heights: u32,
}

impl<'d> Pclntab<'d> {
    /// The table in `file`; `None` if there is none, or if it cannot be read.
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
        // The row after the last function terminates the table.
        let len = table.count.checked_mul(2 * layout.size())?;
        table.text = (len < functions.len()).then(|| table.start_of_text(file, at))??;
        Some(table)
    }

    /// All functions, in ascending order of address.
    pub(crate) fn functions(&self) -> impl Iterator<Item = GoFunction<'d>> + '_ {
        (0..self.count).filter_map(|index| self.function(index))
    }

    /// The function that starts at `at`; `None` if none does.
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

    /// The distances by which `function` has moved the stack pointer down, in bytes, ascending by
    /// address. Each comes with the end of the code that it applies to.
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
            // A change of 0 ends the list. Each entry covers at least one byte of the code.
            let change = number(&mut list).filter(|&change| change != 0)?;
            let bytes = number(&mut list)?;
            height = height.wrapping_add(signed(change));
            at = (at < end && bytes != 0).then(|| at.plus(bytes.into()))?;
            Some((at, height.into()))
        })
        .fuse()
    }

    /// The number at byte offset `at` of the table of functions, in the size of this layout; `None`
    /// beyond its end.
    fn number(&self, at: usize) -> Option<u64> {
        match self.layout {
            Layout::Addresses => word(self.functions, at),
            Layout::Distances => half(self.functions, at).map(u64::from),
        }
    }

    /// The start of the function in row `index`, or the end of the last function if `index` is the
    /// number of rows; in bytes from `text`. `None` if the table ends before.
    fn place(&self, index: usize) -> Option<u64> {
        self.number(index.checked_mul(2 * self.layout.size())?)
    }

    fn function(&self, index: usize) -> Option<GoFunction<'d>> {
        /// The distance from the name's offset to that of the stack heights, in half-words.
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

    /// The address that the rows of the table at `at` are relative to. `None` if it is not known. A
    /// linker may leave it to the loader, or to the module record. Without either, it is derived
    /// from the program's entry.
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

/// The next variable-length number: seven bits a byte, the lowest first. `None` at the end, or if
/// it is too long.
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

/// Decodes a zigzag number, whose lowest bit is the sign.
fn signed(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}
