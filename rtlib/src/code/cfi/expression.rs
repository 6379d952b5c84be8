//! DWARF expressions as unwind tables use them: DWARF 5 section 2.5, without locations.

use unwind::{Expression, Regs};

use super::cursor::Cursor;

/// Maximum number of values on the stack of an expression.
const DEPTH: usize = 16;

/// Maximum number of steps of an expression, so that loops end.
const STEPS: usize = 256;

struct Stack {
    values: [u64; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    /// The value `n` places below the top of the stack; `None` if the stack has fewer.
    fn pick(&self, n: usize) -> Option<u64> {
        self.values.get(self.len.checked_sub(n + 1)?).copied()
    }
}

impl Expression for Cursor {
    fn evaluate(
        mut self,
        registers: &Regs,
        initial: Option<u64>,
        load: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut stack = Stack {
            values: [0; DEPTH],
            len: 0,
        };
        if let Some(value) = initial {
            stack.push(value)?;
        }
        for _ in 0..STEPS {
            if self.is_empty() {
                return stack.pop();
            }
            step(&mut self, &mut stack, registers, load)?;
        }
        None
    }

    fn register_plus(mut self, register: usize) -> Option<i64> {
        let offset = base_register(&mut self, register)?;
        self.is_empty().then_some(offset)
    }

    fn load_at_register_plus(mut self, register: usize) -> Option<i64> {
        let offset = base_register(&mut self, register)?;
        let is_load = self.u8()? == DEREF;
        (is_load && self.is_empty()).then_some(offset)
    }
}

/// The offset, in bytes, of an expression that starts with `register` (below 32) plus an offset.
/// `None` if it starts otherwise.
fn base_register(c: &mut Cursor, register: usize) -> Option<i64> {
    (usize::from(c.u8()?) == usize::from(BREG0) + register).then(|| c.sleb())?
}

/// `DW_OP_deref`.
const DEREF: u8 = 0x06;
/// `DW_OP_breg0`.
const BREG0: u8 = 0x70;

/// Evaluates one operation. `None` if it is malformed or not supported, or if `load` refuses an
/// address.
fn step(
    c: &mut Cursor,
    stack: &mut Stack,
    registers: &Regs,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<()> {
    let opcode = c.u8()?;
    let value = match opcode {
        0x03 => c.u64()?,
        DEREF => load(stack.pop()?)?,
        0x08 => u64::from(c.u8()?),
        0x09 => i64::from(c.i8()?) as u64,
        0x0a => u64::from(c.u16()?),
        0x0b => i64::from(c.i16()?) as u64,
        0x0c => u64::from(c.u32()?),
        0x0d => i64::from(c.i32()?) as u64,
        0x0e | 0x0f => c.u64()?,
        0x10 => c.uleb()?,
        0x11 => c.sleb()? as u64,
        0x12 => stack.pick(0)?,
        0x13 => {
            stack.pop()?;
            return Some(());
        }
        0x14 => stack.pick(1)?,
        0x15 => {
            let n = c.u8()?;
            stack.pick(usize::from(n))?
        }
        0x16 => {
            let (a, b) = (stack.pop()?, stack.pop()?);
            stack.push(a)?;
            b
        }
        0x19 => (stack.pop()? as i64).unsigned_abs(),
        0x1f => stack.pop()?.wrapping_neg(),
        0x20 => !stack.pop()?,
        0x23 => {
            let n = c.uleb()?;
            stack.pop()?.wrapping_add(n)
        }
        0x1a | 0x1c | 0x1e | 0x21 | 0x22 | 0x24..=0x27 | 0x29..=0x2e => {
            let (b, a) = (stack.pop()?, stack.pop()?);
            binary(opcode, a, b)?
        }
        0x28 => {
            let by = c.i16()?;
            if stack.pop()? != 0 {
                jump(c, by)?;
            }
            return Some(());
        }
        0x2f => {
            let by = c.i16()?;
            return jump(c, by);
        }
        0x30..=0x4f => u64::from(opcode - 0x30),
        BREG0..=0x8f => {
            let offset = c.sleb()?;
            registers
                .get(usize::from(opcode - BREG0))?
                .wrapping_add(offset as u64)
        }
        0x92 => {
            let (register, offset) = (c.uleb()?, c.sleb()?);
            registers
                .get(usize::try_from(register).ok()?)?
                .wrapping_add(offset as u64)
        }
        0x96 => return Some(()),
        _ => return None,
    };
    stack.push(value)
}

/// Skips `by` bytes of the expression. `None` if `by` is negative or the expression ends before.
/// Only forward jumps are supported. No unwind table in use has a backward jump, and the cursor
/// could not check its target because it does not know the start of the expression.
fn jump(c: &mut Cursor, by: i16) -> Option<()> {
    c.skip(u64::try_from(by).ok()?)
}

/// The result of an operation with two operands, of which `b` was on top of the stack. `None` if
/// the opcode is no such operation.
fn binary(opcode: u8, a: u64, b: u64) -> Option<u64> {
    let shift = u32::try_from(b).ok().filter(|&s| s < 64);
    let (sa, sb) = (a as i64, b as i64);
    Some(match opcode {
        0x1a => a & b,
        0x1c => a.wrapping_sub(b),
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        0x24 => shift.map_or(0, |s| a << s),
        0x25 => shift.map_or(0, |s| a >> s),
        0x26 => (sa >> shift.unwrap_or(63)) as u64,
        0x27 => a ^ b,
        0x29 => u64::from(a == b),
        0x2a => u64::from(sa >= sb),
        0x2b => u64::from(sa > sb),
        0x2c => u64::from(sa <= sb),
        0x2d => u64::from(sa < sb),
        0x2e => u64::from(a != b),
        _ => return None,
    })
}
