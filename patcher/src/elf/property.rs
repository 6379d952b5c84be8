//! The processor features that a file declares (psABI, Linux extensions, "Program Property").

use goblin::elf::note::NT_GNU_PROPERTY_TYPE_0;
use goblin::elf::program_header::PT_GNU_PROPERTY;

use super::bytes::half;
use super::file::ElfFile;
use super::notes::notes;
use crate::isa::elf::{FEATURES, SHADOW_STACK};

impl ElfFile<'_> {
    /// True if the file declares that it can run with a user shadow stack.
    pub fn bears_shadow_stack(&self) -> bool {
        self.features()
            .is_some_and(|features| features & SHADOW_STACK != 0)
    }

    /// The bits of the processor features that all of the file's code supports; `None` if the file
    /// declares none.
    fn features(&self) -> Option<u32> {
        let program = self.program(PT_GNU_PROPERTY)?;
        let mut notes = notes(self.data(), program);
        let (_, mut properties) = notes.find(|note| note.0 == NT_GNU_PROPERTY_TYPE_0)?;
        loop {
            let (kind, len) = (half(properties, 0)?, half(properties, 4)? as usize);
            if kind == FEATURES {
                return half(properties, 8);
            }
            properties = properties.get(len.checked_next_multiple_of(8)?.checked_add(8)?..)?;
        }
    }
}
