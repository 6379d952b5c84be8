//! A processor without a port. What is here keeps the runtime compiling for it: no call looks like one,
//! system calls fail, and what cannot fail never returns.
//!
//! A port has a file for each of these modules, and the entry points `stubs`, `quick` and `trap`
//! besides.

pub mod code;
pub mod registers;
pub mod system;

pub use code::{call, hook};
pub use registers::{jump_buffer, stored, thread_pointer, vector};
pub use system::{signals, system_call};

/// The end of a program whose state is wrong.
pub mod abort {
    /// Ends the program.
    pub fn abort() -> ! {
        loop {
            core::hint::spin_loop();
        }
    }
}

/// The clock.
pub mod clock {
    /// Its value now, in ticks.
    pub fn now() -> u64 {
        super::abort::abort()
    }
}

/// The processor's counters.
pub mod counter {
    /// The value of a counter.
    ///
    /// # Safety
    /// The kernel lets the process read it.
    pub unsafe fn read(_: u32) -> u64 {
        super::abort::abort()
    }
}

/// Changes of a word that only one thread writes to, and its signal handlers.
pub mod exchange {
    /// Stores `to` if the word is `from`, so that no handler of the thread comes between. Returns the
    /// word before.
    ///
    /// # Safety
    /// The word may be written to, and only the calling thread writes there.
    pub unsafe fn if_equal(_: *mut u64, _: u64, _: u64) -> u64 {
        super::abort::abort()
    }
}

/// Order between stores.
pub mod fence {
    /// Keeps the stores before it before those after it, for readers on other processors.
    pub fn stores_in_order() {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    }
}

/// Reads that do not wait for their address.
pub mod likely {
    /// `at`, taken from the word at `guess` if that is equal.
    ///
    /// # Safety
    /// The word at `guess` may be read.
    pub unsafe fn address(at: u64, _: *const u64) -> u64 {
        at
    }
}

/// Prefetching.
pub mod prefetch {
    /// Has the line of memory at an address fetched, whatever the address.
    pub fn line<T>(_: *const T) {}
}
