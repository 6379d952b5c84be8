//! Code at which a Go function continues after it has recovered from a panic: a call of
//! `runtime.deferreturn`.
//!
//! That call runs the remaining deferred functions, and then the function returns. If deferred
//! functions are called inline, the compiler puts one more such call after the function's code,
//! followed by the return. Only the runtime goes there (cmd/compile/internal/ssagen/ssa.go,
//! `genssa`; runtime/panic.go, `recovery`).

use std::cell::LazyCell;
use std::collections::HashSet;

use super::module::ModuleContext;
use super::sweep::Swept;
use crate::image::Image;
use crate::isa::Insn;

/// The addresses of the calls of `runtime.deferreturn` that are not in `visited`, and that nothing
/// falls through or branches to, ascending. Empty if the bytes may not be instructions.
pub fn tails(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    swept: &Swept,
    visited: &HashSet<u64>,
) -> Vec<u64> {
    let returns = context.deferreturns(image);
    if returns.is_empty() || !swept.complete {
        return Vec::new();
    }
    let is_it = |insn: &Insn| insn.is_direct_call() && returns.contains(&insn.target());
    let stands_apart = |index: usize| {
        let mut before = swept.insns[..index]
            .iter()
            .rev()
            .skip_while(|insn| insn.is_padding());
        before.next().is_some_and(Insn::ends_block)
    };
    let targets = LazyCell::new(|| {
        let jumps = swept.insns.iter().filter(|insn| insn.is_jump());
        let targets = jumps.map(Insn::target);
        targets.collect::<HashSet<u64>>()
    });
    let calls = swept.insns.iter().enumerate();
    let unreached = calls.filter(|(_, insn)| !visited.contains(&insn.at()) && is_it(insn));
    unreached
        .filter(|(index, insn)| stands_apart(*index) && !targets.contains(&insn.at()))
        .map(|(_, insn)| insn.at())
        .collect()
}
