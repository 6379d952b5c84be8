//! Services of the system: system calls, memory, locks, and the segment shared with the command.

pub mod foreign;
pub mod hash;
pub mod journal;
pub mod lock;
pub mod maps;
pub mod memory;
pub mod parameters;
pub mod shared;
pub mod sys;
pub mod thread_pointer;
