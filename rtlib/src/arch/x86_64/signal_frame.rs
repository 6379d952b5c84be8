//! Registers of interrupted code in a signal frame.

use abi::arch::signal_frame as frame;

use super::register::{RBP, RBX, RSP};

/// Size of the return address. A handler that returns has taken it off the frame.
const RETURN: u64 = size_of::<u64>() as u64;

/// Callee-saved registers: DWARF number, and offset from the stack pointer in the restorer.
pub const REGISTERS: [(usize, u64); 7] = [
    (12, frame::R12 - RETURN),
    (13, frame::R13 - RETURN),
    (14, frame::R14 - RETURN),
    (15, frame::R15 - RETURN),
    (RBP, frame::RBP - RETURN),
    (RBX, frame::RBX - RETURN),
    (RSP, frame::SP - RETURN),
];
/// Offset of the program counter from the stack pointer in the restorer.
pub const PC: u64 = frame::PC - RETURN;
