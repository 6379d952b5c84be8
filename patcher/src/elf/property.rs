//! What a file says of the processor features it can run with (psABI, Linux extensions, "Program Property").

use goblin::elf::program_header::PT_GNU_PROPERTY;

use super::bytes::{file_range, half};
use super::file::ElfFile;

impl ElfFile<'_> {
    /// Does the file say that it can run with a user shadow stack (GNU_PROPERTY_X86_FEATURE_1_SHSTK)?
    pub fn bears_shadow_stack(&self) -> bool {
        const SHADOW_STACK: u32 = 1 << 1;
        self.features()
            .is_some_and(|features| features & SHADOW_STACK != 0)
    }

    /// The bits of GNU_PROPERTY_X86_FEATURE_1_AND.
    fn features(&self) -> Option<u32> {
        const NT_GNU_PROPERTY_TYPE_0: u32 = 5;
        const FEATURE_1_AND: u32 = 0xc000_0002;
        /// Name size, content size, kind, and the name "GNU".
        const HEAD: usize = 16;
        let program = self.program(PT_GNU_PROPERTY)?;
        let note = file_range(self.data(), program.p_offset, program.p_filesz)?;
        let (name, len, kind) = (half(note, 0)?, half(note, 4)?, half(note, 8)?);
        if (name, kind) != (4, NT_GNU_PROPERTY_TYPE_0) || note.get(12..HEAD)? != b"GNU\0" {
            return None;
        }
        let mut properties = note.get(HEAD..)?.get(..len as usize)?;
        loop {
            let (kind, len) = (half(properties, 0)?, half(properties, 4)? as usize);
            if kind == FEATURE_1_AND {
                return half(properties, 8);
            }
            properties = properties.get(len.checked_next_multiple_of(8)?.checked_add(8)?..)?;
        }
    }
}
