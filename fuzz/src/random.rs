//! Random numbers determined by a seed.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a case.
    pub fn new(seed: u64, case: u64) -> Self {
        let mut random = Self(seed ^ case.wrapping_mul(0xd134_2543_de82_ef95));
        random.word();
        random
    }

    /// Returns any 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0 => 0,
            _ => (self.word() % end as u64) as usize,
        }
    }

    /// Returns one of these. `None` if there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Returns a number that often exposes errors of readers. `len` is the size of the input.
    pub fn interesting(&mut self, len: usize) -> u64 {
        let len = len as u64;
        let known = [
            0,
            1,
            2,
            7,
            0x7f,
            0xff,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            1 << 32,
            1 << 40,
            0x7fff_ffff_f000,
            1 << 47,
            1 << 62,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
            len,
            len.wrapping_sub(1),
            len + 1,
            len / 2,
        ];
        let low = self.below(0x1000) as u64;
        match self.below(4) {
            0 => low,
            1 => low.wrapping_neg(),
            _ => known[self.below(known.len())],
        }
    }
}
