//! The base of all crates of `ipath`: errors and hints for users, text without control sequences, and files
//! that may be anything.

pub mod destination;
pub mod error;
pub mod files;
pub mod guard;
pub mod hint;
pub mod printable;
pub mod starved;
