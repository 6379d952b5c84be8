//! Assigns records to paths.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use super::places::Site;
use abi::apart::Part;
use abi::segment::{FIRST_NODE, NODE_IS_PATH, ROOT_OVERFLOW, number_of_path};

use super::heads::{Head, Heads};
use crate::segment::{Document, FunctionDoc, Segment};

/// A function by its index in the profile, the node of a path, and if threads are kept apart, a
/// thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PathKey {
    function: u32,
    /// The number of the node in which the path ends, or [`SHARED`].
    path: u32,
    /// The thread id. `None` if threads are not kept apart.
    thread: Option<u32>,
}

/// The path number that stands for those paths of a function for which there is no room.
const SHARED: u32 = 0;

/// The maximum number of frames of all paths in a profile together. Beyond it, the further paths of
/// a function share one ([`SHARED`]). The tree can hold far more: in the
/// deepest possible recursion, each call has a path as long as it is deep, but needs only one more
/// node.
const MOST_FRAMES: u64 = 1 << 24;

/// In place of a path's index: the record is not in use yet.
const UNUSED: u32 = u32::MAX;
/// In place of a path's index: the record belongs to no path that is shown.
const NOWHERE: u32 = u32::MAX - 1;
/// In place of the index of the next record: this record is the last one.
const LAST: u32 = u32::MAX;

/// The paths of a profile, in its order, with their records.
pub(super) struct Paths {
    per_thread: bool,
    /// True if calls of one path are kept apart, so that its own record may have none.
    are_apart: bool,
    /// Indexes in the profile, by function id. Ids also count functions that are not measured.
    functions: Vec<Option<u32>>,
    /// The ids of functions that replace functions with retired ids.
    heirs: BTreeMap<u32, u32>,
    /// Functions whose paths are timed, by their indexes in the profile.
    timed: BTreeSet<u32>,
    /// The node to use for a function and its caller. If a function has had two ids, its paths from
    /// one caller end in two nodes, and the first one counts.
    ends: HashMap<(u32, u32), u32>,
    /// The index of each path in the profile, or [`NOWHERE`].
    known: HashMap<PathKey, u32>,
    /// The number of frames of all paths.
    frames: u64,
    all: Vec<Known>,
    members: Vec<Member>,
    /// The paths with records that have changed since the last look.
    changed: Vec<u32>,
}

/// A path of the profile.
struct Known {
    /// The root that the path ends in, as a node number.
    root: u32,
    /// The first record of the path. [`LAST`] if it has none.
    first: u32,
    /// The last record of the path. [`LAST`] if it has none.
    last: u32,
    /// True if the path is in [`Paths::changed`].
    is_changed: bool,
}

/// The path of a record, and the next record of that path.
#[derive(Clone, Copy)]
struct Member {
    path: u32,
    next: u32,
}

/// A path that has not been known before.
pub(super) struct New<'p> {
    /// The index of the function in the profile.
    pub(super) function: usize,
    /// The thread id. `None` if paths are not kept apart by thread.
    pub(super) thread: Option<u32>,
    /// Call sites from the caller outwards.
    pub(super) stack: &'p [Site],
    /// The node numbers of the call sites in `stack`.
    pub(super) nodes: &'p [u32],
    /// The root that the path ends in.
    pub(super) root: u32,
}

impl New<'_> {
    /// Takes the number of the path inside the function off the stack. `None` if the stack does not
    /// begin with one.
    pub(super) fn take_path_inside(&mut self) -> Option<u64> {
        let (first, others) = self.stack.split_first()?;
        let number = number_of_path(first.0)?;
        self.stack = others;
        self.nodes = self.nodes.get(1..).unwrap_or_default();
        Some(number)
    }

    /// Takes the parts that keep the path apart off the stack, the innermost first.
    pub(super) fn take_parts(&mut self) -> Vec<Part> {
        let parts = self.stack.iter().map_while(|site| Part::decode(site.0));
        let parts: Vec<Part> = parts.collect();
        self.stack = self.stack.get(parts.len()..).unwrap_or_default();
        self.nodes = self.nodes.get(parts.len()..).unwrap_or_default();
        parts
    }
}

impl Paths {
    /// No paths yet, in a session with this document.
    pub(super) fn of(document: &Document) -> Self {
        let mut functions = vec![None; document.functions.len()];
        let mut timed = BTreeSet::new();
        for (index, (id, function)) in document.rows().enumerate() {
            functions[id] = u32::try_from(index).ok();
            timed.extend(functions[id].filter(|_| function.has_timed_paths()));
        }
        Self {
            per_thread: document.per_thread,
            are_apart: document.keeps_apart(),
            functions,
            timed,
            heirs: heirs(document),
            ends: HashMap::new(),
            known: HashMap::new(),
            frames: 0,
            all: Vec::new(),
            members: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Takes in the records that have changed. Calls `make` for each new path, which goes to the
    /// end of the profile's list. If there is no room for all paths, those that were seen first are
    /// kept, and the rest of a function's paths share one.
    pub(super) fn look(&mut self, segment: &Segment, heads: &Heads, mut make: impl FnMut(New<'_>)) {
        let mut new = self.new_keys(segment, heads);
        // The paths that were seen first have the lowest node numbers.
        new.sort_unstable_by_key(|&(key, record)| (key.path, key, record));
        let mut last = None;
        let mut placed: Vec<(PathKey, PathKey, u32)> = Vec::with_capacity(new.len());
        for (key, record) in new {
            if last.replace(key) != Some(key) {
                self.frames = self.frames.saturating_add(depth(segment, key.path));
            }
            let path = if self.has_too_many_frames() {
                SHARED
            } else {
                key.path
            };
            placed.push((PathKey { path, ..key }, key, record));
        }
        placed.sort_unstable();
        let (mut stack, mut nodes) = (Vec::new(), Vec::new());
        for (kept, key, record) in placed {
            let path = match self.known.get(&kept) {
                Some(&path) => path,
                None => {
                    let root = stack_of(segment, kept.path, &mut stack, &mut nodes);
                    let path = root.map_or(NOWHERE, |root| self.add(root));
                    if let Some(root) = root {
                        make(New {
                            function: kept.function as usize,
                            thread: kept.thread,
                            stack: &stack,
                            nodes: &nodes,
                            root,
                        });
                    }
                    self.known.insert(kept, path);
                    path
                }
            };
            if kept != key {
                self.known.insert(key, path);
            }
            self.attach(record, path);
        }
    }

    /// The records that have come into use and belong to no known path, with their keys. Marks the
    /// paths of the other records that have changed.
    fn new_keys(&mut self, segment: &Segment, heads: &Heads) -> Vec<(PathKey, u32)> {
        let mut new = Vec::new();
        for &record in heads.changed() {
            let member = self.members.get(record as usize);
            match member.map_or(UNUSED, |member| member.path) {
                UNUSED => {}
                path => {
                    self.mark(path);
                    continue;
                }
            }
            let head = heads.of(record);
            let key = head.and_then(|head| self.key(segment, head));
            let is_timed = |key: PathKey| self.timed.contains(&key.function);
            let may_move = key.is_some_and(is_timed) || self.are_apart;
            if head.is_some_and(Head::is_without_calls) && may_move {
                // All its calls are in records for parts of the path.
                continue;
            }
            match key.map(|key| (key, self.known.get(&key))) {
                Some((_, Some(&path))) => self.attach(record, path),
                Some((key, None)) => new.push((key, record)),
                None => self.attach(record, NOWHERE),
            }
        }
        new
    }

    /// True if paths share one because all paths together have too many frames.
    pub(super) fn has_too_many_frames(&self) -> bool {
        self.frames > MOST_FRAMES
    }

    /// The key of a record's path. `None` if the record's node does not belong to a measured
    /// function.
    fn key(&mut self, segment: &Segment, head: &Head) -> Option<PathKey> {
        let leaf = segment.node(head.path)?;
        let id = u32::try_from(leaf.key.load(Relaxed) & !NODE_IS_PATH).ok()?;
        let id = self.heirs.get(&id).copied().unwrap_or(id);
        let parent = leaf.parent.load(Relaxed);
        let path = match parent {
            ROOT_OVERFLOW => SHARED,
            _ if self.heirs.is_empty() => head.path,
            _ => *self.ends.entry((id, parent)).or_insert(head.path),
        };
        Some(PathKey {
            function: (*self.functions.get(id as usize)?)?,
            path,
            thread: self.per_thread.then_some(head.tid),
        })
    }

    /// Adds a path without records, and returns its index.
    fn add(&mut self, root: u32) -> u32 {
        self.all.push(Known {
            root,
            first: LAST,
            last: LAST,
            is_changed: false,
        });
        (self.all.len() - 1) as u32
    }

    /// Adds a record to a path.
    fn attach(&mut self, record: u32, path: u32) {
        let record_at = record as usize;
        if self.members.len() <= record_at {
            let unused = Member {
                path: UNUSED,
                next: LAST,
            };
            self.members.resize(record_at + 1, unused);
        }
        self.members[record_at].path = path;
        let Some(known) = self.all.get_mut(path as usize) else {
            return;
        };
        let last = std::mem::replace(&mut known.last, record);
        match self.members.get_mut(last as usize) {
            Some(last) => last.next = record,
            None => known.first = record,
        }
        self.mark(path);
    }

    /// Records that a path has changed. Does nothing for [`NOWHERE`].
    fn mark(&mut self, path: u32) {
        if let Some(known) = self.all.get_mut(path as usize)
            && !std::mem::replace(&mut known.is_changed, true)
        {
            self.changed.push(path);
        }
    }

    /// The indexes of the paths whose records have changed since the last call, ascending.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        let mut changed = std::mem::take(&mut self.changed);
        for &path in &changed {
            self.all[path as usize].is_changed = false;
        }
        changed.sort_unstable();
        changed
    }

    /// The records of a path.
    pub(super) fn records(&self, path: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.all.get(path as usize).map_or(LAST, |path| path.first);
        let next = |&record: &u32| Some(self.members.get(record as usize)?.next);
        std::iter::successors(Some(first), next).take_while(|&record| record != LAST)
    }

    /// The index of the path that a record belongs to. `None` if the path is not shown.
    pub(super) fn path_of(&self, record: u32) -> Option<usize> {
        let path = self.members.get(record as usize)?.path as usize;
        (path < self.all.len()).then_some(path)
    }

    /// The index in the profile of the function with this id. `None` if the function is not shown.
    pub(super) fn function_of(&self, id: u32) -> Option<usize> {
        let id = self.heirs.get(&id).copied().unwrap_or(id);
        let index = *self.functions.get(id as usize)?;
        index.map(|index| index as usize)
    }

    /// The root that a path ends in, as a node number.
    pub(super) fn root(&self, path: usize) -> u32 {
        self.all[path].root
    }
}

/// The retired ids of measured functions, with the ids that replace them.
pub(super) fn heirs(document: &Document) -> BTreeMap<u32, u32> {
    let ids = document.functions.iter().enumerate();
    let retired = ids.filter(|(_, f)| f.is_retired() && f.role.is_measured());
    let heir = |(id, f): (usize, &FunctionDoc)| {
        let place = |f: &FunctionDoc| (f.module, f.address);
        let mut now = document.rows().filter(|(_, g)| g.role.is_measured());
        let (heir, _) = now.find(|(_, g)| place(g) == place(f))?;
        Some((u32::try_from(id).ok()?, u32::try_from(heir).ok()?))
    };
    retired.filter_map(heir).collect()
}

/// The number of frames of the path that ends in the node `path`. 0 if there is no such node.
fn depth(segment: &Segment, path: u32) -> u64 {
    let leaf = segment.node(path);
    leaf.map_or(0, |leaf| leaf.depth.load(Relaxed).into())
}

/// Fills `stack` with the call sites of a path from the caller outwards, and `nodes` with their
/// nodes. Returns the root. `None` for a node that is not the end of a path, and in a corrupt tree.
fn stack_of(
    segment: &Segment,
    path: u32,
    stack: &mut Vec<Site>,
    nodes: &mut Vec<u32>,
) -> Option<u32> {
    stack.clear();
    nodes.clear();
    if path == SHARED {
        return Some(ROOT_OVERFLOW);
    }
    let leaf = segment.node(path)?;
    if leaf.key.load(Relaxed) & NODE_IS_PATH == 0 {
        return None;
    }
    let mut at = leaf.parent.load(Relaxed);
    // A corrupt tree may have cycles. A valid path is no deeper than this.
    let most = leaf.depth.load(Relaxed);
    while at >= FIRST_NODE {
        let node = segment.node(at)?;
        if stack.len() > most as usize {
            return None;
        }
        stack.push(Site(node.key.load(Relaxed)));
        nodes.push(at);
        at = node.parent.load(Relaxed);
    }
    Some(at)
}
