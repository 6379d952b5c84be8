//! Calls that never return.

use std::collections::HashMap;

use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext};
use crate::image::Image;
use crate::isa::{Control, Insn};

/// Functions of other modules that never return. The names are those of C, C++ and POSIX, of the
/// Itanium C++ ABI, and of the checks that GCC inserts.
const NAMES: [&str; 29] = [
    "_Exit",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "_ZSt16__throw_bad_castv",
    "_ZSt17__throw_bad_allocv",
    "_ZSt19__throw_logic_errorPKc",
    "_ZSt20__throw_length_errorPKc",
    "_ZSt20__throw_out_of_rangePKc",
    "_ZSt24__throw_out_of_range_fmtPKcz",
    "_ZSt25__throw_bad_function_callv",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_call_unexpected",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__longjmp_chk",
    "__stack_chk_fail",
    "_exit",
    "_longjmp",
    "abort",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
];

/// A cache of the functions of one module that never return.
#[derive(Debug, Default)]
pub struct NeverReturning {
    /// For each start of a function, true if it never returns.
    known: HashMap<u64, bool>,
}

impl NeverReturning {
    /// True if `call` certainly never returns to the instruction after it. It may throw.
    pub fn is_call(&mut self, image: &Image<'_>, context: &ModuleContext<'_>, call: &Insn) -> bool {
        let imported = |name: Option<&str>| {
            let name = name.and_then(|name| name.split('@').next());
            name.is_some_and(|name| NAMES.contains(&name))
        };
        match call.control() {
            Control::Call if call.is_direct_call() => {
                let callee = Svma(call.target());
                match image.plt_name(callee) {
                    Some(name) => imported(Some(name)),
                    None => self.is_function(image, context, callee),
                }
            }
            Control::IndirectCall => {
                let slot = call.named_word();
                imported(slot.and_then(|slot| image.imported_at(Svma(slot))))
            }
            _ => false,
        }
    }

    /// True if the function that starts at `start` never returns.
    fn is_function(&mut self, image: &Image<'_>, context: &ModuleContext<'_>, start: Svma) -> bool {
        if let Some(&known) = self.known.get(&start.0) {
            return known;
        }
        let function = image.functions().function_at(start);
        let function = function.filter(|function| function.range.start == start);
        let flow = function.and_then(|function| Flow::of(image, context, &function));
        let never = flow.is_some_and(|flow| has_no_exit(&flow));
        self.known.insert(start.0, never);
        never
    }
}

/// True if no path leads to an exit, even if all calls return.
///
/// Code that jumps to a return address is no exit for [`Flow::leaves`], so a function with any
/// other indirect jump than a switch may return. Go's runtime continues functions at places that
/// their code does not show.
fn has_no_exit(flow: &Flow) -> bool {
    let mut live = flow.insns.iter().filter(|insn| flow.is_live(insn.at()));
    let stays = |insn: &Insn| {
        let is_indirect = insn.control() == Control::IndirectJump;
        !insn.is_return() && (!is_indirect || flow.is_switch(insn))
    };
    flow.doubt.is_none() && flow.leaves.is_empty() && !flow.is_go() && live.all(stays)
}
