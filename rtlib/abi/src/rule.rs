//! Unwind rules in one word: what a walk needs at a call site, cached by return address.

use crate::cause::Cause;

/// How the frame that a return address belongs to is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `cfa = sp + cfa_offset`, `rbp = *(cfa + 8 * rbp_words)` unless 0.
    FromRsp {
        /// Bytes.
        cfa_offset: i32,
        /// Words, negative; 0 where rbp is unchanged.
        rbp_words: i16,
    },
    /// `cfa = rbp + cfa_offset`, `rbp = *(cfa + 8 * rbp_words)` unless 0.
    FromRbp {
        /// Bytes.
        cfa_offset: i32,
        /// Words, negative; 0 where rbp is unchanged.
        rbp_words: i16,
    },
    /// `cfa = *(rbp + cfa_at)`, `rbp = *(rbp + 8 * rbp_words)`: how GCC leaves a frame that it has aligned
    /// and that has arguments on the stack.
    Realigned {
        /// Bytes.
        cfa_at: i32,
        /// Words.
        rbp_words: i16,
    },
    /// The outermost frame: the path is complete.
    Root,
    /// Rules that need more registers than sp and rbp, or an expression.
    Full,
    /// The walk cannot go on: the path is incomplete.
    Stop(Cause),
}

/// Kind of [`Rule::FromRsp`].
pub const FROM_RSP: u8 = 1;
/// Kind of [`Rule::FromRbp`].
pub const FROM_RBP: u8 = 2;
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

/// `rbp_words` of an encoded rule in bytes.
#[inline(always)]
pub const fn rbp_bytes(word: u64) -> i64 {
    (word >> 8) as i16 as i64 * 8
}

/// The cause of an encoded [`Rule::Stop`].
#[inline(always)]
pub const fn stop_cause(word: u64) -> Cause {
    match Cause::of_node((word >> 32) as u32) {
        Some(cause) => cause,
        None => Cause::NoRule,
    }
}

impl Rule {
    /// The rule as a word that is never 0: kind in bits 0 to 7, `rbp_words` in 8 to 23,
    /// `cfa_offset` or `cfa_at` in 32 to 63.
    pub const fn encode(self) -> u64 {
        const fn frame(kind: u8, cfa_offset: i32, rbp_words: i16) -> u64 {
            kind as u64 | (rbp_words as u16 as u64) << 8 | (cfa_offset as u32 as u64) << 32
        }
        match self {
            Self::FromRsp {
                cfa_offset,
                rbp_words,
            } => frame(FROM_RSP, cfa_offset, rbp_words),
            Self::FromRbp {
                cfa_offset,
                rbp_words,
            } => frame(FROM_RBP, cfa_offset, rbp_words),
            Self::Realigned { cfa_at, rbp_words } => frame(REALIGNED, cfa_at, rbp_words),
            Self::Root => frame(ROOT, 0, 0),
            Self::Full => frame(FULL, 0, 0),
            Self::Stop(cause) => frame(STOP, cause.node() as i32, 0),
        }
    }

    /// The rule that [`Rule::encode`] made `word` from; anything else is [`Rule::Stop`] for want of one.
    #[inline(always)]
    pub const fn decode(word: u64) -> Self {
        let cfa_offset = cfa_offset(word) as i32;
        let rbp_words = (word >> 8) as i16;
        match kind(word) {
            FROM_RSP => Self::FromRsp {
                cfa_offset,
                rbp_words,
            },
            FROM_RBP => Self::FromRbp {
                cfa_offset,
                rbp_words,
            },
            REALIGNED => Self::Realigned {
                cfa_at: cfa_offset,
                rbp_words,
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
            for rbp_words in [0, -2, i16::MIN, i16::MAX] {
                for rule in [
                    Rule::FromRsp {
                        cfa_offset,
                        rbp_words,
                    },
                    Rule::FromRbp {
                        cfa_offset,
                        rbp_words,
                    },
                    Rule::Realigned {
                        cfa_at: cfa_offset,
                        rbp_words,
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
