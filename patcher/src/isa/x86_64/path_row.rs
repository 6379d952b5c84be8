//! The hooks of paths, and the rows that tell their stub what to do, as `abi::path` lays them out.

use super::code::{Code, Goal, HOOK_AT_POINT};
use super::count::fields;
use super::late::{Slow, Spill};
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
    /// The location of the frame, if the path is timed.
    pub standing: u64,
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
    pub const LEN: usize = 48;
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

    /// The function's number is this many bits above the key of an activation. The word with both
    /// is at offset 0 of a slot. A slot that is free for frames on one page has the page's address
    /// there.
    pub const FUNCTION_SHIFT: u32 = 48;
    /// The offset of the sum in a slot. It is 8 times the sum of the path: the offset of the
    /// path's counter.
    pub const SUM: u8 = 8;
    /// The slot of a frame is this many bytes from the start of the table, by the bits of the key.
    pub const FRAMES: u32 = 0x1fff0;
    /// The key is this many times the function's number above the frame address.
    pub const DISTANCE: i32 = 16;
    /// The bits of the address of a page of stack.
    pub const PAGE: i32 = -4096;

    /// The bytes of the row.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let flags = [self.kind, u8::from(self.key.by_fp), self.counters, 0];
        bytes[..4].copy_from_slice(&flags);
        bytes[4..8].copy_from_slice(&self.key.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.first.to_le_bytes());
        let words = [self.paths, self.add, self.start, self.standing];
        for (at, word) in (16..).step_by(8).zip(words) {
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

/// The stack pointer and the frame pointer, as encoded in instructions.
const RSP: u8 = 4;
const RBP: u8 = 5;

/// The maximum length of the code that does without the stub, in bytes.
const FOLLOW: usize = 336;
/// The maximum length of the hook of a path and of its row, in bytes.
pub const PATH_HOOK: usize = FOLLOW + HOOK_AT_POINT + 2 + PathRow::LEN + PathRow::ALIGN;
/// The maximum length of a hook at which a timed path begins or ends, in bytes.
pub const TIMED_PATH_HOOK: usize = HOOK_AT_POINT + TO_ROW.len() + 4;
/// `nop dword ptr [rip + disp32]` without its displacement. It leads the stub from its return
/// address to the row, and does nothing itself.
const TO_ROW: [u8; 3] = [0x0f, 0x1f, 0x05];

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
            let stub = (label, cells.stub);
            self.follow((row, stub), (free, are_free), (tables, immediates))
        } else {
            self.call_with_row(label, cells.stub)
        }
    }

    /// Appends the hook at the start or the end of a timed path, which calls the function at the
    /// address in `cell` with `number` in eax. It finds the row, a label, by the instruction behind
    /// the call. Fails if the cell is out of reach.
    pub fn timed_path_hook(
        &mut self,
        row: usize,
        number: u32,
        cell: Avma,
    ) -> Result<(), CodeError> {
        self.put(&SKIP_RED_ZONE);
        self.put(&[0x50]); // push rax
        self.put(&[0xb8]); // mov eax, number
        self.put(&number.to_le_bytes());
        self.rip_relative(&[0xff, 0x15, 0, 0, 0, 0], 2, cell)?; // call [rip + cell]
        self.branch(&TO_ROW, Goal::Label(row));
        self.put(&[0x58]); // pop rax
        self.put(&BACK_OVER_RED_ZONE);
        Ok(())
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
    /// takes it, and the thread has a bank of its own. Otherwise it calls the stub with the row.
    fn follow(
        &mut self,
        (row, stub): (&PathRow, (usize, Avma)),
        (free, are_free): (Registers, bool),
        ([banks, slots], with): ([Avma; 2], Immediates),
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
            if row.kind == PathRow::RESTARTS {
                self.put_in_slot(slot, PathRow::SUM, with.start);
            }
            self.increment_at(bank, sum, row.key.first + PathRow::BEFORE);
            if row.kind == PathRow::ENDS {
                // The slot is free for frames on this page.
                self.page(&row.key, sum, spill.lowered());
                self.activation_in(slot, sum);
            }
        } else {
            self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
            let (prefix, modrm) = fields(true, 0, slot);
            self.put(&[prefix & !4, 0x81, 0x40 | modrm, PathRow::SUM]); // add [slot + SUM], add
            self.put(&with.add.to_le_bytes());
        }
        self.unspill(&spill);
        self.place(after);
        self.slow.push(Slow {
            spill,
            stub,
            labels: [otherwise, after],
        });
        Ok(())
    }

    /// Appends the calls of the stub by hooks that cannot do without it. Fails if the stub's cell
    /// is out of reach.
    pub fn slow_paths(&mut self) -> Result<(), CodeError> {
        for of in std::mem::take(&mut self.slow) {
            let [otherwise, after] = of.labels;
            let (row, cell) = of.stub;
            self.place(otherwise);
            self.unspill(&of.spill);
            self.call_with_row(row, cell)?;
            self.jump(Goal::Label(after));
        }
        Ok(())
    }

    /// Appends code that takes the slot of the frame, with the sum `start`, and counts the
    /// activation. It jumps to the label `otherwise` if the slot is not free for this page, or if
    /// the thread has no bank.
    ///
    /// A signal handler on the same page may have the slot before this activation does, and gives
    /// it back when it returns.
    fn begin(
        &mut self,
        row: &PathRow,
        [key, slot, bank]: [u8; 3],
        ((lowered, banks, slots), start): ((i32, Avma, Avma), i32),
        otherwise: usize,
    ) -> Result<(), CodeError> {
        self.frame_plus(&row.key, key, row.key.key, lowered);
        self.slot_of_key((key, slot), slots)?;
        self.page(&row.key, bank, lowered);
        self.is_in_slot((bank, slot), otherwise);
        self.function_in(&row.key, bank);
        let (prefix, modrm) = fields(true, bank, key);
        self.put(&[prefix, 0x01, 0xc0 | modrm]); // add key, function
        self.activation_in(slot, key);
        self.put_in_slot(slot, PathRow::SUM, start);
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
        (key, slot): (u8, u8),
        (lowered, slots): (i32, Avma),
        otherwise: usize,
    ) -> Result<(), CodeError> {
        self.function_in(of, key);
        let is_high = key >> 3;
        let (base, lowered) = if of.by_fp { (RBP, 0) } else { (RSP, lowered) };
        let (modrm, sib) = ((key & 7) << 3, (key & 7) << 3 | base);
        // lea key, [base + key + disp32]
        self.put(&[0x48 | is_high << 2 | is_high << 1, 0x8d, 0x84 | modrm, sib]);
        self.put(&(of.key + lowered).to_le_bytes());
        self.slot_of_key((key, slot), slots)?;
        self.is_in_slot((key, slot), otherwise);
        Ok(())
    }

    /// Appends code that sets `to` to the number of the function, above a key.
    fn function_in(&mut self, of: &PathKey, to: u8) {
        self.put(&[0x48 | to >> 3, 0xb8 | to & 7]); // mov to, imm64
        self.put(&(u64::from(of.first) << PathRow::FUNCTION_SHIFT).to_le_bytes());
    }

    /// Appends a jump to the label `otherwise`, if the slot does not contain the word.
    fn is_in_slot(&mut self, (word, slot): (u8, u8), otherwise: usize) {
        let (prefix, modrm) = fields(true, word, slot);
        self.put(&[prefix, 0x39, 0x40 | modrm, 0]); // cmp [slot], word
        self.branch(&[0x0f, 0x85], Goal::Label(otherwise)); // jne
    }

    /// Appends code that sets `to` to the address of the page with the frame address.
    fn page(&mut self, of: &PathKey, to: u8, lowered: i32) {
        self.frame_plus(
            of,
            to,
            of.key.wrapping_sub(PathRow::DISTANCE * of.first as i32),
            lowered,
        );
        let (prefix, modrm) = fields(true, 4, to);
        self.put(&[prefix & !4, 0x81, 0xc0 | modrm]); // and to, -4096
        self.put(&PathRow::PAGE.to_le_bytes());
    }

    /// Appends code that sets `to` to the register that the frame is found by, plus `distance`.
    fn frame_plus(&mut self, of: &PathKey, to: u8, distance: i32, lowered: i32) {
        if of.by_fp {
            let (prefix, modrm) = fields(true, to, RBP);
            self.put(&[prefix, 0x8d, 0x80 | modrm]); // lea to, [rbp + disp32]
            self.put(&distance.to_le_bytes());
        } else {
            let (prefix, modrm) = fields(true, to, RSP);
            self.put(&[prefix, 0x8d, 0x80 | modrm, 0x24]); // lea to, [rsp + disp32]
            self.put(&(distance + lowered).to_le_bytes());
        }
    }

    /// Appends code that sets `slot` to the address of the slot of the frame with this key.
    fn slot_of_key(&mut self, (key, slot): (u8, u8), slots: Avma) -> Result<(), CodeError> {
        let (prefix, modrm) = fields(false, key, slot);
        self.put(&[prefix, 0x89, 0xc0 | modrm]); // mov slot, key (32 bits)
        let (prefix, modrm) = fields(false, 4, slot);
        self.put(&[prefix & !4, 0x81, 0xc0 | modrm]); // and slot, FRAMES
        self.put(&PathRow::FRAMES.to_le_bytes());
        let (prefix, modrm) = fields(true, slot, 5);
        self.rip_relative(&[prefix & !1, 0x03, modrm, 0, 0, 0, 0], 3, slots) // add slot, [slots]
    }

    /// Appends `mov [slot], activation`.
    fn activation_in(&mut self, slot: u8, activation: u8) {
        let (prefix, modrm) = fields(true, activation, slot);
        self.put(&[prefix, 0x89, 0x40 | modrm, 0]);
    }

    /// Appends `mov qword ptr [slot + at], word`.
    fn put_in_slot(&mut self, slot: u8, at: u8, word: i32) {
        let (prefix, modrm) = fields(true, 0, slot);
        self.put(&[prefix & !4, 0xc7, 0x40 | modrm, at]);
        self.put(&word.to_le_bytes());
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
