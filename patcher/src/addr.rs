//! Address spaces as types: an address in a file and one in a process never mix.

use std::fmt;
use std::ops::Range;

/// A stated virtual memory address: an address as the ELF file gives it, before loading.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Svma(pub u64);

/// An actual virtual memory address in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Avma(pub u64);

/// The load bias: `avma = svma + bias`, wrapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bias(pub u64);

/// A position in a file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileOffset(pub u64);

impl Bias {
    /// The bias with which `svma` of the file is at `avma` in the process.
    pub fn between(svma: Svma, avma: Avma) -> Self {
        Self(avma.0.wrapping_sub(svma.0))
    }

    /// The address of `svma` in the process.
    pub fn to_avma(self, svma: Svma) -> Avma {
        Avma(svma.0.wrapping_add(self.0))
    }

    /// The address of `avma` in the file.
    pub fn to_svma(self, avma: Avma) -> Svma {
        Svma(avma.0.wrapping_sub(self.0))
    }
}

impl Svma {
    /// The address `bytes` bytes higher, wrapping.
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The range of `len` bytes that starts at this address.
    pub fn range(self, len: u64) -> Range<Self> {
        self..self.plus(len)
    }
}

impl Avma {
    /// The address `bytes` bytes higher, wrapping.
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

macro_rules! hex {
    ($($t:ident),*) => {$(
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({:#x})"), self.0)
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
        impl fmt::LowerHex for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}
hex!(Svma, Avma, Bias, FileOffset);
