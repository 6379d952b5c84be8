//! Where a walk has been cut (`--depth`): it may have to go on, to tell which stack it is on.

/// The frame it has come to, where its frame pointer was read, as [`super::by_rules`] has that, and what it is.
#[repr(C)]
pub struct Cut {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) rbp_at: u64,
    pub(super) rbp: u64,
}

impl Cut {
    /// Volatile, as below: a vector register would do for two words at once.
    #[inline(always)]
    pub(super) fn set_place(&mut self, pc: u64, sp: u64) {
        // SAFETY: fields of our own.
        unsafe {
            (&raw mut self.pc).write_volatile(pc);
            (&raw mut self.sp).write_volatile(sp);
        }
    }

    #[inline(always)]
    pub(super) fn set_frame_pointer(&mut self, rbp_at: u64, rbp: u64) {
        // SAFETY: fields of our own.
        unsafe {
            (&raw mut self.rbp_at).write_volatile(rbp_at);
            (&raw mut self.rbp).write_volatile(rbp);
        }
    }
}
