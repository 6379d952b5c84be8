//! One thread in ptrace-stop.

use nix::errno::Errno;
use patcher::Avma;

use super::attaching::attaching;
use super::calls::{FAULTS, can_be_made_again};
use super::{TraceeError, followed, sys};
use crate::arch::Registers;
use crate::arch::code::PAST_BREAKPOINT;
use crate::process::Tid;

/// A thread in ptrace-stop. Resuming it consumes this value.
///
/// Its registers in the kernel are always ones that it can continue with, so it survives if its
/// tracer is killed. Only [`super::Remote`] sets others temporarily, with a way back.
#[derive(Debug)]
pub struct StoppedThread {
    tid: Tid,
    registers: Registers,
    /// True if the kernel holds other registers than `registers`: see [`super::Remote`].
    borrowed: bool,
    /// The signal that the thread stopped before the delivery of, or 0.
    signal: i32,
    /// Signals that arrived while it made calls for ipath.
    kept: Vec<libc::siginfo_t>,
    /// True while the thread is in the stop that this value represents.
    held: bool,
    /// True if the thread is in a group stop.
    in_group: bool,
    /// True if the thread has made calls for ipath and is at the exit of one.
    has_worked: bool,
}

/// Results by which the kernel marks a system call to be restarted (include/linux/errno.h).
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

impl StoppedThread {
    /// A thread that has stopped before the delivery of `signal` (0 for none), or in a group stop.
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

    /// Keeps a signal that arrived while the thread made calls for ipath. It is sent again on
    /// resume.
    pub(super) fn keep(&mut self, info: libc::siginfo_t) {
        self.kept.push(info);
    }

    /// Resends the kept signals.
    fn send_kept(&mut self) {
        for info in std::mem::take(&mut self.kept) {
            // Fails only if the thread has ended.
            let _ = sys::send_again(self.tid, &info);
        }
    }

    /// Makes the kernel restart a call that only the stop interrupted.
    ///
    /// Some calls (epoll_wait, semop, sigtimedwait and others, signal(7)) return EINTR after any
    /// stop, even without a signal. At the stop the registers still hold the call's number. With
    /// ERESTARTNOHAND as its result the kernel restarts the call, unless a handler really runs.
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

    /// True if it has stopped in a system call.
    fn is_in_call(&self) -> bool {
        self.registers.system_call() >= 0
    }

    /// True if it sleeps in a call that the kernel would continue for the remaining time. After
    /// rt_sigreturn(2) the call would end with EINTR instead.
    ///
    /// Also true if the thread has yet to make restart_syscall(2) since an earlier stop.
    pub(super) fn is_in_timed_call(&self) -> bool {
        let is_to_be_restarted = self.registers.result() == -ERESTART_RESTARTBLOCK;
        self.registers.would_call(libc::SYS_restart_syscall)
            || self.is_in_call() && is_to_be_restarted
    }

    /// The registers with which the thread would continue on its own: an interrupted system call is
    /// repeated.
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

    /// The thread's id.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// True if the thread sleeps in futex(2).
    pub(super) fn waits_for_lock(&self) -> bool {
        self.registers.system_call() == libc::SYS_futex
    }

    /// Moves the thread back to a removed breakpoint that it has just hit, and drops the SIGTRAP.
    /// Does nothing if it has not hit it.
    ///
    /// # Errors
    /// The registers cannot be set, or the thread has ended.
    pub fn step_back(&mut self, breakpoint: Avma) -> Result<(), TraceeError> {
        if self.signal == libc::SIGTRAP && self.pc() == breakpoint.plus(PAST_BREAKPOINT) {
            self.signal = 0;
            self.registers.set_pc(breakpoint.0);
            self.flush()?;
        }
        Ok(())
    }

    /// Moves the thread to the start of removed code if it is inside that code.
    ///
    /// # Errors
    /// The registers cannot be set, or the thread has ended.
    pub fn leave_code(&mut self, code: &std::ops::Range<Avma>) -> Result<(), TraceeError> {
        if code.contains(&self.pc()) {
            self.registers.set_pc(code.start.0);
            self.registers.leave_call();
            self.flush()?;
        }
        Ok(())
    }

    /// True if the thread did not stop before a signal's delivery, so that it can be made to run
    /// other code.
    pub fn is_usable(&self) -> bool {
        self.signal == 0
    }

    /// True if it is usable and no fault or trapped call is pending for it. Such a signal would
    /// arrive while it makes calls for ipath, and could not be resent with its original meaning.
    pub(super) fn is_free(&self) -> bool {
        let is_fault = |&(signal, code): &(i32, i32)| code > 0 && FAULTS.contains(&signal);
        self.is_usable() && sys::queued(self.tid).is_ok_and(|q| !q.iter().any(is_fault))
    }

    /// The thread's program counter.
    pub fn pc(&self) -> Avma {
        Avma(self.registers.pc())
    }

    /// The thread's stack pointer.
    pub fn sp(&self) -> Avma {
        Avma(self.registers.sp())
    }

    /// The thread pointer: the base of the thread's local storage.
    pub fn thread_pointer(&self) -> Avma {
        Avma(self.registers.thread_pointer())
    }

    /// True if the thread's system calls may be turned into SIGSYS. No call can then be made on it.
    pub fn dispatches_calls(&self) -> bool {
        sys::dispatches_calls(self.tid)
    }

    /// The mask of the signals that the thread blocks (bit `n - 1` for signal `n`).
    ///
    /// # Errors
    /// The mask cannot be read, or the thread has ended.
    pub fn signal_mask(&self) -> Result<u64, TraceeError> {
        sys::signal_mask(self.tid).map_err(|e| TraceeError::registers(self.tid, e))
    }

    /// Sets the program counter.
    ///
    /// # Errors
    /// The registers cannot be set, or the thread has ended.
    pub fn set_pc(&mut self, pc: Avma) -> Result<(), TraceeError> {
        self.registers.set_pc(pc.0);
        self.flush()
    }

    /// Continues at `pc`, with this value in the general register of this number, and with the
    /// stack pointer `sp`. The thread is in no system call.
    ///
    /// # Errors
    /// The registers cannot be set, or the thread has ended.
    pub fn leave_copy(
        &mut self,
        pc: Avma,
        (register, value): (u8, u64),
        sp: Avma,
    ) -> Result<(), TraceeError> {
        self.registers.set_general(register, value);
        self.registers.set_sp(sp.0);
        self.set_pc(pc)
    }

    /// Sets the program counter and the stack pointer, outside any system call.
    pub(super) fn go_to(&mut self, pc: Avma, sp: Avma) -> Result<(), TraceeError> {
        self.registers.set_pc(pc.0);
        self.registers.set_sp(sp.0);
        self.registers.leave_call();
        self.flush()
    }

    /// Rereads the registers after the thread has moved to another stop.
    pub(super) fn renew(&mut self) -> Result<(), TraceeError> {
        let registers = sys::registers(self.tid);
        self.registers = registers.map_err(|e| TraceeError::registers(self.tid, e))?;
        Ok(())
    }

    /// The thread's registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Temporarily sets other registers, until [`Self::flush`].
    pub(super) fn borrow(&mut self, registers: &Registers) -> Result<(), TraceeError> {
        (self.borrowed, self.has_worked) = (true, true);
        sys::set_registers(self.tid, registers).map_err(|e| TraceeError::registers(self.tid, e))
    }

    /// Writes the thread's own registers back.
    pub(super) fn flush(&mut self) -> Result<(), TraceeError> {
        sys::set_registers(self.tid, &self.registers)
            .map_err(|e| TraceeError::registers(self.tid, e))?;
        self.borrowed = false;
        Ok(())
    }

    /// Resumes the thread and keeps it traced. Returns false if it has ended.
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

    /// Resumes the thread with the signal that was about to be delivered, untraced unless it is
    /// followed. Collects it if it has ended.
    pub(super) fn resume(mut self) -> Result<(), TraceeError> {
        self.release()
    }

    /// Leaves the thread in its stop.
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
                // Only its tracer can collect it. The result does not matter.
                let _ = sys::change(self.tid);
                Ok(())
            }
            Err(errno) => Err(TraceeError::Resume(self.tid, errno)),
        }
    }
}

impl StoppedThread {
    /// Resumes the thread, and detaches it unless it is followed.
    fn let_go(&self) -> Result<(), Errno> {
        let Some(pid) = followed::process_of(self.tid) else {
            return sys::detach(self.tid, self.signal);
        };
        if self.signal == libc::SIGTRAP && followed::is_at_breakpoint(self.tid, self.pc()) {
            // The thread then stops for it again before it executes another instruction, and its
            // follower handles it. Delivered to the program, the signal would end it.
            let info = sys::delivered(self.tid)?;
            sys::send_again(self.tid, &info)?;
            return sys::cont(self.tid, 0);
        }
        if !self.in_group {
            if self.has_worked && self.is_in_call() {
                // The kernel restarts an interrupted call only on its signal handling path. A
                // thread resumed from the exit of a call does not take that path, unlike one that
                // is detached. Another stop makes it take the path.
                sys::interrupt(self.tid)?;
            }
            return sys::cont(self.tid, self.signal);
        }
        // It may have made calls for ipath meanwhile. Only this returns it to the group stop.
        sys::detach(self.tid, self.signal)?;
        attaching(pid, || sys::seize(self.tid))
    }
}

/// Makes an interrupted call restart when its thread resumes, unless the program handles a signal.
/// It would restart without a tracer: a tracer also stops the thread for signals that the program
/// ignores.
pub fn mend(tid: Tid) {
    // Fails only if the thread has ended.
    if let Ok(thread) = StoppedThread::at_stop(tid, 0, false) {
        thread.leave();
    }
}

/// The bit of SIGTRAP in a signal mask.
pub const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// Adds a signal to the mask of a stopped thread.
///
/// # Errors
/// The mask cannot be read or set, or the thread has ended.
pub fn block(tid: Tid, signal: i32) -> Result<(), TraceeError> {
    let failed = |errno| TraceeError::registers(tid, errno);
    let mask = sys::signal_mask(tid).map_err(failed)?;
    sys::set_signal_mask(tid, mask | 1 << (signal - 1)).map_err(failed)
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if self.held {
            // If this fails, the thread is gone.
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
        // The state seen at some stops shortly after another stop.
        assert!(is_timed(nap, again) && is_timed(again, again) && is_timed(-1, again));
        assert!(!is_timed(libc::SYS_read, -ERESTARTSYS));
        assert!(!is_timed(-1, -ERESTART_RESTARTBLOCK));
    }
}
