//! Samples of a program by the kernel's performance events, and the search for the causes of its
//! waits.

mod arch;
pub mod sampling;
pub mod search;
