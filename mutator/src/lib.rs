//! The `ipath` command as a library.

pub mod cli;
pub mod clock;
pub mod collect;
pub mod commands;
pub mod error;
pub mod export;
pub mod faults;
pub mod files;
pub(crate) mod guard;
pub mod images;
pub mod launch;
pub mod lines;
pub mod process;
pub mod profile;
pub(crate) mod random;
pub mod report;
pub mod runtime_image;
pub mod segment;
pub mod session;
pub mod tracee;
pub mod view;
