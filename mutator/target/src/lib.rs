//! Processes as `ipath` inspects and changes them: maps, memory, threads, ptrace(2), and the
//! handling of signals to the command meanwhile.

pub mod arch;
pub mod emulators;
pub mod fault_injection;
pub mod inherited;
pub mod priority;
pub mod process;
pub mod progress;
pub mod random;
pub mod saturated;
pub mod signals;
pub mod suspension;
pub mod tracee;
