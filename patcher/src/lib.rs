//! Pure analysis of x86-64 ELF code: bytes in, plan out. Knows no process.
#![forbid(unsafe_code)]

pub mod addr;
pub mod elf;
pub mod emit;
pub mod flow;
pub mod function;
pub mod image;
mod insn;
#[cfg(test)]
mod looks;
#[cfg(test)]
mod oracle;
pub mod plan;
pub mod relocate;
pub mod select;
mod tables;

pub use addr::{Avma, Bias, FileOffset, Svma};
