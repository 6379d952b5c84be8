//! Code that surrounds a function which begins inside it.
//!
//! Several entries into one body are legitimate: assembly with local entry points, `f` and
//! `__f_nocancel`, Fortran's ENTRY. Their starts are instructions of the body, and the body's jump
//! tables may lead into them. But a damaged or generated symbol table can name an address inside an
//! instruction. Overwriting anything there destroys the body.

use std::ops::Range;

use super::refuse::RefuseReason;
use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext};
use crate::function::Function;
use crate::image::Image;

/// The maximum size of a surrounding body that is analyzed, in bytes.
const LARGEST_BODY: u64 = 2 << 20;

/// The maximum size of the padding before a function, in bytes.
const MOST_PADDING: u64 = 15;

/// Adds the arrivals from the surrounding bodies to `flow`. Refuses a function that starts inside
/// an instruction of one of them, or in the padding before one.
pub fn consider(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    flow: &mut Flow,
) -> Result<(), RefuseReason> {
    if is_in_padding(image, &flow.ranges[0]) {
        return Err(RefuseReason::InsideInstruction);
    }
    for body in bodies(image, flow.ranges[0].start) {
        let Some(body) = Flow::of(image, context, &Function::nameless(body)) else {
            continue;
        };
        if is_inside_instruction(&body, flow.ranges[0].start) {
            return Err(RefuseReason::InsideInstruction);
        }
        flow.add_arrivals_of(&body);
    }
    Ok(())
}

/// True if the function begins where no unwind entry applies, and an unwind entry begins in it soon
/// after. Callers may call the function there.
fn is_in_padding(image: &Image<'_>, function: &Range<Svma>) -> bool {
    let start = function.start;
    let len = function.end.0.saturating_sub(start.0);
    let begins = |distance: u64| {
        let at = start.plus(distance);
        image.fde(at).is_some_and(|fde| fde.range.start == at)
    };
    image.fde(start).is_none() && (1..len.min(MOST_PADDING + 1)).any(begins)
}

/// The code ranges that contain `start` and begin before it, from the unwind entries and symbols.
/// Empty if an unwind entry begins at `start`.
fn bodies(image: &Image<'_>, start: Svma) -> Vec<Range<Svma>> {
    let described = image.fde(start).map(|fde| fde.range);
    if described.as_ref().is_some_and(|range| range.start == start) {
        return Vec::new();
    }
    let mut bodies = image.functions().reaching(start);
    bodies.extend(described);
    bodies.retain(|range| range.end.0 - range.start.0 <= LARGEST_BODY);
    bodies.sort_by_key(|range| (range.start, range.end));
    bodies.dedup();
    bodies
}

/// True if an instruction of `body` begins before `at` and ends after it.
fn is_inside_instruction(body: &Flow, at: Svma) -> bool {
    let after = body.insns.partition_point(|insn| insn.at() < at.0);
    let starts = body.index_of(at.0).is_some();
    let before = body.insns[..after].last();
    !starts && before.is_some_and(|insn| insn.end() > at.0 && body.is_certain(insn.at()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Folder;
    use crate::plan::{Effects, Tactic, plan};

    const WANT: Effects = Effects {
        entry: true,
        exits: true,
    };

    /// The outcome for the entry of function `name` in a library made from `assembly`.
    fn outcome(assembly: &str, name: &str) -> Result<Tactic, RefuseReason> {
        let flags = ["-shared", "-nostdlib"];
        let source = format!(".text\n{assembly}\n.section .note.GNU-stack, \"\", @progbits\n");
        let data = Folder::new().build("cc", &flags, &[("names.s", &source)]);
        let image = Image::parse(&data).expect("an image");
        let context = ModuleContext::new(&image);
        let found = image.functions().with_name(|n| n == name);
        let [function] = &found[..] else {
            panic!("one function of the name {name}");
        };
        plan(&image, &context, function, WANT).entry.outcome
    }

    /// Assembly of `body` between `begin` and `end`, with the function `lie` two bytes into the
    /// body's first instruction.
    fn lying(begin: &str, end: &str, size: &str) -> String {
        format!(
            ".type body, @function
            .type lie, @function
            body: {begin}
            mov $0x11223344, %eax
            .set lie, . - 3
            add $0x55667788, %eax
            lea 0x12345678(%rax), %rax
            ret
            {end}
            {size}
            .size lie, 24"
        )
    }

    #[test]
    fn a_start_between_the_instructions_of_another_function_is_refused() {
        let inside = Err(RefuseReason::InsideInstruction);
        let sized = ".size body, . - body";
        let described = lying(".cfi_startproc", ".cfi_endproc", sized);
        assert_eq!(outcome(&described, "lie"), inside, "by its unwind entry");
        assert_eq!(
            outcome(&described, "body"),
            Err(RefuseReason::OverlapsFunction)
        );
        assert_eq!(outcome(&lying("", "", sized), "lie"), inside, "by its size");
        assert_eq!(
            outcome(&lying("", "", ""), "lie"),
            inside,
            "a label of no size"
        );
        let unnamed = lying(".cfi_startproc", ".cfi_endproc", "").replace("body", ".Lbody");
        assert_eq!(
            outcome(&unnamed.replace(".type .Lbody, @function", ""), "lie"),
            inside
        );
    }

    /// Calls lead to the real start, which would be in the middle of the window.
    #[test]
    fn starts_in_the_padding_before_a_function_are_refused() {
        let body = |padding: u32| {
            format!(
                ".type lie, @function
                .balign 16
                ret
                .skip 12
                lie: .skip {padding}
                .Lbody: .cfi_startproc
                mov $0x11223344, %eax
                add $0x55667788, %eax
                ret
                .cfi_endproc
                .size lie, . - lie
                call .Lbody"
            )
        };
        for padding in [1, 3, 4, 15] {
            let refused = Err(RefuseReason::InsideInstruction);
            assert_eq!(outcome(&body(padding), "lie"), refused, "{padding} bytes");
        }
        assert_eq!(outcome(&body(0), "lie"), Ok(Tactic::Window));
    }

    #[test]
    fn entries_into_one_body_are_functions() {
        let entries = "
            .type body, @function
            .type inner, @function
            .type other, @function
            body: .cfi_startproc
            mov $0x11223344, %eax
            inner: add $0x55667788, %eax
            other: lea 0x12345678(%rax), %rax
            ret
            .cfi_endproc
            .size body, . - body
            .size inner, . - inner
            .size other, . - other";
        for name in ["body", "inner", "other"] {
            assert_eq!(outcome(entries, name), Ok(Tactic::Window), "{name}");
        }
        assert_eq!(
            outcome(
                &entries
                    .replace(".cfi_startproc", "")
                    .replace(".cfi_endproc", ""),
                "inner"
            ),
            Ok(Tactic::Window)
        );
    }

    /// The jump in the body precedes the inner function, whose own code does not reference the
    /// table.
    #[test]
    fn a_jump_table_of_the_body_leads_into_its_entries() {
        let switch = |case: &str| {
            format!(
                ".type body, @function
                .type inner, @function
                body: .cfi_startproc
                cmp $1, %edi
                ja 1f
                lea table(%rip), %rdx
                movslq (%rdx, %rdi, 4), %rax
                add %rdx, %rax
                jmp *%rax
                inner: inc %ecx
                {case}
                inc %esi
                inc %esi
                inc %esi
                1: ret
                .cfi_endproc
                .size body, . - body
                .size inner, . - inner
                .section .rodata
                table: .long case - table, case - table
                .text"
            )
        };
        let crowded = outcome(&switch("case: inc %edx"), "inner");
        assert_ne!(crowded, Ok(Tactic::Window), "control arrives in the middle");
        assert_eq!(
            outcome(&switch("nop; nop; nop; nop\ncase: inc %edx"), "inner"),
            Ok(Tactic::Window)
        );
    }
}
