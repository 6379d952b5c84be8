//! Notes: gABI, Note Section.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::note::NoteDataIterator;
use goblin::elf::program_header::ProgramHeader;

use super::bytes::segment_bytes;

/// The type and content of the GNU notes in a segment, up to the first note that cannot be read.
pub fn notes<'d>(
    data: &'d [u8],
    program: &ProgramHeader,
) -> impl Iterator<Item = (u32, &'d [u8])> + use<'d> {
    let data = segment_bytes(data, program).unwrap_or_default();
    let notes = NoteDataIterator {
        data,
        size: data.len(),
        offset: 0,
        ctx: (
            program.p_align as usize,
            Ctx::new(Container::Big, Endian::Little),
        ),
    };
    let notes = notes.map_while(Result::ok);
    let of_gnu = notes.filter(|note| note.name == "GNU");
    of_gnu.map(|note| (note.n_type, note.desc))
}
