//! The `ipath` command as a library.

pub mod cli;
pub mod clock;
pub mod collect;
pub mod commands;
pub mod destination;
pub mod error;
pub mod export;
pub mod faults;
pub mod files;
pub(crate) mod guard;
pub mod guest;
pub mod images;
mod inherited;
pub mod launch;
pub mod lines;
pub mod outlet;
pub mod printable;
pub mod process;
pub mod profile;
pub(crate) mod random;
pub mod report;
pub mod runtime_image;
pub mod segment;
pub mod session;
pub mod signals;
pub mod tracee;
pub mod view;
