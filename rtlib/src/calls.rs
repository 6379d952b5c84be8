//! Calls of probed functions that have not ended: each thread's list of activations, and what becomes of those
//! whose stack is left, moved, or gone.

pub mod activation;
pub mod closing;
pub mod coroutines;
pub mod cost;
pub mod doubt;
pub mod left;
pub mod list;
mod lot;
pub mod meter;
pub mod moving;
pub mod overhead;
pub mod slices;

pub use list::Calls;
