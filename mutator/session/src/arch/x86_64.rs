//! x86-64.

pub mod fence;
pub mod forking;
pub mod loader_call;
pub mod signal_frame;
pub mod stack_switch;

/// True if programs may read the thread pointer, which is the FS base, by an instruction:
/// AT_HWCAP2, which is `capabilities`, has a bit for rdfsbase.
pub fn is_thread_pointer_readable(capabilities: u64) -> bool {
    const FSGSBASE: u64 = 2;
    capabilities & FSGSBASE != 0
}
