//! Samples of what a program does, by the kernel's performance events, and the search for what it waits for.

mod arch;
pub mod sampling;
pub mod search;
