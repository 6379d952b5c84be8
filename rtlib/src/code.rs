//! Answers from code about return addresses: validity, and the unwind rule of the frame.
//!
//! This layer knows no thread and no stack.

pub mod asked;
pub mod callers;
pub mod cfi;
pub mod copies;
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
