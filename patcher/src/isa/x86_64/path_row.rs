//! The hooks of paths, and the rows that tell their stub what to do, as `abi::path` lays them out.

use super::code::{Code, Goal, HOOK_AT_POINT};
use super::count::fields;
use super::late::{Next, Slow, Spill};
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
    /// The number of entries of a hash table is 2 to this power. An entry is two counters: the
    /// number of the path plus 1, and the count.
    pub const TABLE_BITS: u8 = 10;
    /// The highest bits of the product of this and the number of a path are the index of the entry
    /// that is tried first.
    pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

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

    /// True if copies can have the row's numbers in their instructions.
    pub fn fits(&self) -> bool {
        self.words().is_some_and(|words| words.are_short())
    }

    /// The numbers for code that does without the stub. `None` if one of them is too large.
    fn words(&self) -> Option<Words> {
        let bytes = |counters: u64| (counters as i64).checked_mul(8);
        let is_compared =
            matches!(self.kind, Self::ENDS | Self::RESTARTS) && self.counters != Self::HISTOGRAM;
        let words = Words {
            add: bytes(self.add)?,
            start: bytes(self.start)?,
            paths: if is_compared { bytes(self.paths)? } else { 0 },
        };
        // Only hooks of hash tables have a register for a large number.
        (self.counters == Self::TABLE || words.are_short()).then_some(words)
    }
}

/// The numbers of a row, in bytes of counters.
struct Words {
    add: i64,
    start: i64,
    paths: i64,
}

impl Words {
    /// True if all are operands that instructions can have.
    fn are_short(&self) -> bool {
        let all = [self.add, self.start, self.paths];
        all.into_iter().all(|word| i32::try_from(word).is_ok())
    }
}

/// The size of so many counters in bytes, as slots have it. `None` if an instruction has no room
/// for it.
pub(super) fn immediate(counters: u64) -> Option<i32> {
    i32::try_from((counters as i64).checked_mul(8)?).ok()
}

/// An operation with 64 bits, as encoded in instructions.
#[derive(Clone, Copy)]
struct Operation {
    /// The opcode with an immediate operand of 32 bits, and the digit in its register field.
    with_immediate: u8,
    digit: u8,
    /// The opcode with a register.
    with_register: u8,
}

const fn operation(with_immediate: u8, digit: u8, with_register: u8) -> Operation {
    Operation {
        with_immediate,
        digit,
        with_register,
    }
}

const ADD: Operation = operation(0x81, 0, 0x01);
const CMP: Operation = operation(0x81, 7, 0x39);
const MOV: Operation = operation(0xc7, 0, 0x89);
/// The digits of shifts.
const SHL: u8 = 4;
const SHR: u8 = 5;
/// The stack pointer and the frame pointer, as encoded in instructions.
const RSP: u8 = 4;
const RBP: u8 = 5;

/// The maximum length of the code that does without the stub, in bytes.
const FOLLOW: usize = 352;
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
        if let Some((tables, words)) = cells.tables.zip(row.words()) {
            let stub = (label, cells.stub);
            self.follow((row, stub), (free, are_free), (tables, words))
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
    /// takes it, and the thread has a bank of its own. Otherwise it calls the stub with the row. It
    /// does that also if neither of the first two entries tried in a hash table is the path's.
    fn follow(
        &mut self,
        (row, stub): (&PathRow, (usize, Avma)),
        (free, are_free): (Registers, bool),
        ([banks, slots], with): ([Avma; 2], Words),
    ) -> Result<(), CodeError> {
        let counts = row.kind != PathRow::ADDS;
        let is_table = row.counters == PathRow::TABLE;
        let ends = matches!(row.kind, PathRow::ENDS | PathRow::RESTARTS);
        let registers = match (counts, ends && is_table) {
            (_, true) => 4,
            (true, _) => 3,
            (false, _) => 2,
        };
        let spill = Spill::of(free, are_free, registers);
        let (sum, slot) = (spill.used[0], spill.used[1]);
        let [otherwise, after] = [self.label(), self.label()];
        let mut next = None;
        self.spill(&spill);
        if row.kind == PathRow::BEGINS {
            let registers = [sum, slot, spill.used[2]];
            let places = (spill.lowered(), banks, slots);
            self.begin(row, registers, (places, with.start), otherwise)?;
        } else if counts {
            let bank = spill.used[2];
            let other = spill.used.get(3).copied().unwrap_or(slot);
            self.look_up(sum, bank, banks, otherwise)?;
            self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
            let (prefix, modrm) = fields(true, sum, slot);
            self.put(&[prefix, 0x8b, 0x40 | modrm, PathRow::SUM]); // mov sum, [slot + SUM]
            if with.add != 0 {
                self.operate(ADD, (sum, None), with.add, other);
            }
            if row.counters != PathRow::HISTOGRAM {
                self.operate(CMP, (sum, None), with.paths, other);
                self.branch(&[0x0f, 0x83], Goal::Label(otherwise)); // jae: not known
            }
            let first = row.key.first + PathRow::BEFORE;
            next = is_table.then(|| self.entry((sum, other, bank), first));
            if row.kind == PathRow::RESTARTS {
                // With a hash table, the sum is not needed any more. Otherwise it is small.
                self.operate_in_slot(MOV, slot, with.start, sum);
            }
            match row.counters {
                PathRow::TABLE => self.increment(other, first + 1),
                PathRow::HISTOGRAM => {
                    self.power(sum);
                    self.increment_at((bank, sum, 8), first);
                }
                _ => self.increment_at((bank, sum, 1), first),
            }
            if row.kind == PathRow::ENDS {
                // The slot is free for frames on this page.
                self.page(&row.key, sum, spill.lowered());
                self.activation_in(slot, sum);
            }
        } else {
            self.find_slot(&row.key, (sum, slot), (spill.lowered(), slots), otherwise)?;
            self.operate_in_slot(ADD, slot, with.add, sum);
        }
        self.unspill(&spill);
        self.place(after);
        self.slow.push(Slow {
            spill,
            stub,
            labels: [otherwise, after],
            next,
        });
        Ok(())
    }

    /// Appends code that sets `entry` to the address of the entry of the path with the sum, less
    /// that of the counter `first` in a bank. If the entry tried first is not that of the path, it
    /// jumps to the code that [`Self::slow_paths`] makes of the result. Overwrites `sum` and the
    /// flags.
    fn entry(&mut self, (sum, entry, bank): (u8, u8, u8), first: u32) -> Next {
        self.shift(SHR, sum, 3); // the number of the path
        self.word_in(entry, PathRow::MULTIPLIER as i64);
        let (prefix, modrm) = fields(true, entry, sum);
        self.put(&[prefix, 0x0f, 0xaf, 0xc0 | modrm]); // imul entry, sum
        self.shift(SHR, entry, 64 - PathRow::TABLE_BITS);
        self.shift(SHL, entry, 4); // two counters
        let (prefix, modrm) = fields(true, bank, entry);
        self.put(&[prefix, 0x01, 0xc0 | modrm]); // add entry, bank
        let (prefix, modrm) = fields(true, 0, sum);
        self.put(&[prefix, 0xff, 0xc0 | modrm]); // inc sum
        let next = Next {
            registers: (sum, entry, bank),
            first,
            labels: [self.label(), self.label()],
        };
        let [tried, found] = next.labels;
        self.compare_entry(&next);
        self.branch(&[0x0f, 0x85], Goal::Label(tried)); // jne
        self.place(found);
        next
    }

    /// Appends code that tries the entry after that of [`Self::entry`], and jumps to the label
    /// `otherwise` if that is not the path's either.
    fn next_entry(&mut self, next: &Next, otherwise: usize) {
        let (_, entry, bank) = next.registers;
        let [tried, found] = next.labels;
        self.place(tried);
        let (prefix, modrm) = fields(true, bank, entry);
        self.put(&[prefix, 0x29, 0xc0 | modrm]); // sub entry, bank
        let (prefix_of_one, modrm_of_one) = fields(true, 0, entry);
        self.put(&[prefix_of_one, 0x83, 0xc0 | modrm_of_one, 16]); // add entry, 16
        self.put(&[prefix_of_one, 0x81, 0xe0 | modrm_of_one]); // and entry, mask
        let mask = (16 << PathRow::TABLE_BITS) - 16;
        self.put(&i32::to_le_bytes(mask));
        self.put(&[prefix, 0x01, 0xc0 | modrm]); // add entry, bank
        self.compare_entry(next);
        self.branch(&[0x0f, 0x84], Goal::Label(found)); // je
        self.jump(Goal::Label(otherwise));
    }

    fn compare_entry(&mut self, next: &Next) {
        let (sum, entry, _) = next.registers;
        let (prefix, modrm) = fields(true, sum, entry);
        self.put(&[prefix, 0x39, 0x80 | modrm]); // cmp [entry + 8 * first], sum
        self.put(&(8 * next.first).to_le_bytes());
    }

    /// Appends code that sets `sum` to the logarithm to base 2 of the number with this sum, and to
    /// 0 for number 0. Overwrites the flags.
    fn power(&mut self, sum: u8) {
        self.shift(SHR, sum, 3);
        let (prefix, modrm) = fields(true, 1, sum);
        self.put(&[prefix & !4, 0x83, 0xc0 | modrm, 1]); // or sum, 1
        let (prefix, modrm) = fields(true, sum, sum);
        self.put(&[prefix, 0x0f, 0xbd, 0xc0 | modrm]); // bsr sum, sum
    }

    fn shift(&mut self, operation: u8, register: u8, by: u8) {
        let (prefix, modrm) = fields(true, operation, register);
        self.put(&[prefix & !4, 0xc1, 0xc0 | modrm, by]);
    }

    /// Appends `mov register, word`.
    fn word_in(&mut self, register: u8, word: i64) {
        self.put(&[0x48 | register >> 3, 0xb8 | register & 7]);
        self.put(&word.to_le_bytes());
    }

    /// Appends an operation with `word` on a register, or on the memory at `at` bytes from it. If
    /// `word` is large, it overwrites `other`.
    fn operate(&mut self, of: Operation, (to, at): (u8, Option<u8>), word: i64, other: u8) {
        let short = i32::try_from(word);
        let (opcode, reg) = match short {
            Ok(_) => (of.with_immediate, of.digit),
            Err(_) => (of.with_register, other),
        };
        if short.is_err() {
            self.word_in(other, word);
        }
        let (prefix, modrm) = fields(true, reg, to);
        let mode = if at.is_some() { 0x40 } else { 0xc0 };
        self.put(&[prefix, opcode, mode | modrm]);
        self.put(at.as_slice());
        if let Ok(short) = short {
            self.put(&short.to_le_bytes());
        }
    }

    /// Appends the calls of the stub by hooks that cannot do without it. Fails if the stub's cell
    /// is out of reach.
    pub fn slow_paths(&mut self) -> Result<(), CodeError> {
        for of in std::mem::take(&mut self.slow) {
            let [otherwise, after] = of.labels;
            let (row, cell) = of.stub;
            if let Some(next) = &of.next {
                self.next_entry(next, otherwise);
            }
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
        ((lowered, banks, slots), start): ((i32, Avma, Avma), i64),
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
        self.operate_in_slot(MOV, slot, start, key);
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
        let function = u64::from(of.first) << PathRow::FUNCTION_SHIFT;
        self.word_in(to, function as i64);
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

    /// Appends an operation on the sum in the slot, as [`Self::operate`].
    fn operate_in_slot(&mut self, of: Operation, slot: u8, word: i64, other: u8) {
        self.operate(of, (slot, Some(PathRow::SUM)), word, other);
    }

    /// Appends `inc qword ptr [bank + scale * index + 8 * number]`.
    fn increment_at(&mut self, (bank, index, scale): (u8, u8, u8), number: u32) {
        let (prefix, _) = fields(true, 0, bank);
        let prefix = prefix & !4 | (index >> 3) << 1;
        // The base has no special meaning with a displacement of 32 bits.
        let sib = (scale.trailing_zeros() as u8) << 6 | (index & 7) << 3 | bank & 7;
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

#[cfg(test)]
mod tests;
