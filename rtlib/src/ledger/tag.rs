//! Tags: the identities of the paths that records belong to.

use core::mem::size_of;

use abi::MAX_FUNCTIONS;
use abi::segment::FIRST_NODE;

use super::tree;
use crate::code::rules::RULES;
use crate::walk::{Path, Walk};

/// Sites per word.
pub const PER_WORD: u64 = 4;
/// Words of sites stored in a tag itself.
pub const INLINE: usize = 6;

/// The identity of a path, one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Tag {
    /// The key of the path.
    pub key: TagKey,
    /// The node of the path.
    pub path: u32,
    _padding: u32,
    /// The path's sites from the innermost on, the last word padded with zeroes. If they do not
    /// fit, the address of their copy, preceded by their number; null if the path is identified by
    /// nodes only.
    sites: [u64; INLINE],
}

/// The upper half of the hash, and below it 14 bits of function, 14 of length and 4 of root.
///
/// Longer paths have the maximum length. The length is 0 if the path is identified by its nodes
/// instead of sites. A path known only by its node has a hash of the node instead of the path's,
/// and no root.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct TagKey(pub u64);

const _: () = assert!(size_of::<Tag>() == 64);
const _: () = assert!(MAX_FUNCTIONS <= 1 << (TagKey::FUNCTION_END - TagKey::LEN_END));
const _: () = assert!(FIRST_NODE <= 1 << TagKey::ROOT_END);

impl TagKey {
    const ROOT_END: u32 = 4;
    const LEN_END: u32 = 18;
    const FUNCTION_END: u32 = 32;
    const LONGEST: u64 = (1 << (Self::LEN_END - Self::ROOT_END)) - 1;

    /// The key of a path.
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

    /// The key of a path known only by its node. Any hash of that suffices.
    pub fn of_node(function: u32, node: u32) -> Self {
        let hash = u64::from(node) << Self::FUNCTION_END;
        Self::new(hash, function, 0, 0)
    }

    /// True if the path is identified by sites.
    #[inline(always)]
    pub fn has_sites(self) -> bool {
        self.0 >> Self::ROOT_END & Self::LONGEST != 0
    }

    /// The highest bits of the key, which belong to the hash.
    #[inline(always)]
    pub fn first(self) -> u64 {
        self.0 >> Self::FUNCTION_END
    }
}

impl Tag {
    /// The tag of the path with node `path` and `sites`, in the format of the field `sites`.
    pub fn new(key: TagKey, path: u32, sites: [u64; INLINE]) -> Self {
        Self {
            key,
            path,
            _padding: 0,
            sites,
        }
    }

    /// True if the tag belongs to `path`. The caller has checked that their keys are equal.
    ///
    /// # Safety
    /// The path has as many frames or sites as its walk says.
    #[inline(always)]
    pub unsafe fn is(&self, path: &Path) -> bool {
        let len = path.walk.len;
        let words = len.div_ceil(PER_WORD) as usize;
        // SAFETY: a tag contains as many sites as its key says, or the address of a copy of them.
        // They are compared word by word: comparing slices would call `bcmp`, which uses vector
        // registers.
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

/// True if the nodes under `node` are this path. `keys` are its frames or sites, as many as the
/// walk says. The arguments are the parts of a [`Path`], so that the path takes no room on the
/// stack.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_by_nodes(node: u32, function: u32, walk: &Walk, keys: *const u64) -> bool {
    let is_it = if walk.has_sites {
        let sites = keys.cast::<u16>();
        // SAFETY: guaranteed by the caller.
        let key = |at: usize| RULES.key(unsafe { sites.add(at).read() });
        tree::is_path(node, function, walk.len as usize, key, walk.root)
    } else {
        // SAFETY: guaranteed by the caller.
        let key = |at: usize| unsafe { keys.add(at).read() };
        tree::is_path(node, function, walk.len as usize, key, walk.root)
    };
    is_it && tree::is_of_what_is_there(node)
}
