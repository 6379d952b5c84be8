//! x86-64.

pub mod fence;
pub mod loader_call;
