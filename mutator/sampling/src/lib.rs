//! Samples of a program by the kernel's performance events, the search for the causes of its waits,
//! and the decisions that keep the overhead of measuring below a limit.

mod arch;
pub mod sampling;
pub mod search;
pub mod throttle;
