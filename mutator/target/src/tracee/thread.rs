//! One thread in ptrace-stop.

use nix::errno::Errno;
use patcher::Avma;

use super::attaching::attaching;
use super::calls::{FAULTS, can_be_made_again};
use super::{TraceeError, followed, sys};
use crate::arch::Registers;
use crate::arch::code::PAST_BREAKPOINT;
use crate::process::Tid;

/// A thread in ptrace-stop, which resuming consumes. Its registers in the kernel are
/// at every moment ones it can go on with, so that it does should its tracer be killed; only
/// [`super::Remote`] borrows them, and leaves a way back.
#[derive(Debug)]
pub struct StoppedThread {
    tid: Tid,
    registers: Registers,
    /// True if the kernel has other registers than these: see [`super::Remote`].
    borrowed: bool,
    /// A signal whose delivery the stop held up, or 0.
    signal: i32,
    /// Signals that came while it worked for us.
    kept: Vec<libc::siginfo_t>,
    /// True if it still is in the stop that this value stands for.
    held: bool,
    /// True if it has stopped with its group.
    in_group: bool,
    /// True if it has made calls for us, and is at the end of one.
    has_worked: bool,
}

/// Errors by which the kernel marks a system call to be restarted (include/linux/errno.h).
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

impl StoppedThread {
    pub(super) fn at_stop(tid: Tid, signal: i32, in_group: bool) -> Result<Self, TraceeError> {
        let registers = sys::registers(tid).map_err(|e| TraceeError::registers(tid, e))?;
        let mut thread = Self {
            tid,
            registers,
            borrowed: false,
            signal,
            kept: Vec::new(),
            held: true,
            in_group,
            has_worked: false,
        };
        thread.mend_interrupted_call()?;
        Ok(thread)
    }

    /// Has the signal delivered, when it goes on, that its delivery has stopped at while it worked for us.
    pub(super) fn keep(&mut self, info: libc::siginfo_t) {
        self.kept.push(info);
    }

    /// Gives it what was kept back.
    fn send_kept(&mut self) {
        for info in std::mem::take(&mut self.kept) {
            // It fails where the thread has ended.
            let _ = sys::send_again(self.tid, &info);
        }
    }

    /// Some calls (epoll_wait, semop, sigtimedwait and others, signal(7)) return EINTR after any
    /// stop, even where no signal came. At the stop the number of the call still stands in
    /// its place; ERESTARTNOHAND as its result makes the kernel restart it, unless a handler really runs.
    fn mend_interrupted_call(&mut self) -> Result<(), TraceeError> {
        if self.is_in_call()
            && self.registers.result() == -i64::from(libc::EINTR)
            && can_be_made_again(self.registers.system_call())
        {
            self.registers.set_result(-ERESTARTNOHAND);
            self.flush()?;
        }
        Ok(())
    }

    fn is_in_call(&self) -> bool {
        self.registers.system_call() >= 0
    }

    /// True if it sleeps in a call that the kernel would go on with for the rest of its time, and
    /// could not if it came back another way: rt_sigreturn(2) has it end with EINTR. Or has not come to that yet
    /// since the stop before: then it is about to make restart_syscall(2).
    pub(super) fn is_in_timed_call(&self) -> bool {
        let is_to_be_restarted = self.registers.result() == -ERESTART_RESTARTBLOCK;
        self.registers.would_call(libc::SYS_restart_syscall)
            || self.is_in_call() && is_to_be_restarted
    }

    /// The registers with which it would go on by itself: a system call it was taken out of is
    /// made again.
    pub(super) fn restarting(&self) -> Registers {
        let mut registers = self.registers;
        let restarts = [
            ERESTARTSYS,
            ERESTARTNOINTR,
            ERESTARTNOHAND,
            ERESTART_RESTARTBLOCK,
        ];
        if self.is_in_call() && restarts.contains(&-registers.result()) {
            registers.repeat_call();
        }
        registers
    }

    /// Its id.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// True if it sleeps in futex(2).
    pub(super) fn waits_for_lock(&self) -> bool {
        self.registers.system_call() == libc::SYS_futex
    }

    /// Takes it back to a breakpoint that it has come to, and that is gone.
    pub fn step_back(&mut self, breakpoint: Avma) -> Result<(), TraceeError> {
        if self.signal == libc::SIGTRAP && self.pc() == breakpoint.plus(PAST_BREAKPOINT) {
            self.signal = 0;
            self.registers.set_pc(breakpoint.0);
            self.flush()?;
        }
        Ok(())
    }

    /// Moves the thread to the start of removed code if it is inside that code.
    pub fn leave_code(&mut self, code: &std::ops::Range<Avma>) -> Result<(), TraceeError> {
        if code.contains(&self.pc()) {
            self.registers.set_pc(code.start.0);
            self.registers.leave_call();
            self.flush()?;
        }
        Ok(())
    }

    /// True if it stopped on its own way rather than at the delivery of a signal, so that it can
    /// be made to run other code.
    pub fn is_usable(&self) -> bool {
        self.signal == 0
    }

    /// True if nothing is on its way to it either that the kernel sends for what it has done, a fault or a trapped
    /// call: that would come while it works for us, and could not be given to it later as what it is.
    pub(super) fn is_free(&self) -> bool {
        let is_fault = |&(signal, code): &(i32, i32)| code > 0 && FAULTS.contains(&signal);
        self.is_usable() && sys::queued(self.tid).is_ok_and(|q| !q.iter().any(is_fault))
    }

    /// Where it will go on.
    pub fn pc(&self) -> Avma {
        Avma(self.registers.pc())
    }

    /// Its stack pointer.
    pub fn sp(&self) -> Avma {
        Avma(self.registers.sp())
    }

    /// Its thread pointer.
    pub fn thread_pointer(&self) -> Avma {
        Avma(self.registers.thread_pointer())
    }

    /// True if what it asks of the kernel may come back to it by SIGSYS instead: then no call can be made on it.
    pub fn dispatches_calls(&self) -> bool {
        sys::dispatches_calls(self.tid)
    }

    /// The signals it blocks.
    pub fn signal_mask(&self) -> Result<u64, TraceeError> {
        sys::signal_mask(self.tid).map_err(|e| TraceeError::registers(self.tid, e))
    }

    /// Lets it go on elsewhere.
    pub fn set_pc(&mut self, pc: Avma) -> Result<(), TraceeError> {
        self.registers.set_pc(pc.0);
        self.flush()
    }

    /// Lets it go on elsewhere, out of any system call, with another stack pointer.
    pub(super) fn go_to(&mut self, pc: Avma, sp: Avma) -> Result<(), TraceeError> {
        self.registers.set_pc(pc.0);
        self.registers.set_sp(sp.0);
        self.registers.leave_call();
        self.flush()
    }

    /// Reads its registers again, after it has gone on to another stop.
    pub(super) fn renew(&mut self) -> Result<(), TraceeError> {
        let registers = sys::registers(self.tid);
        self.registers = registers.map_err(|e| TraceeError::registers(self.tid, e))?;
        Ok(())
    }

    /// Its registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Gives the thread registers that are not its own.
    pub(super) fn borrow(&mut self, registers: &Registers) -> Result<(), TraceeError> {
        (self.borrowed, self.has_worked) = (true, true);
        sys::set_registers(self.tid, registers).map_err(|e| TraceeError::registers(self.tid, e))
    }

    /// Gives the thread its own registers.
    pub(super) fn flush(&mut self) -> Result<(), TraceeError> {
        sys::set_registers(self.tid, &self.registers)
            .map_err(|e| TraceeError::registers(self.tid, e))?;
        self.borrowed = false;
        Ok(())
    }

    /// Lets it go on and keeps it traced; false where it has ended.
    pub(super) fn go_on(mut self) -> Result<bool, TraceeError> {
        if self.borrowed {
            self.flush()?;
        }
        self.held = false;
        self.send_kept();
        match sys::cont(self.tid, self.signal) {
            Ok(()) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            Err(errno) => Err(TraceeError::Resume(self.tid, errno)),
        }
    }

    /// Lets it go on, with the signal whose delivery was held up. One that has ended is collected.
    pub(super) fn resume(mut self) -> Result<(), TraceeError> {
        self.release()
    }

    /// Leaves it in its stop.
    pub(super) fn leave(mut self) {
        self.held = false;
    }

    fn release(&mut self) -> Result<(), TraceeError> {
        self.held = false;
        let flushed = if self.borrowed {
            self.flush().or_else(|e| e.if_gone::<()>().map(drop))
        } else {
            Ok(())
        };
        self.send_kept();
        match self.let_go() {
            Ok(()) => flushed,
            Err(Errno::ESRCH) => {
                // Nobody else can collect it while we trace it. What it answers does not matter.
                let _ = sys::change(self.tid);
                Ok(())
            }
            Err(errno) => Err(TraceeError::Resume(self.tid, errno)),
        }
    }
}

impl StoppedThread {
    /// Lets it go on, and traces it no longer unless it is followed.
    fn let_go(&self) -> Result<(), Errno> {
        let Some(pid) = followed::process_of(self.tid) else {
            return sys::detach(self.tid, self.signal);
        };
        if self.signal == libc::SIGTRAP && followed::is_at_breakpoint(self.tid, self.pc()) {
            // It comes to the stop again, before an instruction of its own, and then to who follows it: given the signal it would end.
            let info = sys::delivered(self.tid)?;
            sys::send_again(self.tid, &info)?;
            return sys::cont(self.tid, 0);
        }
        if !self.in_group {
            if self.has_worked && self.is_in_call() {
                // The kernel makes an interrupted call again on its way through the handling of signals, by which a thread does not
                // come from the end of a call: unlike the end of tracing, going on does not lead there. One more stop does.
                sys::interrupt(self.tid)?;
            }
            return sys::cont(self.tid, self.signal);
        }
        // It may have worked for us meanwhile, and only this leads it back to where its group stands.
        sys::detach(self.tid, self.signal)?;
        attaching(pid, || sys::seize(self.tid))
    }
}

/// Has a call that a stop has interrupted made again when its thread goes on from there, unless the program handles a signal: so it would
/// be without a tracer, who is told of signals too that the program ignores.
pub fn mend(tid: Tid) {
    // It fails where the thread has ended.
    if let Ok(thread) = StoppedThread::at_stop(tid, 0, false) {
        thread.leave();
    }
}

/// SIGTRAP in a signal mask.
pub const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// Has a thread that has stopped block a signal as well.
pub fn block(tid: Tid, signal: i32) -> Result<(), TraceeError> {
    let failed = |errno| TraceeError::registers(tid, errno);
    let mask = sys::signal_mask(tid).map_err(failed)?;
    sys::set_signal_mask(tid, mask | 1 << (signal - 1)).map_err(failed)
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if self.held {
            // Nothing can be done for a thread that cannot be resumed; it is gone.
            let _ = self.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_go_on_with_the_rest_of_their_time() {
        let is_timed = |number: i64, result: i64| {
            let registers = Registers::at_end_of_call(number, result);
            let thread = StoppedThread {
                tid: Tid(1),
                registers,
                borrowed: false,
                signal: 0,
                kept: Vec::new(),
                held: false,
                in_group: false,
                has_worked: false,
            };
            thread.is_in_timed_call()
        };
        let [nap, again] = [libc::SYS_nanosleep, libc::SYS_restart_syscall];
        assert!(is_timed(nap, -ERESTART_RESTARTBLOCK));
        assert!(is_timed(again, -ERESTART_RESTARTBLOCK));
        // As some stops find it that come soon after another.
        assert!(is_timed(nap, again) && is_timed(again, again) && is_timed(-1, again));
        assert!(!is_timed(libc::SYS_read, -ERESTARTSYS));
        assert!(!is_timed(-1, -ERESTART_RESTARTBLOCK));
    }
}
