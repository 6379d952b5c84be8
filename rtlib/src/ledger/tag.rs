//! What tells the path that a record is of.

use core::mem::size_of;

use abi::MAX_FUNCTIONS;
use abi::segment::FIRST_NODE;

use super::tree;
use crate::code::rules::RULES;
use crate::walk::{Path, Walk};

/// Sites in a word.
pub const PER_WORD: u64 = 4;
/// Words of sites that a tag holds itself.
pub const INLINE: usize = 6;

/// One path; a line of memory.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Tag {
    /// Its key.
    pub key: Key,
    /// The path's node.
    pub path: u32,
    _padding: u32,
    /// Its sites from the innermost on, the last word filled up with zeros. Where there is no room for
    /// all, the address of their number and a copy of them, or null where only the nodes tell them.
    sites: [u64; INLINE],
}

/// The upper half of the hash; below it 14 bits of function, 14 of length and 4 of root.
///
/// The length is the largest for all longer ones, and 0 where the path is not told by sites. Then its nodes tell
/// it. One that its node alone tells has that in the place of the hash, and no root.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Key(pub u64);

const _: () = assert!(size_of::<Tag>() == 64);
const _: () = assert!(MAX_FUNCTIONS <= 1 << (Key::FUNCTION_END - Key::LEN_END));
const _: () = assert!(FIRST_NODE <= 1 << Key::ROOT_END);

impl Key {
    const ROOT_END: u32 = 4;
    const LEN_END: u32 = 18;
    const FUNCTION_END: u32 = 32;
    const LONGEST: u64 = (1 << (Self::LEN_END - Self::ROOT_END)) - 1;

    /// The key of a path as a walk has left it.
    #[inline(always)]
    pub fn of(path: &Path) -> Self {
        let walk = path.walk;
        let len = if walk.has_sites {
            walk.len.min(Self::LONGEST)
        } else {
            0
        };
        Self::new(walk.hash, path.function, len, walk.root)
    }

    #[inline(always)]
    fn new(hash: u64, function: u32, len: u64, root: u32) -> Self {
        Self(
            hash >> Self::FUNCTION_END << Self::FUNCTION_END
                | u64::from(function) << Self::LEN_END
                | len << Self::ROOT_END
                | u64::from(root),
        )
    }

    /// The key of a path that its node alone tells: a hash of that is as good as any.
    pub fn of_node(function: u32, node: u32) -> Self {
        let hash = u64::from(node) << Self::FUNCTION_END;
        Self::new(hash, function, 0, 0)
    }

    /// Whether sites tell the path.
    #[inline(always)]
    pub fn has_sites(self) -> bool {
        self.0 >> Self::ROOT_END & Self::LONGEST != 0
    }

    /// Its uppermost bits, which are the hash's.
    #[inline(always)]
    pub fn first(self) -> u64 {
        self.0 >> Self::FUNCTION_END
    }
}

impl Tag {
    /// The tag of the path with this node and these sites, as the field has them.
    pub fn new(key: Key, path: u32, sites: [u64; INLINE]) -> Self {
        Self {
            key,
            path,
            _padding: 0,
            sites,
        }
    }

    /// Whether it is this path, which has the same key.
    ///
    /// # Safety
    /// The path's frames and sites are as many as its walk says.
    #[inline(always)]
    pub unsafe fn is(&self, path: &Path) -> bool {
        let len = path.walk.len;
        let words = len.div_ceil(PER_WORD) as usize;
        // SAFETY: tags hold the sites that their key tells, or the address of a copy of them. Word by
        // word: a call of `bcmp` would come of comparing slices, with vector registers.
        unsafe {
            let is_inline = words <= INLINE && self.key.has_sites();
            let mut own = self.sites.as_ptr();
            if !is_inline {
                own = self.sites[0] as *const u64;
                if own.is_null() {
                    let Path { function, walk, .. } = *path;
                    return is_by_nodes(self.path, function, walk, path.keys());
                }
                if own.read() != len {
                    return false;
                }
                own = own.add(1);
            }
            let mut at = 0;
            while at < words {
                if own.add(at).read_volatile() != path.sites.add(at).read() {
                    return false;
                }
                at += 1;
            }
        }
        true
    }
}

/// Whether the nodes under `node` tell the path, whose frames or sites are `keys`, as many as its walk says. Its arguments are
/// the parts of a [`Path`], which then takes no room on the stack.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_by_nodes(node: u32, function: u32, walk: &Walk, keys: *const u64) -> bool {
    let is_it = if walk.has_sites {
        let sites = keys.cast::<u16>();
        // SAFETY: the caller's promise.
        let key = |at: usize| RULES.key(unsafe { sites.add(at).read() });
        tree::is_path(node, function, walk.len as usize, key, walk.root)
    } else {
        // SAFETY: the caller's promise.
        let key = |at: usize| unsafe { keys.add(at).read() };
        tree::is_path(node, function, walk.len as usize, key, walk.root)
    };
    is_it && tree::is_of_what_is_there(node)
}
