//! Reading the target's memory and the list of the runtime's own mappings.

use abi::PAGE;
use abi::image::{OWN_MAPPINGS, SYMBOL_MAPS, SYMBOL_MAPS_USED};
use patcher::Avma;

use super::{SessionError, symbol};
use crate::segment::Document;
use ipath_target::process::{Extent, Memory};

/// Reads memory of the target.
///
/// # Errors
/// The memory cannot be read.
pub(super) fn read(memory: &Memory, at: Avma, len: usize) -> Result<Vec<u8>, SessionError> {
    memory
        .read_vec(at, len)
        .map_err(|e| SessionError::Memory("read", at, e))
}

/// The mappings that the runtime has made for itself. Entries that are not valid ranges of pages
/// are skipped. Fails if the list cannot be read.
pub(super) fn own_mappings(
    document: &Document,
    memory: &Memory,
) -> Result<Vec<Extent>, SessionError> {
    let table = symbol(document, SYMBOL_MAPS)?;
    let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
    let used = word(&read(memory, symbol(document, SYMBOL_MAPS_USED)?, 8)?);
    let bytes = read(memory, table, used.min(OWN_MAPPINGS as u64) as usize * 16)?;
    let own = bytes
        .chunks_exact(16)
        .map(|mapping| Extent::from((word(&mapping[..8]), word(&mapping[8..]))));
    // The target can write to the list.
    let is_whole = |m: &Extent| {
        let (start, len) = (m.start.0, m.len);
        let pages = start.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        pages && start != 0 && len != 0 && start.checked_add(len).is_some()
    };
    Ok(own.filter(is_whole).collect())
}
