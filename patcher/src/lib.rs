//! Static analysis and patch planning for ELF code: bytes in, plan out.
//!
//! The crate never touches a process. Everything that depends on the processor is in [`isa`].
#![forbid(unsafe_code)]

pub mod addr;
pub mod elf;
pub mod emit;
pub mod flow;
pub mod function;
pub mod image;
pub mod inside;
pub mod isa;
#[cfg(test)]
mod looks;
#[cfg(test)]
mod oracle;
pub mod plan;
pub mod select;
mod tables;

pub use addr::{Avma, Bias, FileOffset, Svma};
