//! Which path each record is of.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use super::places::Site;
use abi::segment::{FIRST_NODE, NODE_IS_PATH, ROOT_OVERFLOW};

use super::heads::{Head, Heads};
use crate::segment::{Document, FunctionDoc, Segment};

/// Function by its index in the profile, path, and thread, that where threads are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    function: u32,
    path: u32,
    thread: Option<u32>,
}

/// Stands for all the paths of a function that there is no room for.
const SHARED: u32 = 0;

/// Frames of all the paths of a profile. The tree holds far more: of a recursion as deep as a stack can be,
/// each call has a path as long as it is deep, and one node more than the call before it.
const MOST_FRAMES: u64 = 1 << 24;

/// Instead of the index of a path: the record has not been in use.
const UNUSED: u32 = u32::MAX;
/// Instead of the index of a path: the record is of none that is shown.
const NOWHERE: u32 = u32::MAX - 1;
/// Instead of the index of a record: there is no further one.
const LAST: u32 = u32::MAX;

/// The paths of a profile, in its order, with the records of each.
pub(super) struct Paths {
    per_thread: bool,
    /// Indexes of functions in the profile by their ids, which count functions that are not measured too.
    functions: Vec<Option<u32>>,
    /// Functions that count for others of another id.
    heirs: BTreeMap<u32, u32>,
    /// Where the ends of paths to one function under two ids are the same caller's, the first is the one.
    ends: HashMap<(u32, u32), u32>,
    known: HashMap<Key, u32>,
    /// Frames of all of them.
    frames: u64,
    all: Vec<Known>,
    members: Vec<Member>,
    /// Those with records that have changed since the look before.
    changed: Vec<u32>,
}

struct Known {
    /// The node that it ends in.
    root: u32,
    first: u32,
    last: u32,
    is_changed: bool,
}

/// A record as one of those of a path.
#[derive(Clone, Copy)]
struct Member {
    path: u32,
    next: u32,
}

/// A path that has not been seen before.
pub(super) struct New<'p> {
    pub(super) function: usize,
    pub(super) thread: Option<u32>,
    /// Return addresses from the caller outwards.
    pub(super) stack: &'p [Site],
    /// The nodes of these frames.
    pub(super) nodes: &'p [u32],
    /// The node that it ends in.
    pub(super) root: u32,
}

impl Paths {
    /// None yet, in a session with this document.
    pub(super) fn of(document: &Document) -> Self {
        let mut functions = vec![None; document.functions.len()];
        for (index, (id, _)) in document.measured().enumerate() {
            functions[id] = u32::try_from(index).ok();
        }
        Self {
            per_thread: document.per_thread,
            functions,
            heirs: heirs(document),
            ends: HashMap::new(),
            known: HashMap::new(),
            frames: 0,
            all: Vec::new(),
            members: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Takes in what has changed, and has `make` make paths that are new, at the end of the profile's list; they are no more
    /// than there is room for, those that were seen first. The further ones of a function share one.
    pub(super) fn look(&mut self, segment: &Segment, heads: &Heads, mut make: impl FnMut(New<'_>)) {
        let mut new = self.new_keys(segment, heads);
        // Those that were seen first have the lower nodes.
        new.sort_unstable_by_key(|&(key, record)| (key.path, key, record));
        let mut last = None;
        let mut placed: Vec<(Key, Key, u32)> = Vec::with_capacity(new.len());
        for (key, record) in new {
            if last.replace(key) != Some(key) {
                self.frames = self.frames.saturating_add(depth(segment, key.path));
            }
            let path = if self.has_too_many_frames() {
                SHARED
            } else {
                key.path
            };
            placed.push((Key { path, ..key }, key, record));
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

    /// The records that have come into use and are of none of the known paths, with what theirs are. The others that have
    /// changed are noted down.
    fn new_keys(&mut self, segment: &Segment, heads: &Heads) -> Vec<(Key, u32)> {
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
            let key = heads.of(record).and_then(|head| self.key(segment, head));
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

    fn key(&mut self, segment: &Segment, head: &Head) -> Option<Key> {
        let leaf = segment.node(head.path)?;
        let id = u32::try_from(leaf.key.load(Relaxed) & !NODE_IS_PATH).ok()?;
        let id = self.heirs.get(&id).copied().unwrap_or(id);
        let parent = leaf.parent.load(Relaxed);
        let path = match parent {
            ROOT_OVERFLOW => SHARED,
            _ if self.heirs.is_empty() => head.path,
            _ => *self.ends.entry((id, parent)).or_insert(head.path),
        };
        Some(Key {
            function: (*self.functions.get(id as usize)?)?,
            path,
            thread: self.per_thread.then_some(head.tid),
        })
    }

    fn add(&mut self, root: u32) -> u32 {
        self.all.push(Known {
            root,
            first: LAST,
            last: LAST,
            is_changed: false,
        });
        (self.all.len() - 1) as u32
    }

    /// Makes a record one of those of a path.
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

    fn mark(&mut self, path: u32) {
        if let Some(known) = self.all.get_mut(path as usize)
            && !std::mem::replace(&mut known.is_changed, true)
        {
            self.changed.push(path);
        }
    }

    /// The paths whose records have changed since this was last asked, ascending.
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

    /// The node that a path ends in.
    pub(super) fn root(&self, path: usize) -> u32 {
        self.all[path].root
    }
}

/// The ids of functions that could not stay with the row that they had, with those of the rows that they have now.
fn heirs(document: &Document) -> BTreeMap<u32, u32> {
    let ids = document.functions.iter().enumerate();
    let retired = ids.filter(|(_, f)| f.is_retired() && f.role.is_measured());
    let heir = |(id, f): (usize, &FunctionDoc)| {
        let place = |f: &FunctionDoc| (f.module, f.address);
        let mut now = document.measured().filter(|(_, g)| g.role.is_measured());
        let (heir, _) = now.find(|(_, g)| place(g) == place(f))?;
        Some((u32::try_from(id).ok()?, u32::try_from(heir).ok()?))
    };
    retired.filter_map(heir).collect()
}

/// How many frames a path has.
fn depth(segment: &Segment, path: u32) -> u64 {
    let leaf = segment.node(path);
    leaf.map_or(0, |leaf| leaf.depth.load(Relaxed).into())
}

/// Returns the call sites from the caller outwards with their nodes, and the root. `None` for a
/// node that is not the end of a path.
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
    // A corrupt tree may have circles; a true one is no deeper than this.
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
