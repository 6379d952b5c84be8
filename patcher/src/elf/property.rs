//! What a file says of the processor features it can run with (psABI, Linux extensions, "Program Property").

use goblin::elf::note::NT_GNU_PROPERTY_TYPE_0;
use goblin::elf::program_header::PT_GNU_PROPERTY;

use super::bytes::half;
use super::file::ElfFile;
use super::notes::notes;

impl ElfFile<'_> {
    /// Does the file say that it can run with a user shadow stack (GNU_PROPERTY_X86_FEATURE_1_SHSTK)?
    pub fn bears_shadow_stack(&self) -> bool {
        const SHADOW_STACK: u32 = 1 << 1;
        self.features()
            .is_some_and(|features| features & SHADOW_STACK != 0)
    }

    /// The bits of GNU_PROPERTY_X86_FEATURE_1_AND.
    fn features(&self) -> Option<u32> {
        const FEATURE_1_AND: u32 = 0xc000_0002;
        let program = self.program(PT_GNU_PROPERTY)?;
        let mut notes = notes(self.data(), program);
        let (_, mut properties) = notes.find(|note| note.0 == NT_GNU_PROPERTY_TYPE_0)?;
        loop {
            let (kind, len) = (half(properties, 0)?, half(properties, 4)? as usize);
            if kind == FEATURE_1_AND {
                return half(properties, 8);
            }
            properties = properties.get(len.checked_next_multiple_of(8)?.checked_add(8)?..)?;
        }
    }
}
