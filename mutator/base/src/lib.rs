//! The base of all crates of `ipath`: I/O errors in words, advice that is safe to paste, text
//! without control sequences, and safe handling of arbitrary files.

pub mod cache;
pub mod descriptors;
pub mod destination;
pub mod error;
pub mod files;
pub mod guard;
pub mod hint;
pub mod printable;
pub mod starved;
