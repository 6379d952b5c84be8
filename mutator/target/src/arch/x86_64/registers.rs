//! The general registers of a thread in ptrace-stop.

use super::code::SYSTEM_CALL;

/// As the kernel gives and takes them (PTRACE_GETREGS).
///
/// A system call's number is in rax before the call, and in `orig_rax` from its beginning to its end. Its result is in
/// rax.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Registers(libc::user_regs_struct);

impl Registers {
    /// All of them 0.
    pub fn zeroed() -> Self {
        // SAFETY: plain integers, for which zero is a value.
        Self(unsafe { std::mem::zeroed() })
    }

    /// At the end of a system call.
    #[cfg(test)]
    pub(crate) fn at_end_of_call(number: i64, result: i64) -> Self {
        let mut registers = Self::zeroed();
        registers.0.orig_rax = number as u64;
        registers.set_result(result);
        registers
    }

    /// The program counter.
    pub fn pc(&self) -> u64 {
        self.0.rip
    }

    /// Has it go on there.
    pub fn set_pc(&mut self, pc: u64) {
        self.0.rip = pc;
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.0.rsp
    }

    /// Gives it another stack pointer.
    pub fn set_sp(&mut self, sp: u64) {
        self.0.rsp = sp;
    }

    /// The thread pointer: the FS base.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// The number of the system call that it is in; negative outside of any.
    pub fn system_call(&self) -> i64 {
        self.0.orig_rax as i64
    }

    /// Is in no system call any more, that the kernel would restart.
    pub fn leave_call(&mut self) {
        self.0.orig_rax = u64::MAX;
    }

    /// The result of the system call that it is at the end of.
    pub fn result(&self) -> i64 {
        self.0.rax as i64
    }

    /// Gives the call another result.
    pub fn set_result(&mut self, result: i64) {
        self.0.rax = result as u64;
    }

    /// True at the beginning of a system call, where the kernel sets its result to -ENOSYS
    /// (arch/x86/entry/entry_64.S).
    pub fn is_at_beginning(&self) -> bool {
        self.result() == -i64::from(libc::ENOSYS)
    }

    /// True if the instruction of a system call makes this one.
    pub fn would_call(&self, number: i64) -> bool {
        self.0.rax == number as u64
    }

    /// Has it make a system call with the instruction that it goes on at.
    pub fn prepare_call(&mut self, number: i64, arguments: [u64; 6]) {
        let r = &mut self.0;
        r.rax = number as u64;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = arguments;
        // No call is under way: else the kernel would try to restart one.
        self.leave_call();
    }

    /// Has it make again the system call that it is at the end of.
    pub fn repeat_call(&mut self) {
        self.0.rax = self.0.orig_rax;
        self.0.rip -= SYSTEM_CALL.len() as u64;
    }

    /// All but segments, in the order of `struct sigcontext_64`: the program counter comes after the stack pointer.
    pub(super) fn in_signal_frame(&self) -> [u64; 18] {
        let r = &self.0;
        [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
        ]
    }

    /// The general registers and the program counter in the order in which samples of perf_event_open(2) have them
    /// (arch/x86/include/uapi/asm/perf_regs.h).
    pub fn as_sampled(&self) -> [u64; 17] {
        let r = &self.0;
        [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10,
            r.r11, r.r12, r.r13, r.r14, r.r15,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_again_with_its_number() {
        let mut registers = Registers::zeroed();
        registers.prepare_call(libc::SYS_futex, [1, 2, 3, 4, 5, 6]);
        assert!(registers.would_call(libc::SYS_futex) && registers.system_call() < 0);
        assert_eq!(registers.in_signal_frame()[..3], [5, 6, 4]);
        let mut registers = Registers::at_end_of_call(libc::SYS_futex, -i64::from(libc::EINTR));
        registers.set_pc(0x1002);
        registers.repeat_call();
        assert_eq!(registers.pc(), 0x1000);
        assert!(registers.would_call(libc::SYS_futex));
    }
}
