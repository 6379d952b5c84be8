//! The calling-context tree: every path once, shared by all threads, without a lock.

use core::sync::atomic::{AtomicU32, Ordering};

use abi::segment::{
    FIRST_NODE, NODE_IS_PATH, ROOT_COMPLETE, ROOT_OVERFLOW, address_and_module, caller_site,
    is_apart,
};
use abi::shortage::Shortage;

use super::areas::{For, node, take_node};
use crate::code::successors;
use crate::os::hash;
use crate::os::parameters::ipath_parameters;
use crate::os::shared::header;

/// Number of hash buckets, a power of two.
const COUNT: usize = 1 << 18;

/// Hash buckets of the calling-context tree.
static BUCKETS: Buckets = Buckets::new();

/// Heads of the chains of nodes with the same hash; 0 ends a chain.
struct Buckets([AtomicU32; COUNT]);

impl Buckets {
    /// Empty chains.
    const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; COUNT])
    }

    /// The head of the chain of a node with this parent and key.
    fn of(&self, parent: u32, key: u64) -> &AtomicU32 {
        let key = key ^ u64::from(parent).rotate_left(40);
        &self.0[hash::bucket(key, COUNT.ilog2())]
    }
}

/// The node of the path of `function` under `len` call sites that end in `root`, created if it is
/// new. `site` returns the call sites, the innermost first.
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

/// The path with further sites inside those of `path`, the outermost first. A site of 0 is left
/// out. `None` if there is no such path. It is `path` itself if all paths of its function share it.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub fn find_longer(path: u32, first: u64, second: u64, third: u64) -> Option<u32> {
    let (mut parent, key) = end(path);
    if parent == ROOT_OVERFLOW {
        return Some(path);
    }
    if first != 0 {
        parent = look_up(parent, first)?;
    }
    if second != 0 {
        parent = look_up(parent, second)?;
    }
    if third != 0 {
        parent = look_up(parent, third)?;
    }
    look_up(parent, key)
}

/// [`find_longer`] for any number of sites, none of which is 0.
fn find_inside(path: u32, sites: &[u64]) -> Option<u32> {
    let (mut parent, key) = end(path);
    if parent == ROOT_OVERFLOW {
        return Some(path);
    }
    for &site in sites {
        parent = look_up(parent, site)?;
    }
    look_up(parent, key)
}

/// The path with further sites inside those of `path`, the outermost first, created if it is new.
///
/// # Errors
/// As for [`intern`].
pub fn intern_longer(path: u32, sites: &[u64]) -> Result<u32, Shortage> {
    if let Some(known) = find_inside(path, sites) {
        return Ok(known);
    }
    let limit = ipath_parameters.max_paths.load(Ordering::Relaxed);
    if header().paths_used.load(Ordering::Relaxed) >= limit {
        return Err(Shortage::Paths);
    }
    let (mut parent, key) = end(path);
    for &site in sites {
        parent = child(parent, site, For::Path)?.0;
    }
    let (path, is_new) = child(parent, key, For::Path)?;
    if is_new {
        header().paths_used.fetch_add(1, Ordering::Relaxed);
    }
    Ok(path)
}

/// The path of [`intern_longer`] for calls of `path` that are kept apart ([`abi::apart`]). Beyond
/// the limit on their number, the path with the sites `others` instead.
///
/// # Errors
/// As for [`intern`].
pub fn intern_apart(path: u32, sites: &[u64], others: &[u64]) -> Result<u32, Shortage> {
    if let Some(known) = find_inside(path, sites) {
        return Ok(known);
    }
    let rest = intern_longer(path, others)?;
    // The end of a path has no child, so the field is free.
    let known = &node(rest).likely;
    let limit = ipath_parameters.max_values.load(Ordering::Relaxed);
    if u64::from(known.load(Ordering::Relaxed)) >= limit {
        return Ok(rest);
    }
    known.fetch_add(1, Ordering::Relaxed);
    intern_longer(path, sites)
}

/// The path of `function` that is called on `caller`, the path of another measured function.
/// Without a caller, no other function is on the path. `None` if there is no such path.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub fn find_called(function: u32, caller: Option<u32>) -> Option<u32> {
    let parent = match caller {
        None => ROOT_COMPLETE,
        Some(caller) => {
            let (outside, site) = outside(caller)?;
            look_up(outside, site)?
        }
    };
    look_up(parent, path_key(function))
}

/// The path that [`find_called`] finds, created if it is new.
///
/// # Errors
/// As for [`intern`], or there was no room for the path of the caller.
pub fn intern_called(function: u32, caller: Option<u32>) -> Result<u32, Shortage> {
    if let Some(known) = find_called(function, caller) {
        return Ok(known);
    }
    let limit = ipath_parameters.max_paths.load(Ordering::Relaxed);
    if header().paths_used.load(Ordering::Relaxed) >= limit {
        return Err(Shortage::Paths);
    }
    let parent = match caller {
        None => ROOT_COMPLETE,
        Some(caller) => {
            let (outside, site) = outside(caller).ok_or(Shortage::Paths)?;
            child(outside, site, For::Path)?.0
        }
    };
    let (path, is_new) = child(parent, path_key(function), For::Path)?;
    if is_new {
        header().paths_used.fetch_add(1, Ordering::Relaxed);
    }
    Ok(path)
}

/// The node of the callers on a path of measured functions, without what keeps the path apart
/// ([`abi::apart`]), and the site of the path's function as a caller. `None` for a path that is
/// shared.
fn outside(path: u32) -> Option<(u32, u64)> {
    let (mut parent, key) = end(path);
    while parent >= FIRST_NODE {
        let site = node(parent);
        if !is_apart(site.key.load(Ordering::Relaxed)) {
            break;
        }
        parent = site.parent.load(Ordering::Relaxed);
    }
    (parent != ROOT_OVERFLOW).then_some((parent, caller_site((key & !NODE_IS_PATH) as u32)))
}

/// The parent and the key of the node that ends a path.
fn end(path: u32) -> (u32, u64) {
    let leaf = node(path);
    let parent = leaf.parent.load(Ordering::Relaxed);
    (parent, leaf.key.load(Ordering::Relaxed))
}

/// The node of the path shared by all paths of a function without room.
///
/// # Errors
/// There is no room for that node either.
pub fn overflow(function: u32) -> Result<u32, Shortage> {
    child(ROOT_OVERFLOW, path_key(function), For::Overflow).map(|(path, _)| path)
}

/// True if `path` is the path of `function` under `len` frames, the innermost first, and `root`.
/// `key` returns the frames' addresses only, without their files: see [`is_of_what_is_there`].
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

/// True if the frames of a path are in the files that are mapped at their addresses now.
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

/// Finds the outer frames that are in the tree. Returns the innermost of their nodes, and the
/// number of frames that are missing.
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

/// The child of `parent` with this key; `None` if there is none.
fn look_up(parent: u32, key: u64) -> Option<u32> {
    // The nodes of a deep path are adjacent in memory. This finds them in that order, whereas the
    // hash table leads to scattered addresses.
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

/// The node with this parent and key in the chain from `from` up to, but without, `until`. `None`
/// if there is none.
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

/// The child of `parent` with this key, created if necessary, and true if it was created now.
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
                // Another thread was first, so only the nodes that it added are searched. The node
                // allocated here stays unused. Its key is cleared so that no reader takes it for a
                // path.
                if let Some(found) = search(seen, head, parent, key) {
                    fresh.key.store(0, Ordering::Relaxed);
                    return Ok((found, false));
                }
                head = seen;
            }
        }
    }
}
