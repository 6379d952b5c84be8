//! Taking a session out of its target.

use std::thread::sleep;
use std::time::{Duration, Instant};

use abi::image::{MAP_SLOTS, SYMBOL_MAPS};
use abi::segment::STATE_ENDED;
use patcher::Avma;
use std::sync::atomic::Ordering::Relaxed;

use super::apply::read;
use super::recover::unmap;
use super::stack_scan::interrupted;
use super::{Session, SessionError};
use crate::clock;
use crate::process::{Memory, Tid};
use crate::segment::Journal;
use crate::tracee::{CallCode, Stopped};

/// What became of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It runs on, and nothing of the session is in it.
    Detached,
    /// It had ended before, or become another program.
    TargetGone,
}

/// How long it is waited for threads to leave the runtime's code.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Session {
    /// Takes everything out of the target and ends the session. The segment stays readable here.
    pub fn detach(&mut self) -> Result<Ended, SessionError> {
        self.segment.lock()?;
        let result = self.refresh().and_then(|()| match self.is_half() {
            true => self.clear_half().map(|()| Ended::Detached),
            false => self.recover().and_then(|()| self.end()),
        });
        self.segment.unlock();
        result
    }

    pub(super) fn end(&mut self) -> Result<Ended, SessionError> {
        if !self.is_in_target() {
            self.close();
            return Ok(Ended::TargetGone);
        }
        match self.take_everything_out() {
            Ok(()) => {
                self.close();
                self.segment.write_document(&self.document)?;
                Ok(Ended::Detached)
            }
            Err(_) if !self.is_in_target() => {
                self.close();
                Ok(Ended::TargetGone)
            }
            Err(error) => Err(error),
        }
    }

    /// Marks the session as over and takes its name away.
    pub fn close(&mut self) {
        let header = self.segment.header();
        if header.ended_tsc.load(Relaxed) == 0 {
            header.ended_tsc.store(clock::tsc(), Relaxed);
        }
        header.state.store(STATE_ENDED, Relaxed);
        self.segment.remove_name();
    }

    fn take_everything_out(&mut self) -> Result<(), SessionError> {
        let memory = self.process.memory()?;
        let functions = &self.document.functions;
        let active: Vec<usize> = (0..functions.len())
            .filter(|&i| functions[i].active)
            .collect();
        self.take_out("detach", &memory, &active)?;
        // What a command that was killed has left half done.
        let left = Journal(&self.segment).standing()?;
        if !left.is_empty() {
            let stopped = self.stop_all()?;
            let result = self.restore_entries(&memory, &left);
            let duration = stopped.resume()?;
            self.note_stop("detach", duration);
            result?;
        }
        // The runtime maps memory for itself, so its list is whole only when nobody is in it.
        self.wait_until_left(&memory)?;
        let mappings = self.mappings(&memory)?;
        self.mark_leaving(&memory, &mappings)?;
        self.unmap_now("detach", &memory, &self.in_order(&mappings))
    }

    /// The mappings as they are taken out: the segment last, which tells of the others.
    fn in_order(&self, mappings: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut order = adjoined(mappings);
        order.push(self.document.segment);
        order
    }

    fn restore_entries(&self, memory: &Memory, indexes: &[u32]) -> Result<(), SessionError> {
        let journal = Journal(&self.segment);
        let patches: Result<Vec<_>, _> = indexes
            .iter()
            .map(|&i| journal.patch(i).map(|p| (i, p)))
            .collect();
        self.restore(memory, &patches?)
    }

    /// Everything the session has mapped but the segment, what the runtime mapped for itself
    /// included.
    fn mappings(&self, memory: &Memory) -> Result<Vec<(u64, u64)>, SessionError> {
        let image = Self::image()?;
        let table = image
            .address(Avma(self.document.image.0), SYMBOL_MAPS)
            .map_err(SessionError::Image)?;
        let bytes = read(memory, table, MAP_SLOTS * 16)?;
        let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        let own = bytes
            .chunks_exact(16)
            .map(|slot| (word(&slot[..8]), word(&slot[8..])));
        let mut mappings: Vec<(u64, u64)> = own.filter(|m| m.0 != 0 && m.1 != 0).collect();
        mappings.extend(self.document.regions.iter().map(|r| (r.start, r.len)));
        mappings.push(self.document.image);
        Ok(mappings)
    }

    /// Waits until no thread is in a trampoline or the runtime, nor will return there. Nothing
    /// leads there any more.
    fn wait_until_left(&mut self, memory: &Memory) -> Result<(), SessionError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(1);
        loop {
            let mut stopped = self.stop_all()?;
            let inside = self.lead_out(memory, &mut stopped);
            let duration = stopped.resume()?;
            self.note_stop("detach", duration);
            let inside = inside?;
            let Some(first) = inside.first() else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(SessionError::Held(format!(
                    "the probes are out, but thread {first} stays in the runtime, which stays \
                     mapped; try again later"
                )));
            }
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Lets threads that are inside run on alone until they have left, for which most need a few
    /// hundred instructions; those that have not.
    fn lead_out(&self, memory: &Memory, stopped: &mut Stopped) -> Result<Vec<Tid>, SessionError> {
        const ROUNDS: usize = 5;
        const TIME: Duration = Duration::from_micros(20);
        let mut inside = self.threads_inside(memory, stopped)?;
        for _ in 0..ROUNDS {
            if inside.is_empty() {
                break;
            }
            stopped.let_run(&inside, TIME)?;
            inside = self.threads_inside(memory, stopped)?;
        }
        Ok(inside)
    }

    fn threads_inside(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
    ) -> Result<Vec<Tid>, SessionError> {
        let image = self.document.image;
        let regions = self.document.regions.iter().map(|r| (r.start, r.len));
        let ranges: Vec<(u64, u64)> = regions.chain([image]).collect();
        let is_inside = |pc: Avma| ranges.iter().any(|r| r.0 <= pc.0 && pc.0 < r.0 + r.1);
        // A trampoline's copy of an original instruction is as good as the original.
        let sites = self.document.functions.iter().flat_map(|f| &f.sites);
        let pairs: Vec<(u64, u64)> = sites
            .flat_map(|s| s.pcs.iter().chain(&s.hook_starts).copied())
            .collect();
        let maps = self.process.maps()?;
        let mut inside = Vec::new();
        for thread in stopped.threads() {
            let pc = thread.pc().0;
            if let Some(pair) = pairs.iter().find(|p| p.1 == pc) {
                thread.set_pc(Avma(pair.0))?;
            }
            let saved = interrupted(&maps, memory, thread.sp());
            if is_inside(thread.pc()) || saved.into_iter().any(is_inside) {
                inside.push(thread.tid());
            }
        }
        Ok(inside)
    }

    /// Takes the mappings of a session whose target is stopped and has not run since out again.
    pub(super) fn unmap_in(&mut self, stopped: &mut Stopped) -> Result<(), SessionError> {
        let memory = self.process.memory()?;
        let left = Journal(&self.segment).standing()?;
        self.restore_entries(&memory, &left)?;
        let mappings = self.mappings(&memory)?;
        let maps = self.process.maps()?;
        let code = CallCode::find(&self.process, &maps, &memory)?;
        unmap(&code, &memory, stopped, &self.in_order(&mappings))?;
        self.close();
        Ok(())
    }
}

/// The same ranges in order, those that touch as one.
fn adjoined(mappings: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = mappings.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, len) in sorted {
        match joined.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += len,
            _ => joined.push((start, len)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::adjoined;

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(adjoined(&[(30, 5), (10, 10), (20, 10)]), [(10, 25)]);
        assert_eq!(adjoined(&[(10, 10), (21, 10)]), [(10, 10), (21, 10)]);
        assert!(adjoined(&[]).is_empty());
    }
}
