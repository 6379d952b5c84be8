//! Saved program counters on stacks: a handler that runs on top of interrupted code has left the
//! place in a signal frame, where execution goes on when the handler returns.

use std::ops::Range;

use patcher::Avma;

use crate::process::{Mapping, Memory};

/// `mov rax, 15; syscall`: what a signal frame's return address points to (rt_sigreturn, number
/// 15); libc's restorer and everyone else's.
const RESTORER: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The same in the short form that musl and Go use: `mov eax, 15; syscall`.
const SHORT_RESTORER: [u8; 7] = [0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Bytes from a signal frame's return address to the interrupted rip: the return address, then
/// `uc_flags`, `uc_link`, `uc_stack` and sixteen registers (arch/x86/include/uapi/asm/ucontext.h
/// and sigcontext.h).
const RIP: usize = 8 + 8 + 8 + 24 + 16 * 8;

/// Program counters in the signal frames on the stack that holds `sp`, from there outwards.
pub(super) fn interrupted(maps: &[Mapping], memory: &Memory, sp: Avma) -> Vec<Avma> {
    let Some(stack) = maps.iter().find(|m| m.contains(sp)) else {
        return Vec::new();
    };
    let from = sp.0 & !7;
    let Ok(bytes) = memory.read_vec(Avma(from), (stack.range.end.0 - from) as usize) else {
        return Vec::new();
    };
    let word = |at: usize| {
        bytes
            .get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map(u64::from_le_bytes)
    };
    let code: Vec<&Range<Avma>> = maps
        .iter()
        .filter(|m| m.execute)
        .map(|m| &m.range)
        .collect();
    let is_code = |at: u64| {
        let after = code.partition_point(|r| r.start.0 <= at);
        after > 0 && at < code[after - 1].end.0
    };
    let mut found = Vec::new();
    let mut restorer = None;
    for at in (0..bytes.len()).step_by(8) {
        let Some(rip) = word(at + RIP) else { break };
        let Some(address) = word(at).filter(|&a| is_code(a)) else {
            continue;
        };
        if restorer != Some(address) {
            if !is_restorer(memory, Avma(address)) {
                continue;
            }
            restorer = Some(address);
        }
        found.push(Avma(rip));
    }
    found
}

fn is_restorer(memory: &Memory, at: Avma) -> bool {
    let mut code = [0; RESTORER.len()];
    // Ends at the mapping's end at the worst, and then is none.
    memory.read(at, &mut code).is_ok() && (code == RESTORER || code.starts_with(&SHORT_RESTORER))
}
