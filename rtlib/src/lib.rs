//! The runtime that `ipath` maps into a target: freestanding, without libc and ELF TLS.
//!
//! `mutator/session/build.rs` compiles this crate with `--cfg ipath_image` into the image that is
//! written into the target. As an ordinary library it is compiled for its own tests only. They
//! check the parts with decisions (unwind tables, rules, the path tree) against independent
//! oracles.
//!
//! Its modules are layers. Each imports only from the layers before it: [`arch`], [`os`],
//! [`sources`], [`code`], [`walk`], [`ledger`], [`calls`], [`thread`], [`probe`]. The entry points
//! from the program are above all layers, in the folder of their processor: `arch::x86_64::{stubs,
//! quick, trap}`.
//!
//! The code has two environments. Code in `.text.fast` runs on the application's stack, changes no
//! vector register and makes no system call. All other code runs on a private stack, with signals
//! blocked and the sixteen SSE registers saved (the image contains no AVX and no x87 instructions).
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
