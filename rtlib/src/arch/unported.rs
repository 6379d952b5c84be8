//! A processor without a port. These modules only keep the runtime compiling for it: no bytes are
//! recognized as a call, system calls fail, and functions that cannot fail never return.
//!
//! A port has a file for each of these modules, and additionally the entry points `stubs`, `quick`
//! and `trap`.

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
    /// The current value, in ticks.
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
    /// Adds 1 to the word, atomically with respect to the thread's signal handlers.
    ///
    /// # Safety
    /// The word may be written to, and only the calling thread writes there.
    pub unsafe fn increment(_: *mut u64) {
        super::abort::abort()
    }

    /// Stores `to` if the word is `from`, atomically with respect to the thread's signal handlers.
    /// Returns the word's value before; it is `from` if `to` was stored.
    ///
    /// # Safety
    /// The word may be written to, and only the calling thread writes there.
    pub unsafe fn if_equal(_: *mut u64, _: u64, _: u64) -> u64 {
        super::abort::abort()
    }
}

/// Order between stores.
pub mod fence {
    /// Orders the stores before the call ahead of the stores after it, for readers on other
    /// processors.
    pub fn stores_in_order() {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    }
}

/// Loads whose address is predicted.
pub mod likely {
    /// Returns `at`. A processor may take it from the word at `guess` if that is equal.
    ///
    /// # Safety
    /// The word at `guess` may be read.
    pub unsafe fn address(at: u64, _: *const u64) -> u64 {
        at
    }
}

/// Prefetching.
pub mod prefetch {
    /// Prefetches the cache line at an address, which may be invalid.
    pub fn line<T>(_: *const T) {}
}
