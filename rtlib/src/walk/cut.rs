//! The cut of a walk (`--depth`): the walk may have to continue to identify its stack.

/// The state of a walk at its cut.
#[repr(C)]
pub struct Cut {
    /// The return address into the first frame that is not kept.
    pub(super) pc: u64,
    /// The stack pointer after that return.
    pub(super) sp: u64,
    /// The address from which `fp` was read; 0 if that word is already among the walk's reads.
    pub(super) fp_at: u64,
    /// The frame pointer of that frame.
    pub(super) fp: u64,
}

impl Cut {
    /// Sets `pc` and `sp`. Volatile, as below: the compiler would otherwise store both words with a
    /// vector register.
    #[inline(always)]
    pub(super) fn set_place(&mut self, pc: u64, sp: u64) {
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.pc).write_volatile(pc);
            (&raw mut self.sp).write_volatile(sp);
        }
    }

    /// Sets `fp_at` and `fp`.
    #[inline(always)]
    pub(super) fn set_frame_pointer(&mut self, fp_at: u64, fp: u64) {
        // SAFETY: fields of `self`.
        unsafe {
            (&raw mut self.fp_at).write_volatile(fp_at);
            (&raw mut self.fp).write_volatile(fp);
        }
    }
}
