//! The patched places of functions, in the document.

use std::ops::Range;

use patcher::Avma;
use serde::{Deserialize, Serialize};

use super::addresses;
use ipath_target::process::Extent;

/// A patched place of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteDoc {
    /// The overwritten bytes, in the target.
    #[serde(with = "addresses::range")]
    pub window: Range<Avma>,
    /// The overwritten bytes of a springboard's landing; empty without one.
    #[serde(with = "addresses::range")]
    pub landing: Range<Avma>,
    /// The memory of the site's trampoline.
    pub trampoline: Extent,
    /// A punned jump's stepping stone; 0 without one.
    #[serde(with = "addresses::avma")]
    pub stone: Avma,
    /// The bytes that a punned jump depends on.
    pub kept: KeptDoc,
    /// The patches that belong to the trampoline, as indexes of journal entries.
    pub patches: Vec<u32>,
    /// True if a breakpoint, rather than a jump, leads to the trampoline.
    pub trap: bool,
    /// Program counters in the original code, and the equivalent ones in the trampoline.
    pub pcs: Vec<PairDoc>,
    /// The starts of hooks in the trampoline, and the equivalent program counters in the original
    /// code.
    pub hook_starts: Vec<PairDoc>,
    /// Program counters in copies that have spilled a register, and the equivalent ones in the
    /// original code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub banked: Vec<BankedDoc>,
}

/// Bytes of the target that must stay as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(u64, Vec<u8>)", into = "(u64, Vec<u8>)")]
pub struct KeptDoc {
    /// The address of the first byte.
    pub at: Avma,
    /// The values of the bytes.
    pub bytes: Vec<u8>,
}

impl From<(u64, Vec<u8>)> for KeptDoc {
    fn from((at, bytes): (u64, Vec<u8>)) -> Self {
        Self {
            at: Avma(at),
            bytes,
        }
    }
}

impl From<KeptDoc> for (u64, Vec<u8>) {
    fn from(kept: KeptDoc) -> Self {
        (kept.at.0, kept.bytes)
    }
}

/// A program counter in a copy that has spilled a register: [`patcher::emit::BankedPc`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u8, i32)", into = "(u64, u64, u8, i32)")]
pub struct BankedDoc {
    /// The program counters.
    pub pcs: PairDoc,
    /// The number of the register, as encoded in instructions.
    pub register: u8,
    /// The distance from the stack pointer to its value, in bytes. If it is 0, the stack pointer of
    /// the original code is higher by `LOWERED` bytes.
    pub saved_at: i32,
}

impl From<(u64, u64, u8, i32)> for BankedDoc {
    fn from((original, trampoline, register, saved_at): (u64, u64, u8, i32)) -> Self {
        Self {
            pcs: (original, trampoline).into(),
            register,
            saved_at,
        }
    }
}

impl From<BankedDoc> for (u64, u64, u8, i32) {
    fn from(doc: BankedDoc) -> Self {
        let pcs = doc.pcs;
        (pcs.original.0, pcs.trampoline.0, doc.register, doc.saved_at)
    }
}

/// A program counter in both copies of the code.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct PairDoc {
    /// The program counter in the original code.
    pub original: Avma,
    /// The equivalent program counter in the trampoline.
    pub trampoline: Avma,
}

impl From<(u64, u64)> for PairDoc {
    fn from((original, trampoline): (u64, u64)) -> Self {
        Self {
            original: Avma(original),
            trampoline: Avma(trampoline),
        }
    }
}

impl From<PairDoc> for (u64, u64) {
    fn from(pair: PairDoc) -> Self {
        (pair.original.0, pair.trampoline.0)
    }
}
