//! Unwind entries of code that is in no file. A program registers them with the unwinder or with
//! debuggers, for code that it generates.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindSection,
};

use super::described::recipe;
use super::recipe::Recipe;
use crate::addr::Svma;
use crate::isa::dwarf;

type Reader<'d> = EndianSlice<'d, LittleEndian>;

/// The address of a section of unwind entries, and the bases of its pointers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bases {
    /// The address of the section.
    pub section: u64,
    /// The base address of `DW_EH_PE_textrel`: the code.
    pub text: u64,
    /// The base address of `DW_EH_PE_datarel`: the data.
    pub data: u64,
}

/// The format of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `.eh_frame` (LSB 5, 10.6).
    EhFrame,
    /// `.debug_frame` (DWARF 5, 6.4.1).
    DebugFrame,
}

/// The code that an entry describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The addresses of the code.
    pub range: Range<Svma>,
    /// The recipe from each address up to the next, ascending. `None` if it needs registers other
    /// than the stack pointer and the frame pointer, if the rows cannot be read, or if they
    /// describe the frame of a signal handler.
    pub rows: Vec<(Svma, Option<Recipe>)>,
}

/// Reads the entries of a section up to its end, its terminator, or an entry with an invalid
/// length, in the order of the section. Entries that cannot be parsed or describe no code are left
/// out.
pub fn registered(bytes: &[u8], bases: Bases, form: Form) -> Vec<Registered> {
    const ADDRESS_SIZE: u8 = 8;
    let addresses = BaseAddresses::default()
        .set_eh_frame(bases.section)
        .set_text(bases.text)
        .set_got(bases.data);
    match form {
        Form::EhFrame => {
            let mut section = EhFrame::new(bytes, LittleEndian);
            section.set_address_size(ADDRESS_SIZE);
            read(&section, &addresses)
        }
        Form::DebugFrame => {
            let mut section = DebugFrame::new(bytes, LittleEndian);
            section.set_address_size(ADDRESS_SIZE);
            read(&section, &addresses)
        }
    }
}

fn read<'d, S: UnwindSection<Reader<'d>>>(section: &S, bases: &BaseAddresses) -> Vec<Registered>
where
    S::Offset: gimli::UnwindOffset<usize>,
{
    let mut entries = section.entries(bases);
    let mut context = UnwindContext::new();
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(S::cie_from_offset) else {
            continue;
        };
        let start = Svma(fde.initial_address());
        if fde.len() == 0 || start.0.checked_add(fde.len()).is_none() {
            continue;
        }
        let rows = rows(section, bases, &mut context, &fde);
        found.push(Registered {
            range: start.range(fde.len()),
            // Rows that cannot be read give no recipe for the code.
            rows: rows.unwrap_or_else(|| vec![(start, None)]),
        });
    }
    found
}

fn rows<'d, S: UnwindSection<Reader<'d>>>(
    section: &S,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    fde: &FrameDescriptionEntry<Reader<'d>>,
) -> Option<Vec<(Svma, Option<Recipe>)>> {
    if fde.cie().return_address_register() != dwarf::RETURN_ADDRESS || fde.is_signal_trampoline() {
        return None;
    }
    let mut table = fde.rows(section, bases, context).ok()?;
    let mut rows: Vec<(Svma, Option<Recipe>)> = Vec::new();
    while let Some(row) = table.next_row().ok()? {
        let recipe = recipe(row);
        if rows.last().is_none_or(|last| last.1 != recipe) {
            rows.push((Svma(row.start_address()), recipe));
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Frame;

    /// A CIE with `encoding`, and an FDE with `pointer` for 32 bytes of code. From the code's fifth
    /// byte on, the canonical frame address is `sp + frame`.
    fn section(encoding: u8, pointer: &[u8], frame: u8) -> Vec<u8> {
        let mut bytes = vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1];
        bytes.extend([encoding, 0x0c, 7, 8, 0x90, 1, 0, 0]);
        // The CIE is 28 bytes before this word.
        let mut fde = vec![28, 0, 0, 0];
        fde.extend(pointer);
        let mut size = vec![0; pointer.len()];
        size[0] = 32;
        fde.extend(size);
        fde.extend([0, 0x44, 0x0e, frame]);
        fde.resize(28, 0);
        bytes.extend((fde.len() as u32).to_le_bytes());
        bytes.extend(fde);
        bytes.extend([0; 4]);
        bytes
    }

    fn by_stack_pointer(cfa: i32) -> Option<Recipe> {
        Some(Recipe::FromStackPointer(Frame {
            cfa,
            caller_frame_pointer: 0,
        }))
    }

    #[test]
    fn pointers_of_each_kind_are_read() {
        let code = Svma(0x7000_0100);
        let bases = Bases {
            section: 0x7000_0000,
            text: 0x7000_0100 - 5,
            data: 0x7000_0100 - 9,
        };
        // The CIE has 24 bytes. The pointer is 8 bytes into the FDE after it.
        let relative = (code.0 - bases.section - 32) as u32;
        let of = |encoding, pointer: &[u8]| {
            registered(&section(encoding, pointer, 32), bases, Form::EhFrame)
        };
        let expected = vec![Registered {
            range: code..Svma(code.0 + 32),
            rows: vec![
                (code, by_stack_pointer(8)),
                (Svma(code.0 + 4), by_stack_pointer(32)),
            ],
        }];
        assert_eq!(of(0x00, &code.0.to_le_bytes()), expected); // absolute
        assert_eq!(of(0x1b, &relative.to_le_bytes()), expected); // pcrel, 4 bytes
        assert_eq!(of(0x23, &5_u32.to_le_bytes()), expected); // textrel
        assert_eq!(of(0x33, &9_u32.to_le_bytes()), expected); // datarel
    }

    #[test]
    fn what_is_no_section_says_nothing() {
        for form in [Form::EhFrame, Form::DebugFrame] {
            assert!(registered(&[], Bases::default(), form).is_empty());
            assert!(registered(&[0xff; 64], Bases::default(), form).is_empty());
            assert!(registered(&[0; 64], Bases::default(), form).is_empty());
        }
    }
}
