//! Rows of unwind tables (DWARF 5 section 6.4.1), and steps by them.

use crate::arch::Regs;
use crate::arch::register::{COLUMNS, RA};

/// A DWARF expression of an unwind table.
pub trait Expression: Copy {
    /// The value of the expression. `initial` is on the stack at the start: the CFA for register
    /// rules, nothing for the CFA itself. `load` reads a word of the stack. `None` if the
    /// expression cannot be evaluated.
    fn evaluate(
        self,
        registers: &Regs,
        initial: Option<u64>,
        load: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<u64>;
    /// `n`, in bytes, if the expression is `register + n`; otherwise `None`. `register` is a DWARF
    /// number.
    fn register_plus(self, register: usize) -> Option<i64>;
    /// `n`, in bytes, if the expression is `*(register + n)`; otherwise `None`. `register` is a
    /// DWARF number.
    fn load_at_register_plus(self, register: usize) -> Option<i64>;
}

/// The rule of the canonical frame address.
#[derive(Clone, Copy, Debug)]
pub enum Cfa<E> {
    /// `cfa = register + offset`: the register's DWARF number, and the offset in bytes.
    Register(usize, i64),
    /// `cfa = value of the expression`.
    Expression(E),
}

/// The rule of a register of the caller. Offsets are in bytes, registers are DWARF numbers.
#[derive(Clone, Copy, Debug)]
pub enum RegisterRule<E> {
    /// The register's value is not known. For the return address: this is the outermost frame.
    Undefined,
    /// The register is unchanged.
    Same,
    /// `*(cfa + offset)`.
    Offset(i64),
    /// `cfa + offset`.
    ValueOffset(i64),
    /// The value that another register has before the step.
    Register(usize),
    /// `*(value of the expression)`.
    Expression(E),
    /// The value of the expression itself.
    ValueExpression(E),
}

/// The rules at one address.
#[derive(Clone, Copy, Debug)]
pub struct Row<E> {
    /// The canonical frame address.
    pub cfa: Cfa<E>,
    /// One rule per DWARF column.
    pub registers: [RegisterRule<E>; COLUMNS],
}

/// Result of a step by a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The caller continues at this address.
    At(u64),
    /// The frame has no caller.
    Root,
}

impl<E: Expression> Row<E> {
    /// Steps to the caller's registers. A root leaves them unchanged. `None` if the row uses an
    /// address that `load` refuses, or an expression that cannot be evaluated; some registers may
    /// have changed by then.
    pub fn step(&self, registers: &mut Regs, load: &dyn Fn(u64) -> Option<u64>) -> Option<Caller> {
        if matches!(self.registers[RA], RegisterRule::Undefined) {
            // The CFA of a root must be readable, too.
            cfa_of(self.cfa, registers, load)?;
            return Some(Caller::Root);
        }
        step(registers, self.cfa, |column| self.registers[column], load).map(Caller::At)
    }
}

/// A row in which every register stays or is at a fixed place:
/// `cfa = register + offset`, `caller[n] = *(cfa + places[n])` unless that is [`STAYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The DWARF number of the register that the CFA is relative to.
    pub register: usize,
    /// The distance from the register to the CFA, in bytes.
    pub offset: i32,
    /// The place of each register of the caller, in bytes from the CFA; [`STAYS`] if the register
    /// is unchanged. There is one for each DWARF column.
    pub places: [i16; COLUMNS],
}

/// The place of a register that is unchanged. A row with a place this far away has no [`Places`].
pub const STAYS: i16 = i16::MIN;

impl Places {
    /// The places of a row. `None` if the row is a root, has a register that is not at a fixed
    /// place, has an expression for the CFA, or has an offset that does not fit.
    pub fn of<E>(row: &Row<E>) -> Option<Self> {
        let Cfa::Register(register, offset) = row.cfa else {
            return None;
        };
        let mut places = [STAYS; COLUMNS];
        for (place, rule) in places.iter_mut().zip(&row.registers) {
            *place = match *rule {
                RegisterRule::Undefined | RegisterRule::Same => STAYS,
                RegisterRule::Offset(offset) => {
                    i16::try_from(offset).ok().filter(|&at| at != STAYS)?
                }
                _ => return None,
            };
        }
        // An undefined return address marks a root. An unchanged one is still in a register.
        if places[RA] == STAYS {
            return None;
        }
        Some(Self {
            register,
            offset: i32::try_from(offset).ok()?,
            places,
        })
    }

    /// Steps to the caller's registers and returns its program counter. `None` if `load` refuses an
    /// address; some registers may have changed by then.
    pub fn step(&self, registers: &mut Regs, load: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        let cfa = Cfa::<NoExpression>::Register(self.register, self.offset.into());
        let rule = |column: usize| match self.places[column] {
            STAYS => RegisterRule::Same,
            place => RegisterRule::Offset(place.into()),
        };
        step(registers, cfa, rule, load)
    }
}

/// The step by one rule per register, shared by [`Row`] and [`Places`]. Returns the caller's
/// program counter. `None` if `load` refuses an address or an expression cannot be evaluated.
#[inline(always)]
fn step<E: Expression>(
    registers: &mut Regs,
    cfa: Cfa<E>,
    rule: impl Fn(usize) -> RegisterRule<E>,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let cfa = cfa_of(cfa, registers, load)?;
    let before = *registers;
    registers.set_sp(cfa);
    for column in 0..COLUMNS {
        let value = match rule(column) {
            RegisterRule::Undefined | RegisterRule::Same => continue,
            RegisterRule::Offset(offset) => load(cfa.wrapping_add(offset as u64))?,
            RegisterRule::ValueOffset(offset) => cfa.wrapping_add(offset as u64),
            RegisterRule::Register(other) => before[other],
            RegisterRule::Expression(expression) => {
                load(expression.evaluate(&before, Some(cfa), load)?)?
            }
            RegisterRule::ValueExpression(expression) => {
                expression.evaluate(&before, Some(cfa), load)?
            }
        };
        registers[column] = value;
    }
    Some(registers[RA])
}

/// The canonical frame address; `None` if its expression cannot be evaluated.
fn cfa_of<E: Expression>(
    cfa: Cfa<E>,
    registers: &Regs,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<u64> {
    match cfa {
        Cfa::Register(register, offset) => Some(registers[register].wrapping_add(offset as u64)),
        Cfa::Expression(expression) => expression.evaluate(registers, None, load),
    }
}

/// The expression of rows that have none.
#[derive(Clone, Copy)]
enum NoExpression {}

impl Expression for NoExpression {
    fn evaluate(self, _: &Regs, _: Option<u64>, _: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        match self {}
    }

    fn register_plus(self, _: usize) -> Option<i64> {
        match self {}
    }

    fn load_at_register_plus(self, _: usize) -> Option<i64> {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::register::{FP, SP};
    use crate::arch::{Rule, Saved, rule, step};
    use crate::step::{At, Loaded, Step};

    /// A stack from 1000 to 2000 whose words are functions of their address.
    fn load(at: u64) -> Option<u64> {
        let is_inside = (1000..2000).contains(&at) && at.is_multiple_of(8);
        is_inside.then_some(at * 3 % 1000 / 8 * 8 + 1000)
    }

    fn row(base: usize, offset: i64, fp: RegisterRule<NoExpression>) -> Row<NoExpression> {
        let mut registers = [RegisterRule::Same; COLUMNS];
        registers[RA] = RegisterRule::Offset(-8);
        registers[FP] = fp;
        Row {
            cfa: Cfa::Register(base, offset),
            registers,
        }
    }

    /// A row, its places, and its rule lead to the same caller.
    #[test]
    fn every_translation_of_a_row_steps_alike() {
        let saved = Saved {
            fp: 1080,
            others: [1, 2, 3, 4, 5],
        };
        for base in [SP, FP] {
            for offset in [8, 16, 64, 160] {
                for fp in [RegisterRule::Same, RegisterRule::Offset(-16)] {
                    let row = row(base, offset, fp);
                    let mut by_row = Regs::new(1000, &saved);
                    let mut by_places = by_row;
                    let mut words = Loaded { load, fp: saved.fp };
                    let caller = row.step(&mut by_row, &load);
                    let places = Places::of(&row).expect("each stays or has a place");
                    let pc = places.step(&mut by_places, &load);
                    assert_eq!((caller, by_row), (pc.map(Caller::At), by_places));
                    let rule = Rule::of_row(&row).expect("one of two registers").encode();
                    let at = At { pc: 0, sp: 1000 };
                    match step(rule, at, 2000, &mut words) {
                        Step::Caller(at) => {
                            assert_eq!(pc, Some(at.pc));
                            assert_eq!((by_row.sp(), by_row.fp()), (at.sp, words.fp));
                        }
                        // A rule additionally checks that the words it reads are in the frame.
                        Step::Astray => assert!(offset < 16 && base == SP),
                        _ => panic!("{rule:#x} is a frame's"),
                    }
                    assert_eq!(
                        rule::kind(rule),
                        if base == SP {
                            rule::FROM_SP
                        } else {
                            rule::FROM_FP
                        }
                    );
                }
            }
        }
    }

    #[test]
    fn roots_have_neither_places_nor_a_caller() {
        let mut row = row(SP, 8, RegisterRule::Same);
        row.registers[RA] = RegisterRule::Undefined;
        let saved = Saved {
            fp: 0,
            others: [0; 5],
        };
        let step = row.step(&mut Regs::new(1000, &saved), &load);
        assert_eq!((step, Places::of(&row)), (Some(Caller::Root), None));
    }
}
