//! Sessions: what is put into a process, measured there, collected and taken out again.

pub mod collect;
pub mod condition;
pub mod counter;
pub mod follow;
pub mod launch;
pub mod metric;
pub mod mpi;
pub mod runtime_image;
pub mod segment;
pub mod session;
