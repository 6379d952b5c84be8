//! Questions from the runtime: return addresses without an unwind rule, or with one that is slower
//! than necessary.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use abi::segment::{ANSWERED, AREA_ASKED, Asked};
use patcher::Avma;

use super::Segment;
use super::layout::ASKED;

/// A return address that the runtime asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The run-time return address that the question is about.
    pub at: Avma,
    /// Bytes from the stack pointer up to the address that the frame pointer contains. Negative if
    /// unknown.
    pub distance: i64,
    /// The number of earlier questions.
    pub number: u64,
}

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The runtime is still writing the question.
    Begun,
    /// The question has not been answered.
    Open(Question),
    /// The question has been answered.
    Over,
}

impl Segment {
    /// The numbers of questions from `seen` on that are not known to be answered. The range is
    /// empty if there are none.
    pub fn asked_since(&self, seen: u64) -> Range<u64> {
        let header = self.header();
        let capacity = self.asked_capacity();
        let done = header.asked_done.load(Acquire);
        let used = header.asked_used.load(Acquire);
        let mut end = used.min(done.saturating_add(capacity));
        if end <= capacity {
            end = self.used(AREA_ASKED, end);
        }
        seen.max(done)..end
    }

    /// The state of question `number`.
    pub fn asking(&self, number: u64) -> Asking {
        let Some(asked) = self.asked(number).filter(|_| !self.is_done(number)) else {
            return Asking::Over;
        };
        let address = asked.address.load(Acquire);
        let distance = asked.frame_pointer.load(Relaxed) as i64;
        match address {
            0 => Asking::Begun,
            ANSWERED => Asking::Over,
            _ => Asking::Open(Question {
                at: Avma(address),
                distance,
                number,
            }),
        }
    }

    /// True if a question has not been answered yet.
    pub fn is_open(&self, question: &Question) -> bool {
        self.asking(question.number) == Asking::Open(*question)
    }

    /// Marks questions as answered, so that new ones can take their places. The caller holds the
    /// session's lock.
    pub fn close_questions(&self, questions: &[Question]) {
        for question in questions.iter().filter(|question| self.is_open(question)) {
            if let Some(asked) = self.asked(question.number) {
                asked.address.store(ANSWERED, Relaxed);
            }
        }
        let header = self.header();
        let mut done = header.asked_done.load(Relaxed);
        for number in self.asked_since(done) {
            let Some(asked) = self.asked(number) else {
                break;
            };
            if asked.address.load(Relaxed) != ANSWERED {
                break;
            }
            asked.address.store(0, Relaxed);
            done = number + 1;
        }
        header.asked_done.store(done, Release);
    }

    /// Sleeps until there have been more than `used` questions, but not much longer than
    /// `patience`. A signal or a wake for another reason ends the sleep early.
    pub fn await_question(&self, used: u64, patience: Duration) {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(patience.subsec_nanos()),
        };
        let word = self.header().asked_used.as_ptr();
        // SAFETY: futex(2) reads the lower half of a word of the map and the timeout.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT,
                used as u32,
                &raw const timeout,
            );
        }
    }

    /// True if all questions up to `number` have been answered.
    fn is_done(&self, number: u64) -> bool {
        number < self.header().asked_done.load(Acquire)
    }

    /// The number of questions that can be open at a time, at least 1.
    fn asked_capacity(&self) -> u64 {
        let area = self.header().areas.get(AREA_ASKED);
        area.map_or(1, |area| area.capacity()).clamp(1, ASKED)
    }

    /// The entry of question `number`. `None` if it is outside the area.
    fn asked(&self, number: u64) -> Option<&Asked> {
        let stride = size_of::<Asked>() as u64;
        self.item(AREA_ASKED, number % self.asked_capacity(), stride, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Shape;
    use ipath_target::process::{Pid, Process};

    /// Asks a question as the runtime does. False if there is no room.
    fn ask(segment: &Segment, at: u64) -> bool {
        let header = segment.header();
        let number = header.asked_used.load(Relaxed);
        if number - header.asked_done.load(Acquire) >= ASKED {
            return false;
        }
        header.asked_used.store(number + 1, Relaxed);
        let asked = segment.asked(number).expect("a place");
        asked.frame_pointer.store(8, Relaxed);
        asked.address.store(at, Release);
        true
    }

    fn open(segment: &Segment, seen: u64) -> Vec<Question> {
        let asking = |number| match segment.asking(number) {
            Asking::Open(question) => Some(question),
            Asking::Begun | Asking::Over => None,
        };
        segment.asked_since(seen).filter_map(asking).collect()
    }

    #[test]
    fn questions_take_the_places_of_those_that_are_over() {
        const FIRST: u64 = 0x1000;
        let process = Process {
            pid: Pid(std::process::id() as i32),
            start_time: 3,
        };
        let shape = Shape {
            max_paths: 100,
            columns: 1,
            keeps_single: false,
        };
        let (segment, lock) = Segment::create(&process, &shape).expect("created");
        drop(lock);
        segment.remove_name();
        let mut asked = 0;
        while ask(&segment, FIRST + asked) {
            asked += 1;
        }
        assert_eq!(asked, ASKED);
        let all = open(&segment, 0);
        assert_eq!(all.len() as u64, asked);
        // Questions after an open one keep their places, too.
        segment.close_questions(&all[1..]);
        assert!(!ask(&segment, FIRST) && segment.is_open(&all[0]));
        segment.close_questions(&all[..1]);
        assert!(open(&segment, 0).is_empty());
        for number in ASKED..5 * ASKED / 2 {
            assert!(ask(&segment, FIRST + number));
            let new = open(&segment, 0);
            assert_eq!(new.len(), 1);
            assert_eq!((new[0].at, new[0].number), (Avma(FIRST + number), number));
            segment.close_questions(&new);
            // A second command that watches the session comes too late.
            assert!(!segment.is_open(&new[0]) && !segment.is_open(&all[0]));
        }
        let header = segment.header();
        // Values that a hostile target may store.
        header.asked_used.store(u64::MAX, Relaxed);
        assert!(segment.asked_since(0).count() as u64 <= ASKED);
        header.asked_done.store(u64::MAX, Relaxed);
        assert_eq!(segment.asked_since(7).count(), 0);
        header.asked_used.store(0, Relaxed);
        segment.close_questions(&all);
    }
}
