//! The `ipath` command as a library.

pub mod cli;
pub mod commands;
pub mod config;
mod http;
pub mod push;
