//! Liveness in functions in assembly, and in random ones.

use std::fmt::Write;

use proptest::prelude::*;

use super::super::never_returning::NeverReturning;
use super::super::random::{any_graph, graph, reducible_graph};
use super::*;
use crate::flow::ModuleContext;
use crate::image::Image;
use crate::oracle::Folder;

/// The functions with these bodies.
fn analyzed(bodies: &[String]) -> Vec<(Flow, Graph)> {
    let mut source = ".section .note.GNU-stack, \"\", @progbits\n.text\n".to_owned();
    for (number, body) in bodies.iter().enumerate() {
        let name = format!("f{number:04}");
        writeln!(source, ".globl {name}\n.type {name}, @function\n{name}:").unwrap();
        writeln!(source, "{body}\n.size {name}, . - {name}").unwrap();
    }
    let flags = ["-shared", "-nostdlib"];
    let data = Folder::new().build("cc", &flags, &[("f.s", &source)]);
    let image = Image::parse(&data).expect("an image");
    let context = ModuleContext::new(&image);
    let mut calls = NeverReturning::default();
    let names = (0..bodies.len()).map(|number| format!("f{number:04}"));
    let functions = names.map(|name| {
        let found = image.functions().with_name(|other| other == name);
        let flow = Flow::of(&image, &context, &found[0]).expect("bytes");
        let graph = Graph::of(&image, &context, &flow, &mut calls);
        let graph = graph.unwrap_or_else(|reason| panic!("{name}: {reason}"));
        (flow, graph)
    });
    functions.collect()
}

/// The names of registers by their numbers: of 64, 32 and 8 bits.
const NAMES: [[&str; 3]; 16] = [
    ["rax", "eax", "al"],
    ["rcx", "ecx", "cl"],
    ["rdx", "edx", "dl"],
    ["rbx", "ebx", "bl"],
    ["rsp", "esp", "spl"],
    ["rbp", "ebp", "bpl"],
    ["rsi", "esi", "sil"],
    ["rdi", "edi", "dil"],
    ["r8", "r8d", "r8b"],
    ["r9", "r9d", "r9b"],
    ["r10", "r10d", "r10b"],
    ["r11", "r11d", "r11b"],
    ["r12", "r12d", "r12b"],
    ["r13", "r13d", "r13b"],
    ["r14", "r14d", "r14b"],
    ["r15", "r15d", "r15b"],
];

fn shown(free: Free) -> String {
    let registers = free
        .registers
        .iter()
        .map(|register| NAMES[register.number()][0]);
    let flags = free.flags.then_some("flags");
    registers.chain(flags).collect::<Vec<_>>().join(" ")
}

/// Checks what is free before the first instruction of functions.
fn check(cases: &[(&str, &str)]) {
    let bodies: Vec<String> = cases
        .iter()
        .map(|case| format!("{}\nret", case.0))
        .collect();
    for ((flow, graph), (body, expected)) in analyzed(&bodies).iter().zip(cases) {
        let liveness = Liveness::of(flow, graph);
        let free = liveness.free_before(flow, graph, flow.ranges[0].start);
        assert_eq!(shown(free), *expected, "{body}");
    }
}

#[test]
fn only_whole_writes_end_a_life() {
    check(&[
        ("nop", ""),
        ("mov $1, %eax", "rax"),
        ("movabs $1, %rcx", "rcx"),
        ("mov $1, %ax", ""),
        ("mov $1, %al", ""),
        ("mov $1, %ah", ""),
        ("mov $1, %al\n mov $1, %eax", "rax"),
        ("mov %al, %dl\n mov $1, %eax", ""),
        ("mov %ah, %dl\n mov $1, %eax", ""),
        ("cmove %ecx, %eax", ""),
        ("movzbl (%rdi), %edi", ""),
        ("lea 1(%rsi), %esi", ""),
        ("lea 1(%rdi, %rdx), %rsi", "rsi"),
        ("mov %edi, %edi", ""),
        ("xchg %rax, %rcx", ""),
        ("cqto", "rdx"),
        ("mul %rdi", "rdx flags"),
        ("rdtsc", "rax rdx"),
        ("cpuid", "rdx rbx"),
        ("pop %rbp", "rbp"),
        ("leave", ""),
        ("mov %rdi, %rsp", ""),
        ("nopw (%rax, %rax)\n mov $1, %eax", "rax"),
        ("kmovd %k1, %eax", "rax"),
        // Do not write the register in some cases.
        ("bsf %edi, %eax", "flags"),
        ("lar %edi, %eax", ""),
        ("rdsspq %rax", ""),
        ("tzcnt %edi, %eax", "rax flags"),
        ("cmpxchg %ecx, (%rdi)", "flags"),
        ("pcmpestri $0, %xmm0, %xmm1", "rcx flags"),
        // Do not depend on the register that they read.
        ("xor %eax, %eax", "rax flags"),
        ("sub %rdx, %rdx", "rdx flags"),
        ("xor %ax, %ax", "flags"),
        ("xor %ecx, %eax", "flags"),
        ("sbb %eax, %eax", ""),
    ]);
}

#[test]
fn flags_are_free_if_all_are_written() {
    check(&[
        ("test %edi, %edi", "flags"),
        ("inc %edi", ""),
        ("inc %edi\n clc", "flags"),
        ("clc\n inc %edi", "flags"),
        ("cmc\n add %ecx, %edi", ""),
        ("adc %ecx, %edi", ""),
        ("setc %dil\n test %edi, %edi", ""),
        ("seto %dil\n test %edi, %edi", ""),
        ("setp %dil\n test %edi, %edi", ""),
        ("sahf", ""),
        ("lahf\n test %edi, %edi", ""),
        ("pushf\n popf", ""),
        ("push %rdi\n popf", "flags"),
        ("shl $3, %edi", "flags"),
        ("shl %edi", "flags"),
        ("shl $32, %edi", ""),
        ("shl $32, %rdi", "flags"),
        ("shl %cl, %edi", ""),
        ("sar %cl, %edi", ""),
        ("shrd %cl, %edi, %esi", ""),
        ("shl %cl, %edi\n test %edi, %edi", "flags"),
        ("rol $3, %edi", ""),
        ("rol %cl, %edi\n", ""),
        ("rcl $3, %edi\n test %edi, %edi", ""),
        ("shlx %ecx, %esi, %esi", ""),
        ("cmpsb", "flags"),
        ("repe cmpsb", ""),
        ("repne scasb", ""),
        ("repe cmpsb\n test %edi, %edi", "flags"),
        ("ucomisd %xmm0, %xmm1", "flags"),
    ]);
}

#[test]
fn all_is_live_where_others_may_read_it() {
    check(&[
        ("call *%rdi\n xor %eax, %eax", ""),
        ("call f0000\n xor %eax, %eax", ""),
        ("xor %eax, %eax\n call *%rdi", "rax flags"),
        ("syscall\n xor %eax, %eax", ""),
        ("int $0x80\n xor %eax, %eax", ""),
        ("int3\n xor %eax, %eax", ""),
        ("xbegin 1f\n 1: xor %eax, %eax", ""),
        ("xor %eax, %eax\n jmp f0000", "rax flags"),
        ("xor %eax, %eax\n jmp *%rdi", "rax flags"),
        ("xor %eax, %eax\n ud2", "rax flags"),
        ("ud2\n xor %eax, %eax", ""),
    ]);
}

#[test]
fn all_paths_count() {
    check(&[
        ("je 1f\n mov $1, %eax\n 1: mov $2, %eax", "rax"),
        ("je 1f\n mov $1, %eax\n 1: mov $2, %ecx", "rcx"),
        ("je 1f\n mov %eax, %ecx\n 1: mov $2, %eax", ""),
        ("je f0000\n mov $1, %eax", ""),
        (
            "1: mov $2, %eax\n dec %edi\n jne 1b\n mov $1, %ecx",
            "rax rcx",
        ),
        (
            "1: mov %ecx, %edx\n mov $2, %eax\n dec %edi\n jne 1b\n mov $1, %ecx",
            "rax rdx",
        ),
        (
            "1: jrcxz 2f\n test %edi, %edi\n 2: test %edi, %edi",
            "flags",
        ),
        // An endless loop.
        (
            "1: inc %edi\n jmp 1b",
            "rax rcx rdx rbx rbp rsi r8 r9 r10 r11 r12 r13 r14 r15 flags",
        ),
    ]);
}

/// The jump skips only the prefix, so it leads to an instruction that reads the register.
#[test]
fn a_skipped_prefix_reads_everything() {
    check(&[
        (
            "test %edi, %edi\n je 1f\n mov $1, %eax\n .byte 0xf0\n 1: cmpxchg %ecx, (%rdi)
            mov $2, %eax",
            "flags",
        ),
        (
            "test %edi, %edi\n je 1f\n mov $1, %eax\n cmpxchg %ecx, (%rdi)\n 1: mov $2, %eax",
            "rax flags",
        ),
    ]);
}

#[test]
fn nothing_is_free_in_doubtful_code_and_outside() {
    let [(flow, graph)] = &analyzed(&["mov $1, %eax\n mov $1, %ecx\n ret".to_owned()])[..] else {
        panic!("one function");
    };
    let liveness = Liveness::of(flow, graph);
    let (start, end) = (flow.ranges[0].start, flow.ranges[0].end);
    let free = |at| shown(liveness.free_before(flow, graph, at));
    assert_eq!(free(start), "rax rcx");
    assert_eq!(free(start.plus(1)), "", "the middle of an instruction");
    assert_eq!(free(start.plus(5)), "rcx");
    assert_eq!(free(end), "");
    let mut doubtful = graph.blocks()[0].clone();
    doubtful.is_certain = false;
    let uses = uses_of(&flow.insns, &doubtful, &mut Facts::default());
    assert_eq!(uses, Uses::UNKNOWN);
}

/// True if a path from the end of `from` leads to a read of the value `bit` or to the virtual exit,
/// before the value is overwritten.
fn is_read_after(graph: &Graph, uses: &[Uses], from: BlockId, bit: u32) -> bool {
    let mut seen = vec![false; uses.len()];
    let mut work = vec![from];
    while let Some(id) = work.pop() {
        for &edge in graph.leaving(Node::Block(id)) {
            let Some(to) = graph.edge(edge).to.block() else {
                return true;
            };
            let of = uses[to.index()];
            if of.read.bits() & bit != 0 {
                return true;
            }
            let is_replaced = of.replaced.bits() & bit != 0;
            if !is_replaced && !std::mem::replace(&mut seen[to.index()], true) {
                work.push(to);
            }
        }
    }
    false
}

fn check_random(graph: &Graph, random: &[(u32, u32)]) -> Result<(), TestCaseError> {
    let uses = random.iter().cycle().take(graph.blocks().len());
    let uses = uses.map(|&(read, replaced)| Uses {
        read: Values::of_bits(read),
        replaced: Values::of_bits(replaced),
    });
    let uses: Vec<Uses> = uses.collect();
    let after = after_blocks(graph, &uses, |_| false);
    for id in graph.block_ids() {
        for bit in (0..22).map(|bit| 1 << bit) {
            let is_live = after[id.index()].bits() & bit != 0;
            let expected = is_read_after(graph, &uses, id, bit);
            prop_assert_eq!(is_live, expected, "{} {:#x}", id, bit);
        }
    }
    Ok(())
}

/// Random uses: few reads, so that paths are long.
fn random_uses() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let few = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(a, b, c)| a & b & c);
    let some = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| a & b);
    prop::collection::vec((few, some), 24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_is_live_if_a_path_reads_it(
        any in any_graph(),
        reducible in reducible_graph(),
        random in random_uses(),
    ) {
        check_random(&any, &random)?;
        check_random(&reducible, &random)?;
    }
}

#[test]
fn a_value_is_live_around_a_loop() {
    let looping = graph(3, &[(0, 1), (1, 1), (1, 2)], &[]);
    check_random(&looping, &[(0, 0), (1, 2), (4, 1)]).expect("the values of all paths");
}

/// An instruction, with its meaning written down by hand. Flags are letters.
#[derive(Debug)]
struct Line {
    text: String,
    reads: Vec<usize>,
    writes: Vec<usize>,
    flags_read: &'static str,
    flags_written: &'static str,
    /// True if anything may be read after it.
    leaves: bool,
    /// The number of the instruction that it jumps to.
    jump: Option<usize>,
    falls_through: bool,
}

const ALL_FLAGS: &str = "acopsz";

/// A random instruction in a function of `count` instructions.
fn line(random: &mut impl FnMut(usize) -> usize, count: usize) -> Line {
    let mut pick = || [0, 1, 2, 3, 6, 7, 12][random(7)];
    let (a, b, c) = (pick(), pick(), pick());
    let [[a64, a32, a8], [b64, b32, _], [c64, ..]] = [a, b, c].map(|number| NAMES[number]);
    let target = random(count);
    let new = |text: String, reads: &[usize], writes: &[usize], flags| Line {
        text,
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        flags_read: "",
        flags_written: flags,
        leaves: false,
        jump: None,
        falls_through: true,
    };
    match random(22) {
        0 | 1 => new(format!("mov $7, %{a32}"), &[], &[a], ""),
        2 => new(format!("mov %{b64}, %{a64}"), &[b], &[a], ""),
        3 => new(format!("add %{b32}, %{a32}"), &[a, b], &[a], ALL_FLAGS),
        4 => Line {
            flags_read: "c",
            ..new(format!("adc %{b64}, %{a64}"), &[a, b], &[a], ALL_FLAGS)
        },
        5 => new(format!("inc %{a32}"), &[a], &[a], "aopsz"),
        6 => new(format!("mov $7, %{a8}"), &[], &[], ""),
        7 => Line {
            flags_read: "z",
            ..new(format!("cmove %{b32}, %{a32}"), &[a, b], &[a], "")
        },
        8 => Line {
            flags_read: "c",
            ..new(format!("setc %{a8}"), &[], &[], "")
        },
        9 => new(format!("test %{a64}, %{b64}"), &[a, b], &[], ALL_FLAGS),
        10 => new(format!("shl %cl, %{a32}"), &[a, 1], &[a], ""),
        11 | 12 => Line {
            flags_read: "osz",
            jump: Some(target),
            ..new(format!("jg {target}f"), &[], &[], "")
        },
        13 => Line {
            jump: Some(target),
            falls_through: false,
            ..new(format!("jmp {target}f"), &[], &[], "")
        },
        14 => Line {
            leaves: true,
            ..new(format!("call *%{a64}"), &[], &[], "")
        },
        15 => new(format!("xor %{a32}, %{a32}"), &[], &[a], ALL_FLAGS),
        16 => new(format!("lea 4(%{a64}, %{b64}), %{c64}"), &[a, b], &[c], ""),
        17 => new(format!("mov %{b64}, 8(%{a64})"), &[a, b], &[], ""),
        18 => new("stc".to_owned(), &[], &[], "c"),
        19 => new("cltd".to_owned(), &[0], &[2], ""),
        20 => new("rep stosb".to_owned(), &[0, 1, 7], &[1, 7], ""),
        _ => new(format!("movzbl 4(%{b64}), %{a32}"), &[b], &[a], ""),
    }
}

/// True if a path from the instruction `from` reads something before it is overwritten.
fn is_read_from(
    lines: &[Line],
    from: usize,
    reads: impl Fn(&Line) -> bool,
    writes: impl Fn(&Line) -> bool,
) -> bool {
    let mut seen = vec![false; lines.len()];
    let mut work = vec![from];
    while let Some(number) = work.pop() {
        let line = &lines[number];
        if line.leaves || reads(line) {
            return true;
        }
        if writes(line) || std::mem::replace(&mut seen[number], true) {
            continue;
        }
        work.extend(line.jump);
        work.extend(line.falls_through.then_some(number + 1));
    }
    false
}

#[test]
fn random_functions_agree_with_a_search_of_paths() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let functions: Vec<Vec<Line>> = (0..600)
        .map(|_| {
            let count = 4 + random(16);
            let mut lines: Vec<Line> = (0..count - 1).map(|_| line(&mut random, count)).collect();
            lines.push(Line {
                text: "ret".to_owned(),
                reads: Vec::new(),
                writes: Vec::new(),
                flags_read: "",
                flags_written: "",
                leaves: true,
                jump: None,
                falls_through: false,
            });
            lines
        })
        .collect();
    let body = |(lines, function): (&Vec<Line>, usize)| {
        let mut body = String::new();
        for (number, line) in lines.iter().enumerate() {
            let target = line.jump.map(|to| format!(".L{function}_{to}"));
            let text = match (line.text.split_once(' '), target) {
                (Some((jump, _)), Some(target)) => format!("{jump} {target}"),
                _ => line.text.clone(),
            };
            writeln!(body, ".L{function}_{number}: {text}").unwrap();
        }
        body
    };
    let bodies: Vec<String> = functions.iter().zip(0..).map(body).collect();
    let (mut free, mut with_flags) = (0, 0);
    for ((flow, graph), lines) in analyzed(&bodies).iter().zip(&functions) {
        assert_eq!(flow.insns.len(), lines.len());
        let liveness = Liveness::of(flow, graph);
        for (number, insn) in flow.insns.iter().enumerate() {
            let at = Svma(insn.at());
            let found = liveness.free_before(flow, graph, at);
            if graph.block_at(at).is_none() {
                assert_eq!(found, Free::default());
                continue;
            }
            let is_free = |register: &usize| {
                let reads = |line: &Line| line.reads.contains(register);
                let writes = |line: &Line| line.writes.contains(register);
                *register != 4 && !is_read_from(lines, number, reads, writes)
            };
            let expected: Vec<usize> = (0..16).filter(is_free).collect();
            let flags = ALL_FLAGS.chars().all(|flag| {
                let reads = |line: &Line| line.flags_read.contains(flag);
                let writes = |line: &Line| line.flags_written.contains(flag);
                !is_read_from(lines, number, reads, writes)
            });
            let registers: Vec<usize> = found.registers.iter().map(|r| r.number()).collect();
            assert_eq!(
                (&registers, found.flags),
                (&expected, flags),
                "{number} in {lines:#?}"
            );
            assert_eq!(found.registers.len(), registers.len());
            assert_eq!(found.registers.is_empty(), registers.is_empty());
            assert!(found.registers.iter().all(|r| found.registers.contains(r)));
            free += registers.len();
            with_flags += usize::from(flags);
        }
    }
    assert!(free > 5_000 && with_flags > 1_000, "{free} {with_flags}");
}
