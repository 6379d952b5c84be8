//! Pure analysis of x86-64 ELF code: bytes in, plan out. Knows no process.
#![forbid(unsafe_code)]

pub mod addr;
pub mod emit;
pub mod flow;
pub mod function;
pub mod image;
mod insn;
pub mod plan;
pub mod relocate;
pub mod select;

pub use addr::{Avma, Bias, FileOffset, Svma};
