//! The cut of a walk (`--depth`): the walk may have to continue to identify its stack.

/// The frame at the cut, the address that its frame pointer was read from (as in
/// [`super::by_rules`]), and the frame pointer.
#[repr(C)]
pub struct Cut {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp_at: u64,
    pub(super) fp: u64,
}

impl Cut {
    /// Volatile, as below: the compiler would otherwise store both words with a vector register.
    #[inline(always)]
    pub(super) fn set_place(&mut self, pc: u64, sp: u64) {
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.pc).write_volatile(pc);
            (&raw mut self.sp).write_volatile(sp);
        }
    }

    #[inline(always)]
    pub(super) fn set_frame_pointer(&mut self, fp_at: u64, fp: u64) {
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.fp_at).write_volatile(fp_at);
            (&raw mut self.fp).write_volatile(fp);
        }
    }
}
