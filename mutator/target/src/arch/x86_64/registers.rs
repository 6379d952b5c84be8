//! The general registers of a thread in ptrace-stop.

use super::code::SYSTEM_CALL;

/// The registers in the layout of PTRACE_GETREGS.
///
/// The number of a system call is in rax before the call, and in `orig_rax` during the call. Its
/// result is in rax.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Registers(libc::user_regs_struct);

impl Registers {
    /// Returns registers that are all 0.
    pub fn zeroed() -> Self {
        // SAFETY: plain integers, for which zero is a value.
        Self(unsafe { std::mem::zeroed() })
    }

    /// Returns the registers at the end of a system call.
    #[cfg(test)]
    pub(crate) fn at_end_of_call(number: i64, result: i64) -> Self {
        let mut registers = Self::zeroed();
        registers.0.orig_rax = number as u64;
        registers.set_result(result);
        registers
    }

    /// The value of the program counter.
    pub fn pc(&self) -> u64 {
        self.0.rip
    }

    /// Sets the program counter.
    pub fn set_pc(&mut self, pc: u64) {
        self.0.rip = pc;
    }

    /// The value of the stack pointer.
    pub fn sp(&self) -> u64 {
        self.0.rsp
    }

    /// Sets the stack pointer.
    pub fn set_sp(&mut self, sp: u64) {
        self.0.rsp = sp;
    }

    /// Sets the general register of this number, as encoded in instructions. Does nothing for other
    /// numbers.
    pub fn set_general(&mut self, number: u8, value: u64) {
        let all = &mut self.0;
        let registers = [
            &mut all.rax,
            &mut all.rcx,
            &mut all.rdx,
            &mut all.rbx,
            &mut all.rsp,
            &mut all.rbp,
            &mut all.rsi,
            &mut all.rdi,
            &mut all.r8,
            &mut all.r9,
            &mut all.r10,
            &mut all.r11,
            &mut all.r12,
            &mut all.r13,
            &mut all.r14,
            &mut all.r15,
        ];
        if let Some(register) = registers.into_iter().nth(usize::from(number)) {
            *register = value;
        }
    }

    /// The thread pointer: the FS base.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// The number of the system call that the thread is in. Negative outside system calls.
    pub fn system_call(&self) -> i64 {
        self.0.orig_rax as i64
    }

    /// Marks the thread as outside any system call, so that the kernel restarts none.
    pub fn leave_call(&mut self) {
        self.0.orig_rax = u64::MAX;
    }

    /// The result of the system call at whose end the thread is stopped.
    pub fn result(&self) -> i64 {
        self.0.rax as i64
    }

    /// Replaces the result of the system call.
    pub fn set_result(&mut self, result: i64) {
        self.0.rax = result as u64;
    }

    /// True at the entry of a system call, where the kernel sets the result to -ENOSYS
    /// (arch/x86/entry/entry_64.S).
    pub fn is_at_beginning(&self) -> bool {
        self.result() == -i64::from(libc::ENOSYS)
    }

    /// True if a system call instruction executed next would make call `number`.
    pub fn would_call(&self, number: i64) -> bool {
        self.0.rax == number as u64
    }

    /// Loads a system call. The program counter must be at a system call instruction.
    pub fn prepare_call(&mut self, number: i64, arguments: [u64; 6]) {
        let r = &mut self.0;
        r.rax = number as u64;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = arguments;
        // Outside any call: otherwise the kernel would try to restart one.
        self.leave_call();
    }

    /// Makes the thread repeat the system call at whose end it is stopped.
    pub fn repeat_call(&mut self) {
        self.0.rax = self.0.orig_rax;
        self.0.rip -= SYSTEM_CALL.len() as u64;
    }

    /// All registers except the segment registers, in the order of `struct sigcontext_64`: the
    /// program counter follows the stack pointer.
    pub(super) fn in_signal_frame(&self) -> [u64; 18] {
        let r = &self.0;
        [
            r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags,
        ]
    }

    /// The general registers and the program counter, in the order of perf_event_open(2) samples
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
