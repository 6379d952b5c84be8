//! A word that the kernel changes when a thread ends. It serves threads without an id at an offset
//! from their thread pointer: pure Go, Zig without a C library, raw clone(2). Another thread may
//! get the thread pointer afterwards.
//!
//! The word is `data_head` of the ring buffer of the thread's own perf event. With `task` in the
//! event's attributes the kernel writes a record when the thread creates a thread and when it ends
//! (kernel/events/core.c, perf_event_task). It does so before it releases the thread's memory. The
//! buffer is mapped read-only, so it never fills up. The event's descriptor is closed at once.
//!
//! A robust futex list would work too (set_robust_list(2)), but a thread has only one, and only the
//! thread itself can remove it.

use abi::counter::{Event, words};

use crate::os::{foreign, memory, sys};

/// Pages of the mapping: the control page, and the buffer.
const PAGES: u64 = 2;
/// Byte offset of `data_head` in the control page (include/uapi/linux/perf_event.h, `struct
/// perf_event_mmap_page`).
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

/// The mark of a thread.
#[repr(C)]
pub(super) struct Mark {
    /// The address of the mapping; 0 if there is none.
    at: u64,
}

impl Mark {
    /// Replaces the mark by one of the calling thread. If the kernel refuses that, there is none.
    pub fn renew(&mut self) {
        if self.at != 0 {
            // SAFETY: the place belongs to the caller, which reads another word from now on.
            unsafe { memory::unmap_pages_of(self.at) };
        }
        let event = sys::own_event(&EVENT);
        let mapped = event.and_then(|event| memory::map_pages_of(&event, PAGES));
        self.at = mapped.unwrap_or(0);
    }

    /// In a child, maps memory at the mark's address, because the child does not inherit the
    /// mapping (perf_mmap sets VM_DONTCOPY). Does nothing if the thread's place is gone: the
    /// command unmaps it in a child that it follows.
    pub fn keep_room(own: *const Self) {
        let mut word = [0; size_of::<u64>()];
        let read = foreign::try_read(own as u64, &mut word);
        let at = u64::from_le_bytes(word);
        if read == Some(word.len()) && at != 0 {
            sys::map_anonymous_at(at, PAGES * abi::PAGE);
        }
    }

    /// The address of the word that changes when the thread ends; `None` if there is none.
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
