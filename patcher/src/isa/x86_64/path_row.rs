//! The hooks of paths, and the rows that tell their stub what to do, as `abi::path` lays them out.

use super::code::{Code, Goal, HOOK_AT_POINT};
use super::count::{Spill, fields};
use super::patch::CodeError;
use super::relocate::{BACK_OVER_RED_ZONE, SKIP_RED_ZONE};
use super::uses::Registers;
use crate::addr::Avma;

/// The layout of a row, as in the crate `abi`. All fields are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRow {
    /// The kind of the action, at offset 0: `BEGINS`, `ADDS`, `ENDS` or `RESTARTS`.
    pub kind: u8,
    /// The kind of the counters: `EACH`, `TABLE` or `HISTOGRAM`.
    pub counters: u8,
    /// The key of the activation.
    pub key: PathKey,
    /// The number of paths.
    pub paths: u64,
    /// The number to add to the sum.
    pub add: u64,
    /// The sum of the path that begins.
    pub start: u64,
}

/// The key of an activation's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathKey {
    /// True if the frame address is relative to the frame pointer; else to the stack pointer.
    pub by_fp: bool,
    /// The distance of the key from the register, in bytes. The key is the frame address, and 16
    /// times `first` more, so that the loops of one activation have different keys.
    pub key: i32,
    /// The number of the function's first counter.
    pub first: u32,
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
    /// Each number has a counter.
    pub const EACH: u8 = 0;
    /// The counters are a hash table.
    pub const TABLE: u8 = 1;
    /// Each power of two has a counter.
    pub const HISTOGRAM: u8 = 2;
    /// The number of the function's counters before those of its paths.
    pub const BEFORE: u32 = 3;

    /// The offset of the function's number in a slot. The key is at offset 0.
    pub const OF: u8 = 8;
    /// The offset of the sum in a slot. It is 8 times the sum of the path: the offset of the
    /// path's counter.
    pub const SUM: u8 = 16;
    /// The slot that is tried first for a key is the highest bits of its product with
    /// this number.
    pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    /// The number of these bits.
    pub const SLOT_BITS: u8 = 11;
    /// The size of a slot in bytes is 2 to the power of this number.
    pub const SLOT_SHIFT: u8 = 5;

    /// The bytes of the row.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let flags = [self.kind, u8::from(self.key.by_fp), self.counters, 0];
        bytes[..4].copy_from_slice(&flags);
        bytes[4..8].copy_from_slice(&self.key.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.first.to_le_bytes());
        for (at, word) in [(16, self.paths), (24, self.add), (32, self.start)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// True if code can have the row's numbers in its instructions.
    pub fn fits(&self) -> bool {
        self.immediates().is_some()
    }

    /// The numbers for code that does without the stub. `None` if the stub is needed, because a
    /// number does not fit into an instruction, or because the row needs more than a slot and a
    /// counter.
    fn immediates(&self) -> Option<Immediates> {
        let counts = self.kind != Self::ADDS;
        if self.kind == Self::BEGINS || counts && self.counters != Self::EACH {
            return None;
        }
        let paths = if counts { self.paths } else { 0 };
        Some(Immediates {
            add: immediate(self.add)?,
            start: immediate(self.start)?,
            paths: immediate(paths)?,
        })
    }
}

/// The numbers of a row, in bytes of counters.
pub(super) struct Immediates {
    pub(super) add: i32,
    pub(super) start: i32,
    pub(super) paths: i32,
}

/// The size of so many counters in bytes, as slots have it. `None` if an instruction has no room
/// for it.
pub(super) fn immediate(counters: u64) -> Option<i32> {
    i32::try_from((counters as i64).checked_mul(8)?).ok()
}

/// The maximum length of the code that does without the stub, in bytes.
const FOLLOW: usize = 256;
/// The maximum length of the hook of a path and of its row, in bytes.
pub const PATH_HOOK: usize = FOLLOW + HOOK_AT_POINT + 2 + PathRow::LEN + PathRow::ALIGN;

/// Where a hook of a path finds what it needs.
#[derive(Clone, Copy)]
pub struct PathCells {
    /// The cell of the stub.
    pub stub: Avma,
    /// The cell with the address of the table of banks, and that of the table of slots.
    pub tables: Option<[Avma; 2]>,
}

impl Code {
    /// Appends a hook that follows the path of its activation. The label `row` is where
    /// [`Self::path_row`] will place the row.
    ///
    /// It preserves all registers but those in `free`, and the flags unless `are_free`. Fails if a
    /// cell is out of reach.
    pub fn path_hook(
        &mut self,
        (label, row): (usize, &PathRow),
        (free, are_free): (Registers, bool),
        cells: PathCells,
    ) -> Result<(), CodeError> {
        if let Some((tables, immediates)) = cells.tables.zip(row.immediates()) {
            self.follow(row, (free, are_free), (tables, immediates), |code| {
                code.call_with_row(label, cells.stub)
            })
        } else {
            self.call_with_row(label, cells.stub)
        }
    }

    /// Calls the function at the address in `cell`, with the address of `row`, a label, in rax. The
    /// red zone stays as it is.
    fn call_with_row(&mut self, row: usize, cell: Avma) -> Result<(), CodeError> {
        self.put(&SKIP_RED_ZONE);
        self.put(&[0x50]); // push rax
        self.branch(&[0x48, 0x8d, 0x05], Goal::Label(row)); // lea rax, [rip + row]
        self.rip_relative(&[0xff, 0x15, 0, 0, 0, 0], 2, cell)?; // call [rip + cell]
        self.put(&[0x58]); // pop rax
        self.put(&BACK_OVER_RED_ZONE);
        Ok(())
    }

    /// Appends code that does the work of a row if the activation is in the slot that is tried
    /// first, and the thread has a bank of its own. Otherwise nothing is changed and `slowly` is
    /// done.
    fn follow(
        &mut self,
        row: &PathRow,
        (free, are_free): (Registers, bool),
        ([banks, slots], with): ([Avma; 2], Immediates),
        slowly: impl FnOnce(&mut Self) -> Result<(), CodeError>,
    ) -> Result<(), CodeError> {
        let counts = row.kind != PathRow::ADDS;
        let spill = Spill::of(free, are_free, if counts { 3 } else { 2 });
        let (sum, slot) = (spill.used[0], spill.used[1]);
        let [otherwise, after] = [self.label(), self.label()];
        self.spill(&spill);
        if counts {
            self.look_up(sum, spill.used[2], banks, otherwise)?;
        }
        self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
        if counts {
            let bank = spill.used[2];
            let (prefix, modrm) = fields(true, sum, slot);
            self.put(&[prefix, 0x8b, 0x40 | modrm, PathRow::SUM]); // mov sum, [slot + SUM]
            let (prefix, modrm) = fields(true, 0, sum);
            if with.add != 0 {
                self.put(&[prefix & !4, 0x81, 0xc0 | modrm]); // add sum, imm32
                self.put(&with.add.to_le_bytes());
            }
            self.put(&[prefix & !4, 0x81, 0xf8 | modrm]); // cmp sum, paths
            self.put(&with.paths.to_le_bytes());
            self.branch(&[0x0f, 0x83], Goal::Label(otherwise)); // jae: not known
            let (prefix, modrm) = fields(true, 0, slot);
            if row.kind == PathRow::ENDS {
                for at in [PathRow::OF, 0] {
                    self.put(&[prefix & !4, 0xc7, 0x40 | modrm, at]); // mov qword ptr [slot + at], 0
                    self.put(&[0; 4]);
                }
            } else {
                self.put(&[prefix & !4, 0xc7, 0x40 | modrm, PathRow::SUM]); // mov [slot + SUM], start
                self.put(&with.start.to_le_bytes());
            }
            self.increment_at(bank, sum, row.key.first + PathRow::BEFORE);
        } else {
            let (prefix, modrm) = fields(true, 0, slot);
            self.put(&[prefix & !4, 0x81, 0x40 | modrm, PathRow::SUM]); // add [slot + SUM], add
            self.put(&with.add.to_le_bytes());
        }
        self.unspill(&spill);
        let over = Goal::Label(after);
        self.jump(over);
        self.place(otherwise);
        self.unspill(&spill);
        slowly(self)?;
        self.place(after);
        Ok(())
    }

    /// Appends code that sets `slot` to the address of the slot that is tried first. If it is not
    /// that of the activation, it jumps to the label `otherwise`. Overwrites `key` and the flags.
    /// `lowered` is how much the stack pointer is lower than the program's.
    pub(super) fn find_slot(
        &mut self,
        of: &PathKey,
        (key, slot): (u8, u8),
        (lowered, slots): (i32, Avma),
        otherwise: usize,
    ) -> Result<(), CodeError> {
        const RSP: u8 = 4;
        const RBP: u8 = 5;
        if of.by_fp {
            let (prefix, modrm) = fields(true, key, RBP);
            self.put(&[prefix, 0x8d, 0x80 | modrm]); // lea key, [rbp + disp32]
            self.put(&of.key.to_le_bytes());
        } else {
            let (prefix, modrm) = fields(true, key, RSP);
            self.put(&[prefix, 0x8d, 0x80 | modrm, 0x24]); // lea key, [rsp + disp32]
            self.put(&(of.key + lowered).to_le_bytes());
        }
        let (prefix, _) = fields(true, 0, slot);
        self.put(&[prefix, 0xb8 | slot & 7]); // mov slot, imm64
        self.put(&PathRow::MULTIPLIER.to_le_bytes());
        let (prefix, modrm) = fields(true, slot, key);
        self.put(&[prefix, 0x0f, 0xaf, 0xc0 | modrm]); // imul slot, key
        let (prefix, modrm) = fields(true, 5, slot);
        let shift = 64 - PathRow::SLOT_BITS;
        self.put(&[prefix & !4, 0xc1, 0xc0 | modrm, shift]); // shr slot, 53
        let (prefix, modrm) = fields(true, 4, slot);
        self.put(&[prefix & !4, 0xc1, 0xc0 | modrm, PathRow::SLOT_SHIFT]); // shl slot, 5
        let (prefix, modrm) = fields(true, slot, 5);
        self.rip_relative(&[prefix & !1, 0x03, modrm, 0, 0, 0, 0], 3, slots)?; // add slot, [slots]
        let (prefix, modrm) = fields(true, key, slot);
        self.put(&[prefix, 0x39, 0x40 | modrm, 0]); // cmp [slot], key
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
        let (prefix, modrm) = fields(false, 7, slot);
        self.put(&[prefix & !4, 0x81, 0x40 | modrm, PathRow::OF]); // cmp dword ptr [slot + OF], first
        self.put(&of.first.to_le_bytes());
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
        Ok(())
    }

    /// Appends `inc qword ptr [bank + offset + 8 * number]`.
    fn increment_at(&mut self, bank: u8, offset: u8, number: u32) {
        let (prefix, _) = fields(true, 0, bank);
        let prefix = prefix & !4 | (offset >> 3) << 1;
        // The base has no special meaning with a displacement of 32 bits.
        let sib = (offset & 7) << 3 | bank & 7;
        self.put(&[prefix, 0xff, 0x84, sib]);
        self.put(&(8 * number).to_le_bytes());
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
