//! The `ipath` command as a library.

pub mod cli;
pub mod commands;
pub mod config;
pub mod failure;
mod http;
pub mod push;
