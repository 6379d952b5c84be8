//! A thread's records, by path.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::{ROOT_OVERFLOW, RecordHead};
use abi::shortage::Shortage;

use super::areas::{self, For};
use super::paths::{self, Paths};
use super::{record, tree};
use crate::arch::prefetch;
use crate::os::{parameters, shared, sys};
use crate::walk::Path;

/// Bytes of a thread's ledger, in addition to [`Ledger`].
pub const BYTES: u64 = paths::BYTES;

/// The reason why a call is not recorded.
#[derive(Clone, Copy)]
pub enum Missed {
    /// A signal handler made the call while it interrupted the runtime.
    Handler,
    /// The call's stack is unknown.
    Stack,
    /// There is no room or no memory for the call's record.
    Short(Shortage),
}

impl From<Shortage> for Missed {
    fn from(shortage: Shortage) -> Self {
        Self::Short(shortage)
    }
}

/// A thread's records.
#[repr(C)]
pub struct Ledger {
    /// The paths of which the thread has records.
    paths: Paths,
    /// The number of the thread's entry in the segment.
    thread: u32,
    /// The thread's id; 0 before the first [`Ledger::renew`].
    tid: u32,
}

impl Ledger {
    /// Turns zeroed memory into the ledger of the thread with this entry. It works in place,
    /// because the runtime's is inside a larger structure.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, without another user.
    pub unsafe fn begin(&mut self, base: u64, thread: u32) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.paths.begin(base) };
        self.thread = thread;
    }

    /// Resets the ledger for the thread with this id. True if the thread gets another entry in the
    /// segment and has none of the old records: another thread had them, records are kept by
    /// thread, and there is room. Otherwise the thread continues the records.
    pub fn renew(&mut self, tid: u32) -> bool {
        let is_others = self.tid != 0 && self.tid != tid && parameters::tells_threads_apart();
        let own = is_others.then(areas::take_thread).and_then(Result::ok);
        if let Some(own) = own {
            self.thread = own;
            self.paths.forget_all();
        }
        self.tid = tid;
        let entry = &areas::thread(self.thread).tid;
        entry.store(tid, Ordering::Relaxed);
        own.is_some()
    }

    /// The number of the thread's entry in the segment.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// True if the record belongs to the thread.
    pub fn owns(&self, record: &RecordHead) -> bool {
        u32::from(record.thread.load(Ordering::Relaxed)) == self.thread
    }

    /// Counts a call of the thread that is not recorded.
    pub fn count_missed(&self, why: Missed) {
        let entry = areas::thread(self.thread);
        // Atomic, because a handler that misses a call may interrupt this.
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        count(&entry.missed);
        match why {
            Missed::Handler => {}
            Missed::Stack => drop(count(&entry.missed_stack)),
            Missed::Short(shortage) => {
                count(&entry.missed_short);
                shared::note_missed(shortage);
            }
        }
    }

    /// Stores the thread's current name if threads are kept apart. The thread may end before its
    /// name can be read otherwise.
    #[inline(never)]
    fn note_name(&self) {
        if parameters::tells_threads_apart() {
            let entry = areas::thread(self.thread);
            for (word, now) in entry.name.iter().zip(sys::thread_name()) {
                word.store(now, Ordering::Relaxed);
            }
        }
    }

    /// The record of a path with the current schema of its function; `None` if the thread has none.
    ///
    /// # Safety
    /// The path's walk is the last one of the thread.
    #[inline(always)]
    pub unsafe fn find(&self, path: &Path) -> Option<&'static RecordHead> {
        // SAFETY: guaranteed by the caller.
        let number = unsafe {
            let schema = parameters::schema_of(path.function);
            let is = |number| record::schema(areas::record(number)) == schema;
            self.paths
                .find(path, is, |number| fetch(areas::record(number)))
        };
        number.map(areas::record)
    }

    /// The record of a path, created if necessary. Without room for it, the record of the
    /// function's overflow path.
    ///
    /// # Errors
    /// There is no room for that record either.
    ///
    /// # Safety
    /// As for [`Ledger::find`].
    pub unsafe fn find_or_make(&mut self, path: &Path) -> Result<&'static RecordHead, Shortage> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if let Some(known) = self.find(path) {
                return Ok(known);
            }
            let schema = parameters::schema_of(path.function);
            let own = match path.walk.root {
                // The walk has noted the overflow.
                ROOT_OVERFLOW => None,
                _ => self.make(path).map_err(shared::note_overflow).ok(),
            };
            let number = match own {
                Some(number) => number,
                None => self.make_overflow(path.function, schema)?,
            };
            Ok(areas::record(number))
        }
    }

    /// The thread's record for the path of another thread's record, created if necessary. It is
    /// distinct from records made by walks.
    ///
    /// # Errors
    /// As for [`Ledger::find_or_make`].
    pub fn find_or_make_like(
        &mut self,
        other: &RecordHead,
    ) -> Result<&'static RecordHead, Shortage> {
        let function = record::function(other);
        let node = other.path.load(Ordering::Relaxed);
        let schema = record::schema(other);
        let own = self.make_by_node(function, schema, node, For::Path);
        let number = match own.map_err(shared::note_overflow) {
            Ok(number) => number,
            Err(()) => self.make_overflow(function, schema)?,
        };
        Ok(areas::record(number))
    }

    /// The thread's record of the path of `record` with further sites inside, the outermost first.
    /// A site of 0 is left out. `None` if the thread has none.
    #[inline(always)]
    pub fn find_longer(
        &self,
        record: &RecordHead,
        (first, second, third): (u64, u64, u64),
    ) -> Option<&'static RecordHead> {
        let path = record.path.load(Ordering::Relaxed);
        let node = tree::find_longer(path, first, second, third)?;
        self.find_like(record, node)
    }

    /// The thread's record of `function` on the path of measured functions that ends in `caller`,
    /// with the current schema. `None` if the thread has none.
    #[inline(always)]
    pub fn find_called(
        &self,
        function: u32,
        caller: Option<&RecordHead>,
    ) -> Option<&'static RecordHead> {
        let node = tree::find_called(function, caller.map(record::path))?;
        self.find_at(function, node)
    }

    /// The thread's record of the path of `function` with this node, with the current schema.
    /// `None` if there is none.
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    fn find_at(&self, function: u32, node: u32) -> Option<&'static RecordHead> {
        let schema = parameters::schema_of(function);
        let is = |number| record::schema(areas::record(number)) == schema;
        let number = self.paths.find_by_node(function, node, is);
        number.map(areas::record)
    }

    /// The record that [`Ledger::find_called`] finds, created if necessary. Without room for it,
    /// or for that of the caller, the record of the function's overflow path.
    ///
    /// # Errors
    /// There is no room for that record either.
    pub fn find_or_make_called(
        &mut self,
        function: u32,
        caller: Option<&RecordHead>,
        schema: u8,
    ) -> Result<&'static RecordHead, Shortage> {
        let node = tree::intern_called(function, caller.map(record::path));
        let own = node.and_then(|node| self.make_by_node(function, schema, node, For::Path));
        let number = match own.map_err(shared::note_overflow) {
            Ok(number) => number,
            Err(()) => self.make_overflow(function, schema)?,
        };
        self.note_name();
        Ok(areas::record(number))
    }

    /// The thread's record like `other`, of the same function, with the node `node`. `None` if
    /// there is none.
    #[inline(never)]
    #[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
    fn find_like(&self, other: &RecordHead, node: u32) -> Option<&'static RecordHead> {
        let schema = record::schema(other);
        let is = |number| record::schema(areas::record(number)) == schema;
        let function = record::function(other);
        let number = self.paths.find_by_node(function, node, is)?;
        Some(areas::record(number))
    }

    /// The thread's record of the path of `record` with one more site, innermost, created if
    /// necessary.
    ///
    /// # Errors
    /// As for [`Ledger::find_or_make`].
    pub fn find_or_make_longer(
        &mut self,
        record: &RecordHead,
        site: u64,
    ) -> Result<&'static RecordHead, Shortage> {
        let path = record.path.load(Ordering::Relaxed);
        self.find_or_make_at(record, tree::intern_longer(path, &[site]))
    }

    /// The thread's record for calls of the path of `record` that are kept apart, created if
    /// necessary. `sites` are the parts, the outermost first. Beyond the limit on those of one
    /// path, the record with the parts `others` instead.
    ///
    /// # Errors
    /// As for [`Ledger::find_or_make`].
    pub fn find_or_make_apart(
        &mut self,
        record: &RecordHead,
        sites: &[u64],
        others: &[u64],
    ) -> Result<&'static RecordHead, Shortage> {
        let path = record.path.load(Ordering::Relaxed);
        self.find_or_make_at(record, tree::intern_apart(path, sites, others))
    }

    /// The thread's record like `record` with the node `node`, created if necessary. Without a
    /// node, or without room, the record of the function's overflow path.
    fn find_or_make_at(
        &mut self,
        record: &RecordHead,
        node: Result<u32, Shortage>,
    ) -> Result<&'static RecordHead, Shortage> {
        let function = record::function(record);
        let schema = record::schema(record);
        let own = node.and_then(|node| self.make_by_node(function, schema, node, For::Path));
        let number = match own.map_err(shared::note_overflow) {
            Ok(number) => number,
            Err(()) => self.make_overflow(function, schema)?,
        };
        Ok(areas::record(number))
    }

    /// Interns a path and creates a record for it. Returns the record's number.
    unsafe fn make(&mut self, path: &Path) -> Result<u32, Shortage> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let site = |index: usize| path.site(index);
            let len = path.walk.len as usize;
            let node = tree::intern(path.function, len, site, path.walk.root)?;
            self.paths.reserve(For::Path)?;
            let schema = parameters::schema_of(path.function);
            let record = record::make(self.thread, self.tid, schema, node, For::Path)?;
            self.paths.add(path, node, record)?;
            self.note_name();
            Ok(record)
        }
    }

    /// Finds or creates the record shared by all paths of a function without room. Returns the
    /// record's number.
    fn make_overflow(&mut self, function: u32, schema: u8) -> Result<u32, Shortage> {
        self.make_by_node(function, schema, tree::overflow(function)?, For::Overflow)
    }

    /// Finds or creates the record of a path with a known node. Returns the record's number.
    fn make_by_node(
        &mut self,
        function: u32,
        schema: u8,
        node: u32,
        what: For,
    ) -> Result<u32, Shortage> {
        let is = |number| record::schema(areas::record(number)) == schema;
        if let Some(known) = self.paths.find_by_node(function, node, is) {
            return Ok(known);
        }
        self.paths.reserve(what)?;
        let record = record::make(self.thread, self.tid, schema, node, what)?;
        self.paths.add_by_node(function, node, record)?;
        Ok(record)
    }
}

/// Prefetches a record: its head and the cache line after it, which is needed when the call ends.
#[inline(always)]
fn fetch(record: &RecordHead) {
    let head: *const RecordHead = record;
    prefetch::line(head);
    prefetch::line(head.wrapping_add(1));
}
