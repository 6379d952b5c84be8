//! Unwind rules in one word: the input of a walk at a call site, cached by return address.

use abi::cause::Cause;

use super::register::{FP, RA, SP};
use crate::row::{Cfa, Expression, RegisterRule, Row};

/// The rule to find the caller of the frame that a return address belongs to. `sp` and `fp` are rsp
/// and rbp.
///
/// In all rules the return address is below the CFA: `pc = *(cfa - 8)`, `sp = cfa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `cfa = sp + cfa_offset`, `fp = *(cfa + 8 * fp_words)` unless that is 0.
    FromSp {
        /// The distance from the register to the CFA, in bytes.
        cfa_offset: i32,
        /// The place of the caller's frame pointer, in words from the CFA. It is negative; 0 if the
        /// frame pointer is unchanged.
        fp_words: i16,
    },
    /// `cfa = fp + cfa_offset`, `fp = *(cfa + 8 * fp_words)` unless that is 0.
    FromFp {
        /// The distance from the register to the CFA, in bytes.
        cfa_offset: i32,
        /// The place of the caller's frame pointer, in words from the CFA. It is negative; 0 if the
        /// frame pointer is unchanged.
        fp_words: i16,
    },
    /// `cfa = *(fp + cfa_at)`, `fp = *(fp + 8 * fp_words)`: a frame that GCC has aligned, in a
    /// function with arguments on the stack.
    Realigned {
        /// The distance from fp to the word with the CFA, in bytes.
        cfa_at: i32,
        /// The place of the caller's frame pointer, in words from fp.
        fp_words: i16,
    },
    /// The outermost frame: the path is complete.
    Root,
    /// The frame needs more registers, or an expression: a [`Row`].
    Full,
    /// The walk cannot continue: the path is incomplete.
    Stop(Cause),
}

impl Rule {
    /// The frame of `push rbp; mov rbp, rsp`: `cfa = fp + 16`, `fp = *(cfa - 16)`.
    pub const FRAME_POINTER: Self = Self::FromFp {
        cfa_offset: 16,
        fp_words: -2,
    };

    /// The rule of a row. `None` if the row is a root, if it needs registers other than the stack
    /// pointer and the frame pointer, or if a [`Rule`] has no room for one of its offsets or
    /// expressions.
    pub fn of_row<E: Expression>(row: &Row<E>) -> Option<Self> {
        let RegisterRule::Offset(-8) = row.registers[RA] else {
            return None;
        };
        if let (Cfa::Expression(cfa), RegisterRule::Expression(fp)) = (row.cfa, row.registers[FP]) {
            let fp_at = fp.register_plus(FP)?;
            return Some(Self::Realigned {
                cfa_at: i32::try_from(cfa.load_at_register_plus(FP)?).ok()?,
                fp_words: i16::try_from(fp_at / 8).ok().filter(|_| fp_at % 8 == 0)?,
            });
        }
        let fp_words = match row.registers[FP] {
            RegisterRule::Same | RegisterRule::Undefined => 0,
            RegisterRule::Offset(offset) if offset < 0 && offset % 8 == 0 => {
                i16::try_from(offset / 8).ok()?
            }
            _ => return None,
        };
        match row.cfa {
            Cfa::Register(SP, offset) => Some(Self::FromSp {
                cfa_offset: i32::try_from(offset).ok()?,
                fp_words,
            }),
            Cfa::Register(FP, offset) => Some(Self::FromFp {
                cfa_offset: i32::try_from(offset).ok()?,
                fp_words,
            }),
            _ => None,
        }
    }
}

/// Kind of [`Rule::FromSp`].
pub const FROM_SP: u8 = 1;
/// Kind of [`Rule::FromFp`].
pub const FROM_FP: u8 = 2;
/// Kind of [`Rule::Root`].
pub const ROOT: u8 = 3;
/// Kind of [`Rule::Full`].
pub const FULL: u8 = 4;
/// Kind of [`Rule::Stop`].
pub const STOP: u8 = 5;
/// Kind of [`Rule::Realigned`].
pub const REALIGNED: u8 = 6;

/// The kind of an encoded rule.
#[inline(always)]
pub const fn kind(word: u64) -> u8 {
    word as u8
}

/// `cfa_offset` or `cfa_at` of an encoded rule, bytes.
#[inline(always)]
pub const fn cfa_offset(word: u64) -> i64 {
    word as i64 >> 32
}

/// `fp_words` of an encoded rule in bytes.
#[inline(always)]
pub const fn fp_bytes(word: u64) -> i64 {
    (word >> 8) as i16 as i64 * 8
}

/// The cause of an encoded [`Rule::Stop`]; [`Cause::NoRule`] if the word contains no cause.
#[inline(always)]
pub const fn stop_cause(word: u64) -> Cause {
    match Cause::of_node((word >> 32) as u32) {
        Some(cause) => cause,
        None => Cause::NoRule,
    }
}

impl Rule {
    /// The rule as a word that is never 0: kind in bits 0 to 7, `fp_words` in 8 to 23,
    /// `cfa_offset` or `cfa_at` in 32 to 63.
    pub const fn encode(self) -> u64 {
        const fn frame(kind: u8, cfa_offset: i32, fp_words: i16) -> u64 {
            kind as u64 | (fp_words as u16 as u64) << 8 | (cfa_offset as u32 as u64) << 32
        }
        match self {
            Self::FromSp {
                cfa_offset,
                fp_words,
            } => frame(FROM_SP, cfa_offset, fp_words),
            Self::FromFp {
                cfa_offset,
                fp_words,
            } => frame(FROM_FP, cfa_offset, fp_words),
            Self::Realigned { cfa_at, fp_words } => frame(REALIGNED, cfa_at, fp_words),
            Self::Root => frame(ROOT, 0, 0),
            Self::Full => frame(FULL, 0, 0),
            Self::Stop(cause) => frame(STOP, cause.node() as i32, 0),
        }
    }

    /// Decodes a word made by [`Rule::encode`]. Any other word becomes [`Rule::Stop`] with
    /// [`Cause::NoRule`].
    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        let cfa_offset = cfa_offset(word) as i32;
        let fp_words = (word >> 8) as i16;
        match kind(word) {
            FROM_SP => Self::FromSp {
                cfa_offset,
                fp_words,
            },
            FROM_FP => Self::FromFp {
                cfa_offset,
                fp_words,
            },
            REALIGNED => Self::Realigned {
                cfa_at: cfa_offset,
                fp_words,
            },
            ROOT => Self::Root,
            FULL => Self::Full,
            _ => Self::Stop(stop_cause(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Rule};

    #[test]
    fn every_rule_survives_its_word() {
        for cfa_offset in [8, 16, -8, i32::MAX, i32::MIN] {
            for fp_words in [0, -2, i16::MIN, i16::MAX] {
                for rule in [
                    Rule::FromSp {
                        cfa_offset,
                        fp_words,
                    },
                    Rule::FromFp {
                        cfa_offset,
                        fp_words,
                    },
                    Rule::Realigned {
                        cfa_at: cfa_offset,
                        fp_words,
                    },
                    Rule::Root,
                    Rule::Full,
                    Rule::Stop(Cause::NoRule),
                    Rule::Stop(Cause::OtherStack),
                ] {
                    assert_ne!(rule.encode(), 0);
                    assert_eq!(Rule::decode(rule.encode()), rule);
                }
            }
        }
        assert_eq!(Rule::decode(0), Rule::Stop(Cause::NoRule));
    }
}
