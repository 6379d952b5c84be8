//! The compiler's unwind tables, read without the patcher's own reader.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr,
    RegisterRule, UnwindContext, UnwindSection, X86_64,
};
use patcher::Svma;
use patcher::flow::{Frame, Recipe};
use patcher::image::Image;

/// The compiler's row as a recipe. `None` if a recipe cannot express it.
pub fn said(row: &gimli::UnwindTableRow<usize>) -> Option<Recipe> {
    if matches!(row.register(X86_64::RA), Some(RegisterRule::Undefined)) {
        return Some(Recipe::Outermost);
    }
    let caller_frame_pointer = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(at)) => i16::try_from(at / 8).ok()?,
        _ => return None,
    };
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let frame = Frame {
        cfa: i32::try_from(offset).ok()?,
        caller_frame_pointer,
    };
    match register {
        X86_64::RSP => Some(Recipe::FromStackPointer(frame)),
        X86_64::RBP => Some(Recipe::FromFramePointer(frame)),
        _ => None,
    }
}

/// The compiler's recipes for the code of an image.
pub struct Compiler<'d> {
    frames: EhFrame<EndianSlice<'d, LittleEndian>>,
    bases: BaseAddresses,
    header: ParsedEhFrameHdr<EndianSlice<'d, LittleEndian>>,
    unwind: UnwindContext<usize>,
}

impl<'d> Compiler<'d> {
    pub fn new(image: &Image<'d>) -> Self {
        let (start, bytes) = image.section(".eh_frame").expect("unwind tables");
        let (header_start, header) = image.section(".eh_frame_hdr").expect("an index");
        let bases = BaseAddresses::default().set_eh_frame(start.0);
        let bases = bases.set_eh_frame_hdr(header_start.0);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8);
        Self {
            frames: EhFrame::new(bytes, LittleEndian),
            bases,
            header: header.expect("a sound index"),
            unwind: UnwindContext::new(),
        }
    }

    /// The compiler's recipe for the call that returns to `after`, from its unwind entry; `None` if
    /// it has none.
    #[allow(dead_code, reason = "each test binary uses its share")]
    pub fn says(&mut self, after: Svma) -> Option<Recipe> {
        self.says_before(Svma(after.0 - 1))
    }

    /// The compiler's recipe for the state before the instruction at `at`, from its unwind entry;
    /// `None` if it has none.
    pub fn says_before(&mut self, at: Svma) -> Option<Recipe> {
        let table = self.header.table().expect("a table");
        let row = table.unwind_info_for_address(
            &self.frames,
            &self.bases,
            &mut self.unwind,
            at.0,
            EhFrame::cie_from_offset,
        );
        row.ok().and_then(said)
    }
}
