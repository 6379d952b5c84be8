//! Functions from the table of Go's runtime, as symbols.

use super::symbol::Symbol;
use crate::addr::FileOffset;
use crate::elf::ElfFile;
use crate::isa::fill_of_go;
use crate::tables::{GoFunction, Pclntab};

/// The named functions in the table of Go's runtime, ordered by address.
pub(super) fn functions(file: &ElfFile<'_>, table: &Pclntab<'_>) -> Vec<Symbol> {
    let functions = table.functions();
    functions
        .filter_map(|function| symbol(file, &function))
        .collect()
}

fn symbol(file: &ElfFile<'_>, function: &GoFunction<'_>) -> Option<Symbol> {
    /// The maximum amount of filler that the linker puts between functions, in bytes.
    const MOST_FILL: usize = 64;
    let start = function.range.start;
    let room = function.range.end.0.checked_sub(start.0)?;
    let code = file.is_code(start).then(|| file.bytes(start, room))??;
    let len = code.len() - fill_of_go(code, MOST_FILL);
    if len == 0 {
        return None;
    }
    let name_at = function.name.as_ptr().addr() - file.data().as_ptr().addr();
    Symbol::new(
        start,
        len as u64,
        FileOffset(name_at as u64),
        function.name.len(),
    )
}
