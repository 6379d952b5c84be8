//! Functions of the C library that create children, or that execute another program. Children of
//! `vfork` and of the function that `posix_spawn` calls share the process's memory; those of `fork`
//! have a copy of it.
//!
//! Some have no name, so they are found by their code: a system call of `vfork`, `clone`, `clone3`,
//! `fork` or `execve`. A false match costs the next call one system call.

use std::collections::BTreeMap;

use patcher::function::Function;
use patcher::image::Image;

use crate::arch::forking::{of_musl, system_calls};
use crate::segment::Witness;

/// The functions with which Go's standard library starts programs (syscall/asm_linux_amd64.s). The
/// second name applies since Go 1.17.
pub(super) const OF_GO: [&str; 2] = ["syscall.rawVforkSyscall", "syscall.rawVforkSyscall.abi0"];

/// The functions of an image that create children or execute programs.
pub(super) fn forking(image: &Image<'_>) -> Vec<(Function, Witness)> {
    let mut found = BTreeMap::new();
    for segment in image.segments().iter().filter(|s| s.execute) {
        let text = image.bytes(
            segment.range.start,
            segment.range.end.0 - segment.range.start.0,
        );
        for (at, witness) in text.into_iter().flat_map(system_calls) {
            let at = segment.range.start.plus(at as u64);
            if let Some(function) = image.functions().function_at(at) {
                found
                    .entry(function.range.start)
                    .or_insert((function, witness));
            }
        }
        for (range, witness) in text.into_iter().flat_map(of_musl) {
            let start = segment.range.start.plus(range.start as u64);
            let function = Function::nameless(start..start.plus(range.len() as u64));
            if image.functions().function_at(start).is_none() {
                found.insert(start, (function, witness));
            }
        }
    }
    found.into_values().collect()
}
