//! Callees that pop their arguments, which the psABI does not specify.

use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{POPPING_RETURN, is_popping_return, restores_frame_pointer};

/// The maximum size of a function that is decoded to check for the instruction, in bytes.
const LARGEST_DECODED: u64 = 64 << 10;

/// True if a function without unwind entries returns by `ret n`.
pub fn has_popping_return(image: &Image<'_>) -> bool {
    let gaps = image.uncovered_calls();
    let mut gaps = gaps.iter().filter_map(|gap| {
        let bytes = image.bytes(gap.start, gap.end.0 - gap.start.0)?;
        Some((gap.start, bytes))
    });
    gaps.any(|(start, bytes)| {
        let mut places = bytes
            .windows(POPPING_RETURN)
            .zip(0u64..)
            .filter(|(code, _)| is_popping_return(code));
        places.any(|(_, offset)| is_return(image, start.plus(offset)))
    })
}

/// True if the instruction at `at` is a return of the function around it. If no function is known,
/// the instruction before must be the end of one: it restores the frame pointer.
fn is_return(image: &Image<'_>, at: Svma) -> bool {
    let function = image.functions().containing(at);
    if let Some(function) = function.filter(|f| f.size <= LARGEST_DECODED) {
        let swept = sweep::linear(image, &[function.start.range(function.size)]);
        let mut insns = swept.into_iter().flat_map(|swept| swept.insns);
        return insns.any(|insn| insn.at() == at.0 && insn.is_return());
    }
    let before = image.bytes(Svma(at.0.wrapping_sub(1)), 1);
    before.is_some_and(|byte| restores_frame_pointer(byte[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Folder;

    /// True if a library of this assembly, without unwind entries, has a return by `ret n`.
    fn has(assembly: &str) -> bool {
        let flags = ["-shared", "-nostdlib"];
        let source = format!(".text\n{assembly}\n.section .note.GNU-stack, \"\", @progbits\n");
        let data = Folder::new().build("cc", &flags, &[("pops.s", &source)]);
        has_popping_return(&Image::parse(&data).expect("an image"))
    }

    #[test]
    fn returns_that_take_arguments_are_found() {
        let named = ".type f, @function\nf: call *%rax\n";
        assert!(has(&format!("{named} ret $16\n.size f, . - f")));
        assert!(!has(&format!("{named} ret\n.size f, . - f")));
        // These bytes are inside an instruction.
        assert!(!has(&format!(
            "{named} mov $0x0010c2c9, %eax\nret\n.size f, . - f"
        )));
        assert!(
            has("push %rbp\ncall *%rax\nleave\nret $16"),
            "without a symbol"
        );
        let described = ".cfi_startproc\nf: call *%rax\nret $16\n.cfi_endproc";
        assert!(!has(described), "the unwind entry tells");
    }
}
