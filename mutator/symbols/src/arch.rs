//! Code for one processor: the places of arguments and return values by the calling convention, and
//! the numbers of registers in debug information. A port adds a folder with the same names.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::{MACHINE, classes, dwarf};
