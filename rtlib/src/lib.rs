//! The runtime that `ipath` maps into a target: freestanding, no libc, no ELF TLS.
//!
//! `mutator/session/build.rs` compiles this crate with `--cfg ipath_image` into the image that is written
//! into the target. Compiled as an ordinary library it serves its own tests: the parts that decide
//! something (unwind tables, rules, the path tree) run there against independent oracles.
//!
//! Its modules are layers, each of which imports from those before it only: [`arch`], [`os`], [`sources`], [`code`], [`walk`],
//! [`ledger`], [`calls`], [`thread`], [`probe`]. The entry points from the program stand above them all, in the folder of
//! their processor: `arch::x86_64::{stubs, quick, trap}`.
//!
//! Two worlds: code in `.text.fast` runs on the application's stack, touches no vector register
//! and makes no system call; everything else runs on a private stack with signals blocked and the
//! sixteen SSE registers saved (the image holds no AVX and no x87 instruction).
#![no_std]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod calls;
pub mod code;
pub mod ledger;
pub mod os;
pub mod probe;
pub mod sources;
pub mod thread;
pub mod walk;
