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

    /// The number of the counter of activations that have begun.
    pub const BEGUN: u32 = 0;

    /// The offset of the function's number in a slot. The key is at offset 0.
    pub const OF: u8 = 8;
    /// The offset of the sum in a slot. It is 8 times the sum of the path: the offset of the
    /// path's counter.
    pub const SUM: u8 = 16;
    /// The offset of the number of the page in a slot of a frame.
    pub const PAGE: u8 = 24;
    /// A page has 2 to the power of this number bytes.
    pub const PAGE_SHIFT: u8 = 12;
    /// The slot of a frame is twice as many bytes from the start of the table as these bits of the
    /// key state.
    pub const FRAMES: u32 = 0x1fff0;

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
        let paths = match self.kind {
            Self::BEGINS | Self::ADDS => 0,
            _ if self.counters == Self::EACH => self.paths,
            _ => return None,
        };
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
const FOLLOW: usize = 288;
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

    /// Appends code that does the work of a row if the activation has the slot of its frame, or
    /// takes it, and the thread has a bank of its own. Otherwise `slowly` is done.
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
        if row.kind == PathRow::BEGINS {
            let registers = [sum, slot, spill.used[2]];
            let places = (spill.lowered(), banks, slots);
            self.begin(row, registers, (places, with.start), otherwise)?;
        } else if counts {
            self.look_up(sum, spill.used[2], banks, otherwise)?;
            self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
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
            self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
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

    /// Appends code that takes the slot of the frame, with the sum `start`, and counts the
    /// activation. It jumps to the label `otherwise` if the slot is taken, or not for this page, or
    /// if the thread has no bank.
    ///
    /// The key is stored first. A signal handler on the same page may have the slot before that,
    /// and gives it back when it returns.
    fn begin(
        &mut self,
        row: &PathRow,
        [key, slot, bank]: [u8; 3],
        ((lowered, banks, slots), start): ((i32, Avma, Avma), i32),
        otherwise: usize,
    ) -> Result<(), CodeError> {
        let is_free = self.label();
        self.slot_of_frame(&row.key, (key, slot), (lowered, slots))?;
        let (prefix, modrm) = fields(true, key, bank);
        self.put(&[prefix, 0x89, 0xc0 | modrm]); // mov page, key
        let (prefix, modrm) = fields(true, 5, bank);
        self.put(&[prefix & !4, 0xc1, 0xc0 | modrm, PathRow::PAGE_SHIFT]); // shr page, 12
        let (prefix, modrm) = fields(true, bank, slot);
        self.put(&[prefix, 0x39, 0x40 | modrm, PathRow::PAGE]); // cmp [slot + PAGE], page
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne: for another page
        let (prefix, modrm) = fields(true, 7, slot);
        self.put(&[prefix & !4, 0x83, 0x40 | modrm, 0, 0]); // cmp qword ptr [slot], 0
        self.branch(&[0x0f, 0x84], Goal::Label(is_free)); // je
        self.is_slot_of(&row.key, (key, slot), otherwise);
        self.place(is_free);
        let (prefix, modrm) = fields(true, key, slot);
        self.put(&[prefix, 0x89, 0x40 | modrm, 0]); // mov [slot], key
        let (prefix, modrm) = fields(true, 0, slot);
        for (at, word) in [(PathRow::OF, row.key.first), (PathRow::SUM, start as u32)] {
            self.put(&[prefix & !4, 0xc7, 0x40 | modrm, at]); // mov qword ptr [slot + at], word
            self.put(&word.to_le_bytes());
        }
        self.look_up(key, bank, banks, otherwise)?;
        self.increment(bank, row.key.first + PathRow::BEGUN);
        Ok(())
    }

    /// Appends code that sets `slot` to the address of the slot of the frame. If it is not that of
    /// the activation, it jumps to the label `otherwise`. Overwrites `key` and the flags. `lowered`
    /// is how much the stack pointer is lower than the program's.
    pub(super) fn find_slot(
        &mut self,
        of: &PathKey,
        registers: (u8, u8),
        places: (i32, Avma),
        otherwise: usize,
    ) -> Result<(), CodeError> {
        self.slot_of_frame(of, registers, places)?;
        self.is_slot_of(of, registers, otherwise);
        Ok(())
    }

    /// Appends a jump to the label `otherwise`, if the slot at the address in `slot` is not that of
    /// the activation with this key.
    fn is_slot_of(&mut self, of: &PathKey, (key, slot): (u8, u8), otherwise: usize) {
        let (prefix, modrm) = fields(true, key, slot);
        self.put(&[prefix, 0x39, 0x40 | modrm, 0]); // cmp [slot], key
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
        let (prefix, modrm) = fields(false, 7, slot);
        self.put(&[prefix & !4, 0x81, 0x40 | modrm, PathRow::OF]); // cmp dword ptr [slot + OF], first
        self.put(&of.first.to_le_bytes());
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
    }

    /// Appends code that sets `key` to the key of the activation, and `slot` to the address of the
    /// slot of its frame.
    fn slot_of_frame(
        &mut self,
        of: &PathKey,
        (key, slot): (u8, u8),
        (lowered, slots): (i32, Avma),
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
        let (prefix, modrm) = fields(false, key, slot);
        self.put(&[prefix, 0x89, 0xc0 | modrm]); // mov slot, key (32 bits)
        let (prefix, modrm) = fields(false, 4, slot);
        self.put(&[prefix & !4, 0x81, 0xc0 | modrm]); // and slot, FRAMES
        self.put(&PathRow::FRAMES.to_le_bytes());
        let (prefix, modrm) = fields(false, slot, slot);
        self.put(&[prefix, 0x01, 0xc0 | modrm]); // add slot, slot: a slot is 32 bytes
        let (prefix, modrm) = fields(true, slot, 5);
        self.rip_relative(&[prefix & !1, 0x03, modrm, 0, 0, 0, 0], 3, slots)?; // add slot, [slots]
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
