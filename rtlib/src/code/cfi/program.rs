//! The rules in force at an address: DWARF 5 section 6.4.2, call-frame instructions.

use unwind::arch::register::{CFA_AT_ENTRY, COLUMNS, SP};

use super::cursor::Cursor;
use super::table::Fde;
use super::{Cfa, RegisterRule};

/// All rules at one address.
pub type Row = unwind::Row<Cursor>;

/// Maximum nesting of `DW_CFA_remember_state`.
const REMEMBERED: usize = 4;

/// The state of the evaluation of call-frame instructions.
struct Machine {
    /// The row at `location`.
    row: Row,
    /// The row after the instructions of the CIE.
    initial: Row,
    /// The rows remembered by `DW_CFA_remember_state`, `depth` of them.
    stack: [Row; REMEMBERED],
    depth: usize,
    /// The address at which `row` begins.
    location: u64,
    /// The address whose row is wanted.
    target: u64,
    code_align: u64,
    data_align: i64,
}

/// The row of `fde` at `pc`. `None` if the program is malformed or uses instructions not defined
/// for the processor.
pub fn row_at(fde: &Fde, pc: u64) -> Option<Row> {
    // The ABI leaves registers without a rule to the architecture. Callee-saved ones are unchanged.
    // Treating the others as unchanged is harmless, because they are never read.
    let row = Row {
        cfa: Cfa::Register(SP, CFA_AT_ENTRY),
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
    /// Runs instructions until their end, or until they describe code after the target address.
    /// `None` if one is malformed or unknown.
    fn run(&mut self, mut c: Cursor) -> Option<()> {
        while !c.is_empty() {
            let byte = c.u8()?;
            let operand = u64::from(byte & 0x3f);
            let done = match byte >> 6 {
                1 => self.advance(operand),
                2 => {
                    let offset = c.uleb()? as i64;
                    self.set(operand, RegisterRule::Offset(self.factored(offset)))?;
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

    /// Advances the location by `units` of the code alignment factor. Returns true, and leaves the
    /// location unchanged, if that would be after the target.
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

    /// Sets the rule of a column. Columns that the row does not have are ignored.
    fn set(&mut self, column: u64, rule: RegisterRule) -> Option<()> {
        // Columns after the return address (vector registers) are irrelevant for a walk.
        if let Some(place) = self.row.registers.get_mut(usize::try_from(column).ok()?) {
            *place = rule;
        }
        Some(())
    }

    /// Sets the rule of a column to that of the initial row. `None` if there is no such column.
    fn restore(&mut self, column: u64) -> Option<()> {
        let rule = *self.initial.registers.get(usize::try_from(column).ok()?)?;
        self.set(column, rule)
    }

    /// The column as an index in a row; `None` if rows have no such column.
    fn register(column: u64) -> Option<usize> {
        usize::try_from(column).ok().filter(|&r| r < COLUMNS)
    }

    /// Runs an instruction whose operands follow it. Returns true if the row is the last one at or
    /// before the target. `None` if the instruction is malformed or unknown.
    fn extended(&mut self, opcode: u8, c: &mut Cursor) -> Option<bool> {
        match opcode {
            0x00 => {} // DW_CFA_nop
            0x01..=0x04 => return self.locate(opcode, c),
            0x06 => self.restore(c.uleb()?)?, // DW_CFA_restore_extended
            // DW_CFA_remember_state
            0x0a => {
                *self.stack.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            // DW_CFA_restore_state
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.stack.get(self.depth)?;
            }
            0x0c..=0x0f | 0x12 | 0x13 => self.row.cfa = self.cfa(opcode, c)?,
            // DW_CFA_GNU_args_size: only landing pads need the adjustment.
            0x2e => {
                c.uleb()?;
            }
            _ => {
                let column = c.uleb()?;
                let rule = self.register_rule(opcode, c)?;
                self.set(column, rule)?;
            }
        }
        Some(false)
    }

    /// Advances to the location of the next row. Returns true if that is after the target. `None`
    /// if the instruction is malformed.
    fn locate(&mut self, opcode: u8, c: &mut Cursor) -> Option<bool> {
        let units = match opcode {
            // DW_CFA_set_loc
            0x01 => {
                let at = c.u64()?;
                let is_past = at > self.target;
                if !is_past {
                    self.location = at;
                }
                return Some(is_past);
            }
            0x02 => u64::from(c.u8()?),  // DW_CFA_advance_loc1
            0x03 => u64::from(c.u16()?), // DW_CFA_advance_loc2
            _ => u64::from(c.u32()?),    // DW_CFA_advance_loc4
        };
        Some(self.advance(units))
    }

    /// The rule for the canonical frame address after an instruction. `None` if the instruction
    /// sets no such rule or is malformed.
    fn cfa(&self, opcode: u8, c: &mut Cursor) -> Option<Cfa> {
        Some(match (opcode, self.row.cfa) {
            // DW_CFA_def_cfa
            (0x0c, _) => Cfa::Register(Self::register(c.uleb()?)?, c.uleb()? as i64),
            // DW_CFA_def_cfa_sf
            (0x12, _) => Cfa::Register(Self::register(c.uleb()?)?, self.factored(c.sleb()?)),
            // DW_CFA_def_cfa_expression
            (0x0f, _) => {
                let len = c.uleb()?;
                Cfa::Expression(c.split(len)?)
            }
            // DW_CFA_def_cfa_register
            (0x0d, Cfa::Register(_, offset)) => Cfa::Register(Self::register(c.uleb()?)?, offset),
            // DW_CFA_def_cfa_offset
            (0x0e, Cfa::Register(register, _)) => Cfa::Register(register, c.uleb()? as i64),
            // DW_CFA_def_cfa_offset_sf
            (0x13, Cfa::Register(register, _)) => Cfa::Register(register, self.factored(c.sleb()?)),
            _ => return None,
        })
    }

    /// The rule that an instruction assigns to the register of its first operand. `None` if it
    /// assigns none or is malformed.
    fn register_rule(&self, opcode: u8, c: &mut Cursor) -> Option<RegisterRule> {
        Some(match opcode {
            0x05 => RegisterRule::Offset(self.factored(c.uleb()? as i64)), // DW_CFA_offset_extended
            0x11 => RegisterRule::Offset(self.factored(c.sleb()?)), // DW_CFA_offset_extended_sf
            0x07 => RegisterRule::Undefined,                        // DW_CFA_undefined
            0x08 => RegisterRule::Same,                             // DW_CFA_same_value
            0x09 => RegisterRule::Register(Self::register(c.uleb()?)?), // DW_CFA_register
            0x14 => RegisterRule::ValueOffset(self.factored(c.uleb()? as i64)), // DW_CFA_val_offset
            0x15 => RegisterRule::ValueOffset(self.factored(c.sleb()?)), // DW_CFA_val_offset_sf
            // DW_CFA_expression, DW_CFA_val_expression
            0x10 | 0x16 => {
                let len = c.uleb()?;
                let expression = c.split(len)?;
                match opcode {
                    0x10 => RegisterRule::Expression(expression),
                    _ => RegisterRule::ValueExpression(expression),
                }
            }
            _ => return None,
        })
    }

    /// An offset in bytes, from units of the data alignment factor.
    fn factored(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.data_align)
    }
}
