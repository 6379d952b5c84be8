//! Bounded reading of unwind tables.

use crate::os::foreign;

/// Memory that was mapped and readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    start: u64,
    end: u64,
}

impl Region {
    /// The bytes from `start` up to `end`.
    ///
    /// # Safety
    /// Every byte of the range was seen mapped and readable. If it has been unmapped since, reads
    /// return `None`.
    pub const unsafe fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// First address of the region.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Address after the region's last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// A cursor at `at` that ends with the region; `None` outside of it.
    pub fn cursor(self, at: u64) -> Option<Cursor> {
        (self.start <= at && at <= self.end).then(|| Cursor::new(at, self.end))
    }
}

/// A position inside a [`Region`].
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// Address of the next byte.
    at: u64,
    /// Address after the last byte.
    end: u64,
    /// A read buffer: the first `ahead_len` bytes are valid.
    ahead: [u8; AHEAD],
    /// The address at which the valid bytes of `ahead` end.
    ahead_end: u64,
    ahead_len: u64,
}

/// Bytes read at a time.
pub(super) const AHEAD: usize = 160;

/// Pointer encodings, LSB 5 section 10.5.1.
mod encoding {
    pub const OMIT: u8 = 0xff;
    pub const FORMAT: u8 = 0x0f;
    pub const ABSPTR: u8 = 0x00;
    pub const ULEB128: u8 = 0x01;
    pub const UDATA2: u8 = 0x02;
    pub const UDATA4: u8 = 0x03;
    pub const UDATA8: u8 = 0x04;
    pub const SLEB128: u8 = 0x09;
    pub const SDATA2: u8 = 0x0a;
    pub const SDATA4: u8 = 0x0b;
    pub const SDATA8: u8 = 0x0c;
    pub const APPLICATION: u8 = 0x70;
    pub const PCREL: u8 = 0x10;
    pub const DATAREL: u8 = 0x30;
}

macro_rules! fixed {
    ($($name:ident: $t:ty),*) => {$(
        /// The next little-endian value of this type. `None` if too few bytes are left or mapped.
        pub fn $name(&mut self) -> Option<$t> {
            const LEN: u64 = size_of::<$t>() as u64;
            if self.end - self.at < LEN {
                return None;
            }
            let from = self.ahead(LEN)?;
            let bytes = self.ahead.get(from..from + LEN as usize)?;
            self.at += LEN;
            Some(<$t>::from_le_bytes(bytes.try_into().ok()?))
        }
    )*};
}

impl Cursor {
    fn new(at: u64, end: u64) -> Self {
        Self {
            at,
            end,
            ahead: [0; AHEAD],
            ahead_end: at,
            ahead_len: 0,
        }
    }

    /// The index in `ahead` of the next `len` bytes; `None` if the cursor ends before.
    fn ahead(&mut self, len: u64) -> Option<usize> {
        let start = self.ahead_end - self.ahead_len;
        if self.at < start || self.at + len > self.ahead_end {
            let count = (self.end - self.at).min(AHEAD as u64) as usize;
            // SAFETY: inside the region, by its contract.
            let got = unsafe { foreign::read(self.at, self.ahead.get_mut(..count)?) } as u64;
            (self.ahead_end, self.ahead_len) = (self.at + got, got);
            return (len <= got).then_some(0);
        }
        Some((self.at - start) as usize)
    }

    /// Address of the next byte in the process.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    fixed!(u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64);

    /// Skips `len` bytes. `None` if fewer are left.
    pub fn skip(&mut self, len: u64) -> Option<()> {
        if self.end - self.at < len {
            return None;
        }
        self.at += len;
        Some(())
    }

    /// The next `len` bytes as a cursor of their own; skips them. `None` if fewer are left.
    pub fn split(&mut self, len: u64) -> Option<Self> {
        let at = self.at;
        self.skip(len)?;
        Some(Self {
            at,
            end: at + len,
            ..*self
        })
    }

    /// An unsigned LEB128 number. Bits above the lower 64 are dropped. `None` if it is longer than
    /// ten bytes, or too few bytes are left.
    pub fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift >= 64 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    /// A signed LEB128 number. Bits above the lower 64 are dropped. `None` if it is longer than ten
    /// bytes, or too few bytes are left.
    pub fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift >= 64 {
                return None;
            }
            value |= i64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= -1i64 << shift;
                }
                return Some(value);
            }
        }
    }

    /// A pointer in the encoding `kind`; `data` is the base of data-relative pointers. `None` if
    /// the encoding is not supported or too few bytes are left. The indirect bit is ignored,
    /// because no caller needs the target of a personality's pointer.
    pub fn pointer(&mut self, kind: u8, data: u64) -> Option<u64> {
        use encoding as e;
        if kind == e::OMIT {
            return None;
        }
        let base = match kind & e::APPLICATION {
            0 => 0,
            e::PCREL => self.at,
            e::DATAREL => data,
            _ => return None,
        };
        let value = match kind & e::FORMAT {
            e::ABSPTR | e::UDATA8 | e::SDATA8 => self.u64()?,
            e::ULEB128 => self.uleb()?,
            e::SLEB128 => self.sleb()? as u64,
            e::UDATA2 => u64::from(self.u16()?),
            e::UDATA4 => u64::from(self.u32()?),
            e::SDATA2 => i64::from(self.i16()?) as u64,
            e::SDATA4 => i64::from(self.i32()?) as u64,
            _ => return None,
        };
        Some(base.wrapping_add(value))
    }
}
