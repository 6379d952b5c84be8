//! The hook of a path, and the row that tells its stub what to do, as `abi::path` lays it out.

use super::code::{Code, Goal, HOOK_AT_POINT};
use super::patch::CodeError;
use super::relocate::{BACK_OVER_RED_ZONE, SKIP_RED_ZONE};
use crate::addr::Avma;

/// The layout of a row, as in the crate `abi`. All fields are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRow {
    /// The kind of the action, at offset 0: `BEGINS`, `ADDS`, `ENDS` or `RESTARTS`.
    pub kind: u8,
    /// True if the frame address is relative to the frame pointer; else to the stack pointer.
    pub by_fp: bool,
    /// True if the counters are a hash table.
    pub hashed: bool,
    /// The distance of the frame address from the register, in bytes.
    pub cfa: i32,
    /// The number of the function's first counter.
    pub first: u32,
    /// The number of paths.
    pub paths: u64,
    /// The number to add to the sum.
    pub add: u64,
    /// The sum of the path that begins.
    pub start: u64,
}

impl PathRow {
    /// The length of a row in bytes.
    pub const LEN: usize = 40;
    /// The alignment of a row in bytes.
    pub const ALIGN: usize = 8;
    /// A path begins, with the sum `start`.
    pub const BEGINS: u8 = 0;
    /// `add` is added to the sum.
    pub const ADDS: u8 = 1;
    /// `add` is added to the sum, which is then the number of the path. The activation ends.
    pub const ENDS: u8 = 2;
    /// `add` is added to the sum, which is then the number of the path. Another one begins with the
    /// sum `start`.
    pub const RESTARTS: u8 = 3;

    /// The bytes of the row.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let flags = [self.kind, u8::from(self.by_fp), u8::from(self.hashed), 0];
        bytes[..4].copy_from_slice(&flags);
        bytes[4..8].copy_from_slice(&self.cfa.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.first.to_le_bytes());
        for (at, word) in [(16, self.paths), (24, self.add), (32, self.start)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The maximum length of the hook of a path and of its row, in bytes.
pub const PATH_HOOK: usize = HOOK_AT_POINT + 2 + PathRow::LEN + PathRow::ALIGN;

impl Code {
    /// Appends a hook that calls the function at the address in `cell`, with the address of `row`,
    /// a label, in rax. The red zone stays as it is. Fails if `cell` is out of reach.
    pub fn path_hook(&mut self, row: usize, cell: Avma) -> Result<(), CodeError> {
        self.put(&SKIP_RED_ZONE);
        self.put(&[0x50]); // push rax
        self.branch(&[0x48, 0x8d, 0x05], Goal::Label(row)); // lea rax, [rip + row]
        self.rip_relative(&[0xff, 0x15, 0, 0, 0, 0], 2, cell)?; // call [rip + cell]
        self.put(&[0x58]); // pop rax
        self.put(&BACK_OVER_RED_ZONE);
        Ok(())
    }

    /// Appends a row, aligned, and places its label.
    pub fn path_row(&mut self, label: usize, row: &PathRow) {
        while !self.here().0.is_multiple_of(PathRow::ALIGN as u64) {
            self.put(&[0xcc]);
        }
        self.place(label);
        self.put(&row.bytes());
    }
}
