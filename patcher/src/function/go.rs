//! The functions that a Go program knows itself: the table its runtime has of them stays in a stripped
//! file (runtime/symtab.go, `pcHeader` and `functab`; runtime/runtime2.go, `_func`).

use super::symbols::Symbol;
use crate::addr::Svma;
use crate::flow::relocated_words;
use crate::image::{Image, c_str};

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
}

struct Table<'i, 'd> {
    image: &'i Image<'d>,
    at: Svma,
    layout: Layout,
    /// The names, each ended by a zero.
    names: &'d [u8],
    /// The functions in order, and behind them what they refer to.
    functions: &'d [u8],
    count: usize,
    /// Start of the text, as far as the header tells it.
    text: u64,
}

/// A row of the table: a function's address or distance, and its name in the file.
struct Row<'d> {
    at: u64,
    name: &'d str,
}

/// What the table names, ordered by address; nothing where there is none.
pub(super) fn functions(image: &Image<'_>) -> Vec<Symbol> {
    let Some(table) = Table::of(image) else {
        return Vec::new();
    };
    let Some(text) = table.start_of_text() else {
        return Vec::new();
    };
    let places = (0..table.count).map(|index| (table.row(index), table.place(index + 1)));
    let symbols = places.filter_map(|(row, behind)| {
        let row = row?;
        let start = Svma(text.wrapping_add(row.at));
        let end = text.wrapping_add(behind?);
        symbol(image, start, end.checked_sub(start.0)?, row.name)
    });
    symbols.collect()
}

fn symbol(image: &Image<'_>, start: Svma, room: u64, name: &str) -> Option<Symbol> {
    /// What the linker fills up with between functions, and how much of it.
    const INT3: u8 = 0xcc;
    const MOST: usize = 64;
    let code = image.is_code(start).then(|| image.bytes(start, room))??;
    let from_end = code.iter().rev().take(MOST);
    let padding = from_end.take_while(|&&byte| byte == INT3).count();
    let len = code.len() - padding;
    if len == 0 {
        return None;
    }
    let name_at = name.as_ptr().addr() - image.data().as_ptr().addr();
    Symbol::new(start, len as u64, name_at as u64, name.len())
}

impl<'i, 'd> Table<'i, 'd> {
    fn of(image: &'i Image<'d>) -> Option<Self> {
        let sections = SECTIONS.iter().filter_map(|name| image.section(name));
        let (at, bytes, layout) = sections.into_iter().find_map(|(start, bytes)| {
            let mut words = bytes.chunks_exact(WORD).enumerate();
            let (index, layout) = words
                .find_map(|(index, word)| Some((index, Layout::of(word.try_into().ok()?)?)))?;
            let at = index * WORD;
            Some((start.plus(at as u64), &bytes[at..], layout))
        })?;
        let word = |index: usize| word(bytes, index * WORD);
        let from = |index: usize| bytes.get(usize::try_from(word(index)?).ok()?..);
        let (names, functions, text) = match layout {
            Layout::Addresses => (from(3)?, from(7)?, 0),
            Layout::Distances => (from(4)?, from(8)?, word(TEXT)?),
        };
        let table = Self {
            image,
            at,
            layout,
            names,
            functions,
            count: usize::try_from(word(1)?).ok()?,
            text,
        };
        // The row behind the last one ends it.
        let len = table.count.checked_mul(table.row_len())?;
        (len < functions.len()).then_some(table)
    }

    fn row_len(&self) -> usize {
        match self.layout {
            Layout::Addresses => 16,
            Layout::Distances => 8,
        }
    }

    /// A number of the table, of the size that this layout has them.
    fn number(&self, at: usize) -> Option<u64> {
        match self.layout {
            Layout::Addresses => word(self.functions, at),
            Layout::Distances => half(self.functions, at).map(u64::from),
        }
    }

    /// Where row `index`, or the end behind the last one, says that it is.
    fn place(&self, index: usize) -> Option<u64> {
        self.number(index * self.row_len())
    }

    fn row(&self, index: usize) -> Option<Row<'d>> {
        let size = self.row_len() / 2;
        let described = usize::try_from(self.number(index * 2 * size + size)?).ok()?;
        let name = half(self.functions, described.checked_add(size)?)?;
        let name = c_str(self.names.get(name as usize..)?)?;
        Some(Row {
            at: self.place(index)?,
            name,
        })
    }

    /// Where the text starts that the rows count from; `None` where that is not to be known. A linker may leave
    /// it to the loader, or to the program; then the program's entry tells it.
    fn start_of_text(&self) -> Option<u64> {
        if self.layout == Layout::Addresses || self.image.is_code(Svma(self.text)) {
            return Some(self.text);
        }
        let field = self.at.plus((TEXT * WORD) as u64);
        let mut relocated = relocated_words(self.image).into_iter();
        if let Some(word) = relocated.find(|word| word.at == field && word.value != 0) {
            return Some(word.value);
        }
        let mut rows = (0..self.count).filter_map(|index| self.row(index));
        let entry = rows.find(|row| row.name == ENTRY)?;
        self.image.entry().0.checked_sub(entry.at)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}
