//! The `ipath` command as a library.

pub mod cli;
pub mod collect;
pub mod commands;
pub mod condition;
pub mod config;
pub mod counter;
pub mod follow;
mod http;
pub mod launch;
pub mod metric;
pub mod mpi;
pub mod push;
pub mod runtime_image;
pub mod sampling;
pub mod search;
pub mod segment;
pub mod session;
