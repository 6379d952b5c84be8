//! Calls of probed functions that have not ended: the list of activations of each thread, and
//! activations whose stack is left, moves or disappears.

pub mod activation;
pub mod apart;
mod blocks;
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
pub mod phases;
pub mod single;
pub mod slices;
mod values;

pub use list::Calls;
