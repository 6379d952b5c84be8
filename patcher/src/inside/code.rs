//! Graphs of small functions in assembly.

use super::*;
use crate::flow::{Flow, ModuleContext};
use crate::image::Image;
use crate::oracle::Folder;

/// The graph of the function `f` in a library made from `assembly`.
fn graph(assembly: &str) -> Result<Graph, Refusal> {
    let source = format!(
        ".text
        .globl f
        .type f, @function
        {assembly}
        .section .note.GNU-stack, \"\", @progbits
        "
    );
    let flags = ["-shared", "-nostdlib"];
    let data = Folder::new().build("cc", &flags, &[("f.s", &source)]);
    let image = Image::parse(&data).expect("an image");
    let context = ModuleContext::new(&image);
    let found = image.functions().with_name(|name| name == "f");
    let flow = Flow::of(&image, &context, &found[0]).expect("bytes");
    Graph::of(&image, &context, &flow, &mut NeverReturning::default())
}

/// The edges as pairs of block numbers: -1 is the virtual entry, and the number of blocks is the
/// virtual exit.
fn edges(graph: &Graph) -> Vec<(i64, i64, EdgeKind)> {
    let number = |node| match node {
        Node::Entry => -1,
        Node::Block(block) => i64::from(block.0),
        Node::Exit => graph.blocks().len() as i64,
    };
    let edges = graph.edges().iter();
    edges
        .map(|edge| (number(edge.from), number(edge.to), edge.kind))
        .collect()
}

fn ends(graph: &Graph) -> Vec<BlockEnd> {
    graph.blocks().iter().map(|block| block.end).collect()
}

#[test]
fn calls_do_not_end_blocks_and_jumps_do() {
    let found = graph(
        "f: endbr64
        call g
        test %eax, %eax
        je 1f
        call g
        1: ret
        .size f, . - f
        .type g, @function
        g: ret
        .size g, . - g",
    );
    let found = found.expect("a graph");
    let expected = [
        BlockEnd::Conditional,
        BlockEnd::FallsThrough,
        BlockEnd::Return,
    ];
    assert_eq!(ends(&found), expected);
    assert_eq!(
        edges(&found),
        [
            (-1, 0, EdgeKind::Call),
            (0, 1, EdgeKind::FallThrough),
            (0, 2, EdgeKind::Taken),
            (1, 2, EdgeKind::FallThrough),
            (2, 3, EdgeKind::Departure),
        ]
    );
    let first = &found.blocks()[0];
    assert_eq!(first.first, first.range.start.plus(4), "after the marker");
}

/// The code after the call would lead into the middle of the loop.
#[test]
fn code_after_a_call_that_never_returns_is_left_out() {
    let found = graph(
        "f: test %edi, %edi
        jne 2f
        jmp 3f
        1: dec %edi
        3: cmp $7, %edi
        jne 1b
        ret
        2: call g
        nop
        jmp 1b
        .size f, . - f
        .type g, @function
        g: hlt
        jmp g
        .size g, . - g",
    );
    let found = found.expect("a graph");
    assert_eq!(ends(&found).last(), Some(&BlockEnd::NoReturn));
    let loops = Loops::of(&found);
    let [only] = loops.loops() else {
        panic!("{loops:?}");
    };
    assert!(only.is_reducible);
}

/// The first table would continue into the second one.
#[test]
fn each_switch_has_the_targets_of_its_own_table() {
    let switch = |table: &str| {
        format!(
            "lea {table}(%rip), %rdx
            movslq (%rdx, %rdi, 4), %rax
            add %rdx, %rax
            jmp *%rax"
        )
    };
    let source = format!(
        "f: {}
        1: inc %ecx
        {}
        2: inc %edx
        3: inc %esi
        4: ret
        .size f, . - f
        .section .rodata
        one: .long 1b - one, 3b - one
        two: .long 2b - two, 4b - two
        .text",
        switch("one"),
        switch("two")
    );
    let found = graph(&source).unwrap();
    let tables = edges(&found).into_iter();
    let tables: Vec<(i64, i64)> = tables
        .filter(|edge| edge.2 == EdgeKind::Table)
        .map(|edge| (edge.0, edge.1))
        .collect();
    assert_eq!(tables, [(0, 1), (0, 3), (1, 2), (1, 4)]);
}

/// The address of the table is computed once, before a loop around the switch.
#[test]
fn a_table_computed_before_a_loop_is_found() {
    let source = "f: lea one(%rip), %rbx
        lea two(%rip), %r12
        0: movslq (%rbx, %rdi, 4), %rax
        add %rbx, %rax
        jmp *%rax
        1: inc %ecx
        call g
        jmp 0b
        2: movslq (%r12, %rdi, 4), %rax
        add %r12, %rax
        jmp *%rax
        3: inc %ecx
        jmp 0b
        4: ret
        .size f, . - f
        .type g, @function
        g: ret
        .size g, . - g
        .section .rodata
        one: .long 1b - one, 2b - one
        two: .long 3b - two, 4b - two
        .text";
    let found = graph(source).unwrap();
    let switches = ends(&found);
    let switches = switches.iter().filter(|end| **end == BlockEnd::Switch);
    assert_eq!(switches.count(), 2);
    assert_eq!(found.leaving(Node::Block(BlockId(1))).len(), 2);
}

#[test]
fn a_switch_between_two_unknown_tables_is_refused() {
    let source = "f: lea one(%rip), %rbx
        lea two(%rip), %rcx
        test %esi, %esi
        cmove %rcx, %rbx
        movslq (%rbx, %rdi, 4), %rax
        add %rbx, %rax
        jmp *%rax
        1: inc %ecx
        2: inc %edx
        3: ret
        .size f, . - f
        .section .rodata
        one: .long 1b - one, 2b - one
        two: .long 2b - two, 3b - two
        .text";
    assert_eq!(graph(source).unwrap_err(), Refusal::UnknownTable);
}

/// Code that knows it is single-threaded jumps over the lock prefix.
#[test]
fn a_jump_over_a_lock_prefix_leads_to_the_next_instruction() {
    let found = graph(
        "f: cmpl $0, %fs:24
        je 1f
        lock
        1: incl (%rdi)
        ret
        .size f, . - f",
    );
    let found = found.expect("a graph");
    assert_eq!(
        edges(&found),
        [
            (-1, 0, EdgeKind::Call),
            (0, 1, EdgeKind::FallThrough),
            (0, 2, EdgeKind::Taken),
            (1, 2, EdgeKind::FallThrough),
            (2, 3, EdgeKind::Departure),
        ]
    );
}

/// Another function jumps into this one.
#[test]
fn a_branch_from_other_code_is_an_arrival() {
    let found = graph(
        "f: inc %eax
        1: inc %ecx
        ret
        .size f, . - f
        .skip 300, 0xcc
        .type g, @function
        g: mov $1, %eax
        jmp 1b
        .size g, . - g",
    );
    let found = found.expect("a graph");
    assert_eq!(
        edges(&found)[..2],
        [(-1, 0, EdgeKind::Call), (-1, 1, EdgeKind::Arrival)]
    );
    let places: Vec<Option<Place>> = found.edge_ids().map(|e| Place::of(&found, e)).collect();
    assert_eq!(places[1], None, "no instruction runs for it alone");
    let chords = Chords::of(&found, &Loops::of(&found), None);
    for &chord in chords.edges() {
        assert!(Place::of(&found, chord).is_some());
    }
}
