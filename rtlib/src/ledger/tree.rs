//! The calling-context tree: every path once, shared by all threads, without a lock.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::segment::{FIRST_NODE, NODE_IS_PATH, ROOT_OVERFLOW, address_and_module};
use abi::shortage::Shortage;

use super::areas::{For, node, take_node};
use crate::code::successors;
use crate::os::hash;
use crate::os::parameters::ipath_parameters;
use crate::os::shared::header;

/// Number of hash buckets; a power of two.
const COUNT: usize = 1 << 18;

/// Hash buckets of the calling-context tree.
static BUCKETS: Buckets = Buckets::new();

/// Heads of the chains of nodes with one hash; 0 ends a chain.
struct Buckets([AtomicU32; COUNT]);

impl Buckets {
    /// Empty chains.
    const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; COUNT])
    }

    fn of(&self, parent: u32, key: u64) -> &AtomicU32 {
        let key = key ^ u64::from(parent).rotate_left(40);
        &self.0[hash::bucket(key, COUNT.ilog2())]
    }
}

/// The path of function `function` under `len` call sites that end in `root`, made if it is new; `site` tells
/// the return addresses in the tree, the innermost first.
///
/// # Errors
/// The limit on paths is reached, or there is no room for another node.
pub fn intern(
    function: u32,
    len: usize,
    site: impl Fn(usize) -> u64,
    root: u32,
) -> Result<u32, Shortage> {
    let (known, missing) = descend(len, &site, root);
    if missing == 0
        && let Some(path) = look_up(known, path_key(function))
    {
        return Ok(path);
    }
    let limit = ipath_parameters.max_paths.load(Ordering::Relaxed);
    if header().paths_used.load(Ordering::Relaxed) >= limit {
        return Err(Shortage::Paths);
    }
    let mut at = known;
    for index in (0..missing).rev() {
        at = child(at, site(index), For::Path)?.0;
    }
    let (path, is_new) = child(at, path_key(function), For::Path)?;
    if is_new {
        header().paths_used.fetch_add(1, Ordering::Relaxed);
    }
    Ok(path)
}

/// What all paths of a function share that there is no room for.
///
/// # Errors
/// There is no room for that either.
pub fn overflow(function: u32) -> Result<u32, Shortage> {
    child(ROOT_OVERFLOW, path_key(function), For::Overflow).map(|(path, _)| path)
}

/// Whether `path` is one of `function` under `len` frames, the innermost first, and `root`; `key` has the frames' addresses, whatever files
/// these are in: see [`is_of_what_is_there`].
#[inline(always)]
pub fn is_path(
    path: u32,
    function: u32,
    len: usize,
    key: impl Fn(usize) -> u64,
    root: u32,
) -> bool {
    let leaf = node(path);
    if leaf.key.load(Ordering::Relaxed) != path_key(function) {
        return false;
    }
    let mut at = leaf.parent.load(Ordering::Relaxed);
    for index in 0..len {
        if at < FIRST_NODE {
            return false;
        }
        let site = node(at);
        let (difference, _) = address_and_module(site.key.load(Ordering::Relaxed) ^ key(index));
        if difference != 0 {
            return false;
        }
        at = site.parent.load(Ordering::Relaxed);
    }
    at == root
}

/// Whether the frames of a path are in the files that are mapped there now.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub fn is_of_what_is_there(path: u32) -> bool {
    if !successors::are_any() {
        return true;
    }
    let mut at = node(path).parent.load(Ordering::Relaxed);
    while at >= FIRST_NODE {
        let site = node(at);
        let key = site.key.load(Ordering::Relaxed);
        if successors::site(address_and_module(key).0) != key {
            return false;
        }
        at = site.parent.load(Ordering::Relaxed);
    }
    true
}

/// The key of the node that ends the paths of `function`.
#[inline(always)]
pub fn path_key(function: u32) -> u64 {
    u64::from(function) | NODE_IS_PATH
}

/// The node of as many of the outer frames as are in the tree, and how many of the inner ones are not.
fn descend(len: usize, site: impl Fn(usize) -> u64, root: u32) -> (u32, usize) {
    let mut at = root;
    for index in (0..len).rev() {
        match look_up(at, site(index)) {
            Some(next) => at = next,
            None => return (at, index + 1),
        }
    }
    (at, 0)
}

fn look_up(parent: u32, key: u64) -> Option<u32> {
    // Of a deep path, whose nodes lie one after the other, this finds them in that order, where the hash
    // table leads all over memory.
    let likely = node(parent).likely.load(Ordering::Acquire);
    if likely != 0 && node(likely).key.load(Ordering::Relaxed) == key {
        return Some(likely);
    }
    search(
        BUCKETS.of(parent, key).load(Ordering::Acquire),
        0,
        parent,
        key,
    )
}

/// The node with this parent and key in the chain from `from` up to but without `until`.
fn search(from: u32, until: u32, parent: u32, key: u64) -> Option<u32> {
    let mut at = from;
    while at != until && at != 0 {
        let candidate = node(at);
        if candidate.key.load(Ordering::Relaxed) == key
            && candidate.parent.load(Ordering::Relaxed) == parent
        {
            return Some(at);
        }
        at = candidate.next.load(Ordering::Relaxed);
    }
    None
}

/// The child of `parent` with this key, and whether it was made just now.
fn child(parent: u32, key: u64, what: For) -> Result<(u32, bool), Shortage> {
    let bucket = BUCKETS.of(parent, key);
    let mut head = bucket.load(Ordering::Acquire);
    if let Some(found) = search(head, 0, parent, key) {
        return Ok((found, false));
    }
    let new = take_node(what)?;
    let depth = if parent < FIRST_NODE {
        0
    } else {
        node(parent).depth.load(Ordering::Relaxed)
    };
    let fresh = node(new);
    fresh.key.store(key, Ordering::Relaxed);
    fresh.parent.store(parent, Ordering::Relaxed);
    fresh.depth.store(depth + 1, Ordering::Relaxed);
    loop {
        fresh.next.store(head, Ordering::Relaxed);
        match bucket.compare_exchange_weak(head, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                if key & NODE_IS_PATH == 0 {
                    node(parent).likely.store(new, Ordering::Release);
                }
                return Ok((new, true));
            }
            Err(seen) => {
                // Another thread came first: only what it added needs a look. The node taken here
                // stays unused; its key is cleared so that no reader takes it for a path.
                if let Some(found) = search(seen, head, parent, key) {
                    fresh.key.store(0, Ordering::Relaxed);
                    return Ok((found, false));
                }
                head = seen;
            }
        }
    }
}
