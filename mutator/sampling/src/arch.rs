//! Code for one processor: the registers that the kernel samples, and unwinding with them. A port
//! adds a module with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    Cache, MASK, REGISTERS, Registers, UnwindRegs, Unwinder, frame_pointer, go_to_caller,
};
