//! What the crates of `ipath` share below their own subjects: errors and hints as users read them, text that no
//! terminal obeys, and files that may be anything.

pub mod destination;
pub mod error;
pub mod files;
pub mod guard;
pub mod hint;
pub mod printable;
pub mod starved;
