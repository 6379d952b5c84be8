//! The return addresses of the outermost functions of Boost.Context's fibers, which have no caller.
//!
//! `make_fcontext` writes two of its own code addresses to a new stack
//! (boost/libs/context/src/asm/make_x86_64_sysv_elf_gas.S). The first switch to that stack
//! continues at one of them, which jumps to the fiber's function. The other is that function's
//! return address, where the program ends. It has no unwind entry.

use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Control, Insn};

const MAKER: &str = "make_fcontext";

/// The return addresses of the fibers' functions.
pub fn fiber_roots(image: &Image<'_>) -> Vec<Svma> {
    let makers = image.functions().with_name(|name| name == MAKER);
    let swept = makers
        .into_iter()
        .filter_map(|maker| sweep::linear(image, &[maker.range]));
    swept.flat_map(|swept| roots(&swept.insns)).collect()
}

/// The addresses that `insns` compute and whose code ends the program by a call.
fn roots(insns: &[Insn]) -> Vec<Svma> {
    let formed = insns.iter().filter_map(Insn::formed_address);
    formed
        .filter(|&at| ends_program(insns, at))
        .map(Svma)
        .collect()
}

/// True if the code at `at` makes a call that cannot return.
fn ends_program(insns: &[Insn], at: u64) -> bool {
    /// The maximum number of instructions to examine before the call, more than a call of `_exit`
    /// needs.
    const MOST_BEFORE_CALL: usize = 4;
    let Ok(first) = insns.binary_search_by_key(&at, Insn::at) else {
        return false;
    };
    let rest = insns[first..].iter().take(MOST_BEFORE_CALL);
    let mut after_call = rest.skip_while(|insn| insn.control() == Control::Next);
    let calls = after_call
        .next()
        .is_some_and(|insn| insn.control() == Control::Call);
    calls && after_call.next().is_some_and(Insn::is_halt)
}

#[cfg(test)]
mod tests {
    use iced_x86::code_asm::{CodeAssembler, *};

    use super::*;
    use crate::isa::decode;

    #[test]
    fn the_end_is_told_from_the_beginning() {
        let mut code = CodeAssembler::new(64).expect("64 bits");
        let (mut begin, mut end, mut exit) = (
            code.create_label(),
            code.create_label(),
            code.create_label(),
        );
        code.lea(rcx, ptr(begin)).unwrap();
        code.mov(qword_ptr(rax + 0x38), rcx).unwrap();
        code.lea(rcx, ptr(end)).unwrap();
        code.mov(qword_ptr(rax + 0x30), rcx).unwrap();
        code.ret().unwrap();
        code.set_label(&mut begin).unwrap();
        code.push(rbp).unwrap();
        code.jmp(rbx).unwrap();
        code.set_label(&mut end).unwrap();
        code.xor(rdi, rdi).unwrap();
        code.call(exit).unwrap();
        code.hlt().unwrap();
        code.set_label(&mut exit).unwrap();
        code.ret().unwrap();
        let bytes = code.assemble(0x1000).expect("encodable");
        let insns: Vec<Insn> = decode(&bytes, Svma(0x1000)).collect();
        assert_eq!(roots(&insns), [Svma(insns[7].at())]);
    }
}
