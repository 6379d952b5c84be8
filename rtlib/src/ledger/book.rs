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

/// Bytes that a thread's ledger takes besides the [`Ledger`].
pub const BYTES: u64 = paths::BYTES;

/// Why a call is not recorded.
#[derive(Clone, Copy)]
pub enum Missed {
    /// A signal handler made it while the runtime was at work on the thread.
    Handler,
    /// Its stack is unknown.
    Stack,
    /// There is no room or no memory for it.
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
    /// The paths it has been on.
    paths: Paths,
    /// The number of its entry in the segment, and its id.
    thread: u32,
    /// See `thread`.
    tid: u32,
}

impl Ledger {
    /// Makes zeroed memory the ledger of the thread with this entry: the runtime's is in the middle of a thread's.
    ///
    /// # Safety
    /// `base` is the address of [`BYTES`] of zeroed memory, aligned to 8, that nobody else uses.
    pub unsafe fn begin(&mut self, base: u64, thread: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.paths.begin(base) };
        self.thread = thread;
    }

    /// Makes it that of another thread, which has this id. True if records are kept by thread, so that the other
    /// thread has none of them.
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

    /// Whether a record is the thread's.
    pub fn owns(&self, record: &RecordHead) -> bool {
        u32::from(record.thread.load(Ordering::Relaxed)) == self.thread
    }

    /// Counts a call of the thread's that is not recorded.
    pub fn count_missed(&self, why: Missed) {
        let entry = areas::thread(self.thread);
        // At once: a handler that has a call of its own missed may come amid it.
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

    /// Notes what the thread is called by now, where threads are told apart: it may end before anybody looks.
    #[inline(never)]
    fn note_name(&self) {
        if parameters::tells_threads_apart() {
            let entry = areas::thread(self.thread);
            for (word, now) in entry.name.iter().zip(sys::thread_name()) {
                word.store(now, Ordering::Relaxed);
            }
        }
    }

    /// The record of a path by its function's schema, if the thread has one.
    ///
    /// # Safety
    /// The path's walk is the last that the thread has made.
    #[inline(always)]
    pub unsafe fn find(&self, path: &Path) -> Option<&'static RecordHead> {
        // SAFETY: the caller's promise.
        let number = unsafe {
            let schema = parameters::schema_of(path.function);
            let is = |number| record::schema(areas::record(number)) == schema;
            self.paths
                .find(path, is, |number| fetch(areas::record(number)))
        };
        number.map(areas::record)
    }

    /// The record of a path, made where the thread has none yet; that of the function's overflow path where there
    /// is no room for it.
    ///
    /// # Errors
    /// There is no room for that either.
    ///
    /// # Safety
    /// As for [`Ledger::find`].
    pub unsafe fn find_or_make(&mut self, path: &Path) -> Result<&'static RecordHead, Shortage> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(known) = self.find(path) {
                return Ok(known);
            }
            let schema = parameters::schema_of(path.function);
            let own = match path.walk.root {
                // Noted by the walk.
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

    /// The record of the path that another thread's record is of, made where the thread has none yet that was made
    /// so.
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

    /// Interns a path and makes a record of it.
    unsafe fn make(&mut self, path: &Path) -> Result<u32, Shortage> {
        // SAFETY: the caller's promise.
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

    /// The record of what all paths of a function share that there is no room for.
    fn make_overflow(&mut self, function: u32, schema: u8) -> Result<u32, Shortage> {
        self.make_by_node(function, schema, tree::overflow(function)?, For::Overflow)
    }

    /// The record of a path whose node is known.
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

/// Has a record fetched: its head, and the line after it, which is needed when the call ends.
#[inline(always)]
fn fetch(record: &RecordHead) {
    let head: *const RecordHead = record;
    prefetch::line(head);
    prefetch::line(head.wrapping_add(1));
}
