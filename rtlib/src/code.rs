//! What code says of a return address: whether it is one, and how the frame it belongs to is left.
//!
//! Nothing here knows of a thread or its stack.

pub mod asked;
pub mod callers;
pub mod cfi;
pub mod coroutines;
pub mod epoch;
pub mod frame_pointer;
pub mod modules;
pub mod published;
pub mod range;
pub mod registered;
pub mod return_address;
pub mod rows;
pub mod rules;
pub mod successors;
