//! The step from the restorer of a signal handler to the interrupted code.

use abi::arch::signal_frame as frame;

use super::Regs;
use super::register::{FP, SAVED, SP};

/// Size of the return address. A handler that has returned has popped it.
const RETURN: u64 = size_of::<u64>() as u64;

/// Offsets of callee-saved registers in the signal frame, in bytes, in the order of [`SAVED`].
const OFFSETS: [u64; SAVED.len()] = [frame::RBX, frame::R12, frame::R13, frame::R14, frame::R15];

/// Replaces the registers at the restorer by those of the interrupted code, and returns its program
/// counter: `caller[n] = *(sp - 8 + offset[n])`. `None` if `load` refuses an address.
pub fn step(registers: &mut Regs, load: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
    let start = registers.sp().wrapping_sub(RETURN);
    let word = |offset: u64| load(start.wrapping_add(offset));
    for (column, offset) in SAVED.into_iter().zip(OFFSETS) {
        registers[column] = word(offset)?;
    }
    registers[FP] = word(frame::RBP)?;
    registers[SP] = word(frame::SP)?;
    word(frame::PC)
}
