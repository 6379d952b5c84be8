//! A word that the kernel changes when a thread ends, of threads that have no id at an offset from their FS base: pure Go,
//! Zig without a C library, raw clone(2). Another thread may get the FS base then.
//!
//! It is `data_head` of the ring buffer of a perf event of the thread's own. With `task` in its attributes the kernel writes a
//! record there when the thread makes another one and when it ends (kernel/events/core.c, perf_event_task), before it lets
//! go of the thread's memory. The buffer is mapped read-only, so it never gets full. The event's descriptor is closed at once.
//!
//! A robust futex list would tell as much (set_robust_list(2)), but a thread has one, and only the thread itself can take
//! it back.

use abi::counter::{Event, words};

use crate::os::{foreign, memory, sys};

/// Pages of the mapping: the one that describes the buffer, and the buffer.
const PAGES: u64 = 2;
/// Offset of `data_head` in the first (include/uapi/linux/perf_event.h, `struct perf_event_mmap_page`).
const DATA_HEAD: u64 = 1024;

static EVENT: Event = {
    const SOFTWARE: u32 = 1;
    const COUNT_DUMMY: u64 = 9;
    const FLAGS: usize = 5;
    const TASK: u64 = 1 << 13;
    let mut words = words(SOFTWARE, [COUNT_DUMMY, 0, 0]);
    words[FLAGS] |= TASK;
    Event::new(words)
};

/// A thread's.
#[repr(C)]
pub(super) struct Mark {
    /// Where the mapping is; 0 if there is none.
    at: u64,
}

impl Mark {
    /// Makes it the calling thread's, as far as the kernel allows.
    pub fn renew(&mut self) {
        if self.at != 0 {
            // SAFETY: the place is the caller's, who looks for the word elsewhere from now on.
            unsafe { memory::unmap_pages_of(self.at) };
        }
        let event = sys::own_event(&EVENT);
        let mapped = event.and_then(|event| memory::map_pages_of(&event, PAGES));
        self.at = mapped.unwrap_or(0);
    }

    /// Maps memory in its place in a child, which has not inherited it (perf_mmap sets VM_DONTCOPY).
    /// Nothing where the thread's place is gone: the command unmaps that of a child that it follows.
    pub fn keep_room(own: *const Self) {
        let mut word = [0; size_of::<u64>()];
        let read = foreign::try_read(own as u64, &mut word);
        let at = u64::from_le_bytes(word);
        if read == Some(word.len()) && at != 0 {
            sys::map_anonymous_at(at, PAGES * abi::PAGE);
        }
    }

    /// Where the word is; `None` if there is none.
    pub fn word(&self) -> Option<*const u32> {
        (self.at != 0).then_some((self.at + DATA_HEAD) as *const u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn the_word_changes_when_the_thread_ends() {
        crate::os::parameters::allow_system_calls();
        let read = |word: u64| {
            // SAFETY: the mapping stays.
            unsafe { (word as *const u32).read_volatile() }
        };
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let own = thread::spawn(move || {
            let mut mark = Mark { at: 0 };
            mark.renew();
            let word = mark.word().expect("root may have events of its own") as u64;
            tell.send(word).expect("it is waited for");
            ended.recv().expect("it is told");
        });
        let word = told.recv().expect("a word");
        let before = read(word);
        thread::spawn(|| {}).join().expect("another one ends");
        assert_eq!(read(word), before);
        end.send(()).expect("it waits");
        own.join().expect("it ends");
        assert_ne!(read(word), before);
    }
}
