//! Bytes with a stable address.

use gimli::{EndianReader, LittleEndian};
use ipath_base::files::FileBytes;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The reader type for gimli.
pub type Reader<'d> = EndianReader<LittleEndian, Bytes<'d>>;

/// A part of a file: borrowed, of an open file, or decompressed.
#[derive(Clone, Debug)]
pub enum Bytes<'d> {
    Borrowed(&'d [u8]),
    OfFile(FileBytes, Range<usize>),
    Owned(Arc<Vec<u8>>),
}

impl Bytes<'_> {
    /// The bytes of `range` within these. `None` if it is out of bounds.
    pub(super) fn part(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        Some(match self {
            Self::Borrowed(bytes) => Self::Borrowed(&bytes[range]),
            Self::OfFile(file, whole) => Self::OfFile(
                file.clone(),
                whole.start + range.start..whole.start + range.end,
            ),
            Self::Owned(bytes) => Self::Owned(Arc::new(bytes[range].to_vec())),
        })
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::OfFile(file, range) => &file.bytes()[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

// SAFETY: no variant contains the bytes itself. They are behind a reference, or in an Arc's
// allocation or mapping, which does not move with the value. Nothing here is mutable.
unsafe impl gimli::StableDeref for Bytes<'_> {}

// SAFETY: a clone copies the reference or the Arc, so it derefs to the same address as the
// original.
unsafe impl gimli::CloneStableDeref for Bytes<'_> {}
