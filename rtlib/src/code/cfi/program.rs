//! The rules in force at an address: DWARF 5 section 6.4.2, call-frame instructions.

use super::cursor::Cursor;
use super::table::Fde;
use crate::arch::register::{COLUMNS, RSP};

/// How the canonical frame address is found.
#[derive(Clone, Copy, Debug)]
pub enum Cfa {
    /// `cfa = register + offset`.
    Register(usize, i64),
    /// `cfa = value of the expression`.
    Expression(Cursor),
}

/// How the caller's value of a register is found.
#[derive(Clone, Copy, Debug)]
pub enum RegisterRule {
    /// Nothing is known; for the return address: this is the outermost frame.
    Undefined,
    /// Unchanged.
    Same,
    /// `*(cfa + offset)`.
    Offset(i64),
    /// `cfa + offset`.
    ValueOffset(i64),
    /// The value of another register.
    Register(usize),
    /// `*(value of the expression)`.
    Expression(Cursor),
    /// Value of the expression.
    ValueExpression(Cursor),
}

/// All rules at one address.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// One rule per DWARF column.
    pub registers: [RegisterRule; COLUMNS],
}

/// Nested `DW_CFA_remember_state` that are followed.
const REMEMBERED: usize = 4;

struct Machine {
    row: Row,
    initial: Row,
    stack: [Row; REMEMBERED],
    depth: usize,
    location: u64,
    target: u64,
    code_align: u64,
    data_align: i64,
}

/// The row of `fde` at `pc`; `None` where the program is malformed or uses what is not defined for
/// x86-64.
pub fn row_at(fde: &Fde, pc: u64) -> Option<Row> {
    // The ABI leaves registers without a rule to the architecture: callee-saved ones are
    // unchanged, and treating the others so is harmless, as nothing reads them.
    let row = Row {
        cfa: Cfa::Register(RSP, 8),
        registers: [RegisterRule::Same; COLUMNS],
    };
    let mut machine = Machine {
        row,
        initial: row,
        stack: [row; REMEMBERED],
        depth: 0,
        location: fde.start,
        target: pc,
        code_align: fde.code_align,
        data_align: fde.data_align,
    };
    machine.run(fde.initial)?;
    machine.initial = machine.row;
    machine.run(fde.instructions)?;
    Some(machine.row)
}

impl Machine {
    /// Runs instructions until they end or describe what lies behind the target address.
    fn run(&mut self, mut c: Cursor) -> Option<()> {
        while !c.is_empty() {
            let byte = c.u8()?;
            let operand = u64::from(byte & 0x3f);
            let done = match byte >> 6 {
                1 => self.advance(operand),
                2 => {
                    let offset = c.uleb()? as i64;
                    self.set(
                        operand,
                        RegisterRule::Offset(offset.wrapping_mul(self.data_align)),
                    )?;
                    false
                }
                3 => {
                    self.restore(operand)?;
                    false
                }
                _ => self.extended(byte, &mut c)?,
            };
            if done {
                break;
            }
        }
        Some(())
    }

    /// Whether the row reached is the last one at or before the target.
    fn advance(&mut self, units: u64) -> bool {
        let next = self
            .location
            .wrapping_add(units.wrapping_mul(self.code_align));
        if next > self.target {
            return true;
        }
        self.location = next;
        false
    }

    fn set(&mut self, column: u64, rule: RegisterRule) -> Option<()> {
        // Columns beyond the return address (vector registers) play no part in a walk.
        if let Some(slot) = self.row.registers.get_mut(usize::try_from(column).ok()?) {
            *slot = rule;
        }
        Some(())
    }

    fn restore(&mut self, column: u64) -> Option<()> {
        let rule = *self.initial.registers.get(usize::try_from(column).ok()?)?;
        self.set(column, rule)
    }

    fn register(column: u64) -> Option<usize> {
        usize::try_from(column).ok().filter(|&r| r < COLUMNS)
    }

    fn extended(&mut self, opcode: u8, c: &mut Cursor) -> Option<bool> {
        match opcode {
            0x00 => {}
            0x01 => {
                let at = c.u64()?;
                if at > self.target {
                    return Some(true);
                }
                self.location = at;
            }
            0x02 => {
                let units = u64::from(c.u8()?);
                return Some(self.advance(units));
            }
            0x03 => {
                let units = u64::from(c.u16()?);
                return Some(self.advance(units));
            }
            0x04 => {
                let units = u64::from(c.u32()?);
                return Some(self.advance(units));
            }
            0x05 => {
                let (column, offset) = (c.uleb()?, c.uleb()? as i64);
                self.set(
                    column,
                    RegisterRule::Offset(offset.wrapping_mul(self.data_align)),
                )?;
            }
            0x06 => {
                let column = c.uleb()?;
                self.restore(column)?;
            }
            0x07 => {
                let column = c.uleb()?;
                self.set(column, RegisterRule::Undefined)?;
            }
            0x08 => {
                let column = c.uleb()?;
                self.set(column, RegisterRule::Same)?;
            }
            0x09 => {
                let (column, from) = (c.uleb()?, c.uleb()?);
                self.set(column, RegisterRule::Register(Self::register(from)?))?;
            }
            0x0a => {
                *self.stack.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.stack.get(self.depth)?;
            }
            0x0c => {
                let (register, offset) = (c.uleb()?, c.uleb()?);
                self.row.cfa = Cfa::Register(Self::register(register)?, offset as i64);
            }
            0x0d => {
                let register = Self::register(c.uleb()?)?;
                let Cfa::Register(_, offset) = self.row.cfa else {
                    return None;
                };
                self.row.cfa = Cfa::Register(register, offset);
            }
            0x0e => {
                let offset = c.uleb()? as i64;
                self.cfa_offset(offset)?;
            }
            0x0f => {
                let len = c.uleb()?;
                self.row.cfa = Cfa::Expression(c.split(len)?);
            }
            0x10 => {
                let (column, len) = (c.uleb()?, c.uleb()?);
                let expression = c.split(len)?;
                self.set(column, RegisterRule::Expression(expression))?;
            }
            0x11 => {
                let (column, offset) = (c.uleb()?, c.sleb()?);
                self.set(
                    column,
                    RegisterRule::Offset(offset.wrapping_mul(self.data_align)),
                )?;
            }
            0x12 => {
                let (register, offset) = (c.uleb()?, c.sleb()?);
                let offset = offset.wrapping_mul(self.data_align);
                self.row.cfa = Cfa::Register(Self::register(register)?, offset);
            }
            0x13 => {
                let offset = c.sleb()?.wrapping_mul(self.data_align);
                self.cfa_offset(offset)?;
            }
            0x14 => {
                let (column, offset) = (c.uleb()?, c.uleb()? as i64);
                self.set(
                    column,
                    RegisterRule::ValueOffset(offset.wrapping_mul(self.data_align)),
                )?;
            }
            0x15 => {
                let (column, offset) = (c.uleb()?, c.sleb()?);
                self.set(
                    column,
                    RegisterRule::ValueOffset(offset.wrapping_mul(self.data_align)),
                )?;
            }
            0x16 => {
                let (column, len) = (c.uleb()?, c.uleb()?);
                let expression = c.split(len)?;
                self.set(column, RegisterRule::ValueExpression(expression))?;
            }
            // DW_CFA_GNU_args_size: the adjustment is the handler's business, not the walk's.
            0x2e => {
                c.uleb()?;
            }
            _ => return None,
        }
        Some(false)
    }

    fn cfa_offset(&mut self, offset: i64) -> Option<()> {
        let Cfa::Register(register, _) = self.row.cfa else {
            return None;
        };
        self.row.cfa = Cfa::Register(register, offset);
        Some(())
    }
}
