//! Folding recursion. If a call site occurs twice on a path, folding removes the part between the
//! two.
//!
//! Starting at the root, a return address that is already on the path truncates the path to its
//! first occurrence. In the end each address occurs once. The result is a path that the program
//! could take itself: after each call site comes a call site in a function that it has called. The
//! innermost call site stays.
//!
//! ```text
//! main -> A -> B -> A -> B -> f     call sites  m a b a c
//! main -> A -> B -> f                           m a     c
//! ```
//!
//! An equivalent algorithm starts at the root, goes to the innermost occurrence of each call site,
//! and continues with the call site after that. It needs no stack and never goes back.

use crate::os::hash;

/// Number of buckets of the table for paths of up to `capacity` frames, a power of two. At least
/// half of them stay free.
pub const fn buckets(capacity: u64) -> u64 {
    2 * capacity
}

/// Folds the `len` return addresses at `frames`, the innermost first. Returns the new number of
/// addresses.
///
/// # Safety
/// `frames` has at least `len` addresses, fewer than 2^32. `table` has [`buckets`] of a power of
/// two that is at least `len`. Both belong to the caller.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn fold(frames: *mut u64, len: u64, table: *mut u32) -> u64 {
    if len == 0 {
        return 0;
    }
    let mask = buckets(len.next_power_of_two()) - 1;
    // SAFETY: bucket numbers are at most `mask`, and indexes below `len`. The accesses are volatile
    // so that the compiler uses no vector register, because those belong to the application here.
    unsafe {
        for at in 0..=mask as usize {
            table.add(at).write_volatile(0);
        }
        // The index plus one of the innermost occurrence of each address.
        for index in 0..len as usize {
            let bucket = find(frames, frames.add(index).read(), table, mask);
            if bucket.read_volatile() == 0 {
                bucket.write_volatile(index as u32 + 1);
            }
        }
        // The result is collected at the end, over frames that have been processed.
        let mut end = len as usize;
        let mut from = end - 1;
        loop {
            let address = frames.add(from).read();
            let innermost = find(frames, address, table, mask).read_volatile() as usize - 1;
            end -= 1;
            frames.add(end).write_volatile(address);
            if innermost == 0 {
                break;
            }
            from = innermost - 1;
        }
        let left = len - end as u64;
        for index in 0..left as usize {
            frames
                .add(index)
                .write_volatile(frames.add(end + index).read());
        }
        left
    }
}

/// The bucket of `address`, or the free bucket for it.
///
/// # Safety
/// As for [`fold`]; the table has a free place.
#[inline(always)]
unsafe fn find(frames: *const u64, address: u64, table: *mut u32, mask: u64) -> *mut u32 {
    let mut at = address.wrapping_mul(hash::MULTIPLIER) >> 32;
    loop {
        // SAFETY: guaranteed by the caller; the table holds indexes of frames, plus one.
        unsafe {
            let bucket = table.add((at & mask) as usize);
            let known = bucket.read_volatile();
            if known == 0 || frames.add(known as usize - 1).read() == address {
                return bucket;
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn folded(path: &[u64]) -> Vec<u64> {
        let mut frames = path.to_vec();
        let mut table = vec![7; buckets((path.len() as u64).next_power_of_two()) as usize];
        // SAFETY: both are long enough.
        let left = unsafe { fold(frames.as_mut_ptr(), path.len() as u64, table.as_mut_ptr()) };
        frames.truncate(left as usize);
        frames
    }

    /// By definition: from the root on, a repeated address truncates the path to its first
    /// occurrence.
    fn by_definition(path: &[u64]) -> Vec<u64> {
        let mut kept: Vec<u64> = Vec::new();
        for address in path.iter().rev() {
            match kept.iter().position(|known| known == address) {
                Some(at) => kept.truncate(at + 1),
                None => kept.push(*address),
            }
        }
        kept.reverse();
        kept
    }

    #[test]
    fn what_lies_between_two_of_a_call_site_is_lost() {
        let [m, a, b, c] = [1, 2, 3, 4];
        assert_eq!(folded(&[]), []);
        assert_eq!(folded(&[m]), [m]);
        assert_eq!(folded(&[c, b, a, m]), [c, b, a, m]);
        assert_eq!(folded(&[c, a, b, a, m]), [c, a, m]);
        assert_eq!(folded(&[b, a, b, a, m]), [b, a, m]);
        assert_eq!(folded(&[a, b, a, c, m]), [a, c, m]);
        assert_eq!(folded(&[a, a, a, a]), [a]);
        assert_eq!(folded(&[m, b, a, m]), [m]);
    }

    #[test]
    fn folds_as_defined() {
        let mut seed = 1u64;
        for round in 0..20_000 {
            let mut next = || {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed >> 20
            };
            let len = next() % (1 + round % 200);
            let sites = 1 + next() % 40;
            let path: Vec<u64> = (0..len).map(|_| (next() % sites) << 40).collect();
            assert_eq!(folded(&path), by_definition(&path), "{path:?}");
        }
    }
}
