//! The registers of a frame.

use core::ops::{Index, IndexMut};

use abi::arch::registers::OTHERS;

use super::register::{COLUMNS, FP, SAVED, SP};

/// Values by DWARF column. Walks know the stack pointer and callee-saved registers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regs([u64; COLUMNS]);

/// Callee-saved registers at a probe point, as the stub of the slow path stores them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Saved {
    /// The frame pointer.
    pub fp: u64,
    /// The registers of [`SAVED`], in this order.
    pub others: [u64; OTHERS],
}

impl Regs {
    /// The registers of a frame with this stack pointer. All others are 0.
    pub fn new(sp: u64, saved: &Saved) -> Self {
        let mut registers = [0; COLUMNS];
        registers[SP] = sp;
        registers[FP] = saved.fp;
        for (column, value) in SAVED.into_iter().zip(saved.others) {
            registers[column] = value;
        }
        Self(registers)
    }

    /// `rsp`.
    pub fn sp(&self) -> u64 {
        self.0[SP]
    }

    /// `rbp`.
    pub fn fp(&self) -> u64 {
        self.0[FP]
    }

    /// `rsp = to`.
    pub fn set_sp(&mut self, to: u64) {
        self.0[SP] = to;
    }

    /// `rbp = to`.
    pub fn set_fp(&mut self, to: u64) {
        self.0[FP] = to;
    }

    /// The value of the register with DWARF column `column`; `None` if there is no such column.
    pub fn get(&self, column: usize) -> Option<u64> {
        self.0.get(column).copied()
    }
}

impl Index<usize> for Regs {
    type Output = u64;

    fn index(&self, column: usize) -> &u64 {
        &self.0[column]
    }
}

impl IndexMut<usize> for Regs {
    fn index_mut(&mut self, column: usize) -> &mut u64 {
        &mut self.0[column]
    }
}
