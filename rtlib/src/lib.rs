//! The runtime that `ipath` maps into a target: freestanding, no libc, no ELF TLS.
//!
//! `mutator/build.rs` compiles this crate with `--cfg ipath_image` into the image that is written
//! into the target. Compiled as an ordinary library it serves its own tests: the parts that decide
//! something (unwind tables, rules, the path tree) run there against independent oracles.
//!
//! Two worlds: code in `.text.fast` runs on the application's stack, touches no vector register
//! and makes no system call; everything else runs on a private stack with signals blocked and the
//! sixteen SSE registers saved (the image holds no AVX and no x87 instruction).
#![no_std]

#[cfg(test)]
extern crate std;

pub mod activation;
mod bounds;
pub mod cfi;
pub mod entry;
pub mod exit;
pub mod fold;
pub mod foreign;
pub mod frame_pointer;
pub mod learn;
pub mod lock;
pub mod lot;
pub mod maps;
pub mod memo;
pub mod memory;
pub mod modules;
pub mod moving;
mod paths;
pub mod reap;
pub mod record;
pub mod registry;
pub mod return_address;
pub mod rules;
pub mod segment;
mod slots;
pub mod stacks;
pub mod state;
pub mod sys;
pub mod thread;
pub mod tree;
pub mod walk;

#[cfg(ipath_image)]
mod freestanding;
#[cfg(ipath_image)]
mod quick;
#[cfg(ipath_image)]
mod stub;
#[cfg(ipath_image)]
mod trap;
