//! The program headers of a file of which only the beginning is available, as in memory.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::program_header::{PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader};

use super::layout::Segment;

/// The program headers of a file.
pub struct Programs(Vec<ProgramHeader>);

impl Programs {
    /// The program headers of the file that begins with `head`. `None` if `head` has no valid ELF
    /// header, or the program headers extend beyond `head`.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let header = Elf::parse_header(head).ok()?;
        let context = Ctx::new(Container::Big, Endian::Little);
        let (at, count) = (header.e_phoff as usize, usize::from(header.e_phnum));
        let fits = ProgramHeader::size(context) * count <= head.len();
        let programs = fits.then(|| ProgramHeader::parse(head, at, count, context).ok())??;
        Some(Self(programs))
    }

    /// The loaded segments, under the assumption that the file is not truncated.
    pub fn segments(&self) -> impl Iterator<Item = Segment> {
        let loaded = self.0.iter().filter(|p| p.p_type == PT_LOAD);
        loaded.map(|p| Segment::of(p, u64::MAX))
    }

    /// The link-time address range of `.eh_frame_hdr` (PT_GNU_EH_FRAME), to which the caller adds
    /// the load bias. `None` if the file has no such segment, or its end overflows.
    pub fn frame_index(&self) -> Option<Range<u64>> {
        let index = self.0.iter().find(|p| p.p_type == PT_GNU_EH_FRAME)?;
        Some(index.p_vaddr..index.p_vaddr.checked_add(index.p_memsz)?)
    }
}
