//! The metadata of an ELF file: headers, segments, sections, relocations, properties.

mod bytes;
mod error;
mod file;
mod layout;
mod linked;
mod notes;
mod programs;
mod property;
mod relocations;
mod separate;
mod stored;
mod uncovered;

pub(crate) use bytes::{c_str, file_range, half, le64, section_bytes, segment_bytes, word};
pub use error::{ImageError, other_machine};
pub use file::ElfFile;
pub(crate) use layout::Section;
pub use layout::Segment;
pub use linked::{LinkSection, LinkSegment, LinkSymbol, LinkTables, Relocation};
pub use programs::Programs;
pub(crate) use relocations::{RelocatedWord, called_by_the_loader, relocated_words, text_fields};
pub use stored::{Compression, StoredSection, SymbolRow, compressed, stored_sections, symbol_rows};
