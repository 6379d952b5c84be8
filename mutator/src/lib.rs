//! The `ipath` command as a library.

pub mod cli;
pub mod collect;
pub mod commands;
pub mod condition;
pub mod config;
pub mod counter;
pub mod debuginfod;
mod elf_symbols;
pub mod follow;
mod hotspot;
mod http;
pub mod images;
pub mod jit;
pub mod launch;
pub mod lines;
pub mod metric;
pub mod mpi;
mod outlet;
pub mod push;
pub mod runtime_image;
pub mod sampling;
pub mod search;
pub mod segment;
pub mod session;
pub mod values;
pub mod view;
