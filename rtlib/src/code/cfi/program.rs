//! The rules in force at an address: DWARF 5 section 6.4.2, call-frame instructions.

use unwind::arch::register::{CFA_AT_ENTRY, COLUMNS, SP};

use super::cursor::Cursor;
use super::table::Fde;
use super::{Cfa, RegisterRule};

/// All rules at one address.
pub type Row = unwind::Row<Cursor>;

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
/// the processor.
pub fn row_at(fde: &Fde, pc: u64) -> Option<Row> {
    // The ABI leaves registers without a rule to the architecture: callee-saved ones are
    // unchanged, and treating the others so is harmless, as nothing reads them.
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
    /// Runs instructions until they end or describe what lies after the target address.
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
        if let Some(place) = self.row.registers.get_mut(usize::try_from(column).ok()?) {
            *place = rule;
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

    /// Runs an instruction whose operands follow it. Is the row reached the last one at or before the target?
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
            // DW_CFA_GNU_args_size: the adjustment is the handler's business, not the walk's.
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

    /// Goes on to where the row that follows holds.
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

    /// What an instruction makes of the rule for the canonical frame address.
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

    /// The rule that an instruction gives to the register whose column it names first.
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

    /// An offset in units of the data alignment factor, in bytes.
    fn factored(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.data_align)
    }
}
