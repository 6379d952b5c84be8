use iced_x86::code_asm::{CodeAssembler, *};

use super::*;
use crate::addr::Svma;
use crate::isa::decode;

/// The flow of `code` at address 0x1000, as needed for heights.
fn flow(code: &mut CodeAssembler) -> Flow {
    let bytes = code.assemble(0x1000).expect("encodable");
    let insns: Vec<Insn> = decode(&bytes, Svma(0x1000)).collect();
    let end = 0x1000 + bytes.len() as u64;
    Flow {
        ranges: vec![Svma(0x1000)..Svma(end)],
        entry: Svma(0x1000),
        branches: Vec::new(),
        marks: Vec::new(),
        switched: Vec::new(),
        jumps: Default::default(),
        recovered: Vec::new(),
        is_go: false,
        insns,
        leaves: Vec::new(),
        has_labels: false,
        reentries: Vec::new(),
        doubtful: Default::default(),
        reached: Default::default(),
        unexplained: false,
        doubt: None,
    }
}

fn assembler() -> CodeAssembler {
    CodeAssembler::new(64).expect("64 bits")
}

fn last(code: &mut CodeAssembler) -> Option<i64> {
    let flow = flow(code);
    Heights::of(&flow, Calls::MayMove).before(flow.insns.len() - 1)
}

/// Targets of a jump table have the height at the jump. A jump through a pointer with nothing left
/// on the stack leaves the function.
#[test]
fn a_jump_table_keeps_the_height() {
    let mut code = assembler();
    let mut gone = code.create_label();
    code.test(edi, edi).unwrap();
    code.je(gone).unwrap();
    code.sub(rsp, 40).unwrap();
    code.jmp(rax).unwrap();
    code.call(rcx).unwrap();
    code.add(rsp, 40).unwrap();
    code.ret().unwrap();
    code.set_label(&mut gone).unwrap();
    code.jmp(rdx).unwrap();
    let mut flow = flow(&mut code);
    const CALL: usize = 4;
    let target = flow.insns[CALL].at();
    let height = |flow: &Flow, calls| Heights::of(flow, calls).before(CALL);
    flow.marks = vec![target];
    assert_eq!(height(&flow, Calls::Keep), None, "from anywhere");
    flow.switched = vec![target];
    assert_eq!(height(&flow, Calls::Keep), None, "from both jumps");
    flow.jumps.by_pointer = vec![flow.insns.last().expect("a jump").at()];
    assert_eq!(height(&flow, Calls::Keep), Some(-40));
    assert_eq!(height(&flow, Calls::MayMove), None);
}

/// At Go's recovery point the frame is the same as at the calls before it, but not at the stack
/// growth.
#[test]
fn a_recovered_function_has_its_frame() {
    let mut code = assembler();
    let mut grow = code.create_label();
    code.cmp(rsp, rax).unwrap();
    code.jbe(grow).unwrap();
    code.sub(rsp, 40).unwrap();
    code.call(rcx).unwrap();
    code.add(rsp, 40).unwrap();
    code.ret().unwrap();
    code.call(rdx).unwrap();
    code.add(rsp, 40).unwrap();
    code.ret().unwrap();
    code.set_label(&mut grow).unwrap();
    code.call(rbx).unwrap();
    code.ud2().unwrap();
    let mut flow = flow(&mut code);
    const TAIL: usize = 6;
    const RET: usize = 8;
    let heights = |flow: &Flow| {
        let heights = Heights::of(flow, Calls::Keep);
        (heights.before(TAIL), heights.before(RET))
    };
    let tail = flow.insns[TAIL].at();
    assert_eq!(heights(&flow), (None, None), "nothing leads there");
    flow.marks = vec![tail];
    assert_eq!(heights(&flow), (None, None), "from anywhere");
    flow.recovered = vec![tail];
    assert_eq!(heights(&flow), (Some(-40), Some(0)));
}

/// `runtime.throw` does not return, but the call seems to return to the stack growth code.
#[test]
fn a_go_function_has_its_stack_grown_before_its_frame() {
    let mut code = assembler();
    let (mut entry, mut grow) = (code.create_label(), code.create_label());
    code.set_label(&mut entry).unwrap();
    code.cmp(rsp, rax).unwrap();
    code.jbe(grow).unwrap();
    code.sub(rsp, 40).unwrap();
    code.call(rcx).unwrap();
    code.set_label(&mut grow).unwrap();
    code.call(rbx).unwrap();
    code.jmp(entry).unwrap();
    let mut flow = flow(&mut code);
    const THROW: usize = 3;
    let height = |flow: &Flow| Heights::of(flow, Calls::Keep).before(THROW);
    assert_eq!(height(&flow), None);
    flow.is_go = true;
    assert_eq!(height(&flow), Some(-40));
}

#[test]
fn a_frame_that_is_taken_down_leaves_the_stack_as_it_was() {
    let mut code = assembler();
    code.push(rbp).unwrap();
    code.mov(rbp, rsp).unwrap();
    code.sub(rsp, 40).unwrap();
    code.call(rax).unwrap();
    code.mov(rsp, rbp).unwrap();
    code.pop(rbp).unwrap();
    code.jmp(rax).unwrap();
    assert_eq!(last(&mut code), Some(0));
    let mut code = assembler();
    code.push(rbp).unwrap();
    code.mov(rbp, rsp).unwrap();
    code.and(rsp, -64).unwrap();
    code.leave().unwrap();
    code.jmp(rax).unwrap();
    assert_eq!(last(&mut code), Some(0));
    let mut code = assembler();
    code.push(rbx).unwrap();
    code.lea(rsp, rsp - 24).unwrap();
    code.add(rsp, 8).unwrap();
    code.jmp(rax).unwrap();
    assert_eq!(last(&mut code), Some(-24));
}

#[test]
fn what_is_not_the_same_on_every_path_is_not_known() {
    let mut code = assembler();
    let mut over = code.create_label();
    code.test(rdi, rdi).unwrap();
    code.je(over).unwrap();
    code.push(rbx).unwrap();
    code.set_label(&mut over).unwrap();
    code.jmp(rax).unwrap();
    assert_eq!(last(&mut code), None);
}

#[test]
fn what_cannot_be_followed_is_not_known() {
    let moves: [fn(&mut CodeAssembler); 5] = [
        |code| code.call(rax).unwrap(),
        |code| code.sub(rsp, r10).unwrap(),
        |code| code.pop(rsp).unwrap(),
        |code| code.xchg(rsp, rax).unwrap(),
        |code| code.leave().unwrap(),
    ];
    for step in moves {
        let mut code = assembler();
        code.nop().unwrap();
        step(&mut code);
        code.jmp(rax).unwrap();
        assert_eq!(last(&mut code), None);
    }
}

/// GCC's realigned frame: the CFA is first in r10, then on the stack. It is loaded from there when
/// the frame is left. Calls overwrite r10.
#[test]
fn a_frame_that_is_aligned_is_left_by_what_it_has_saved() {
    let mut code = assembler();
    code.lea(r10, rsp + 8).unwrap();
    code.and(rsp, -32).unwrap();
    code.push(qword_ptr(r10 - 8)).unwrap();
    code.push(rbp).unwrap();
    code.mov(rbp, rsp).unwrap();
    code.push(r12).unwrap();
    code.push(r10).unwrap();
    code.sub(rsp, rax).unwrap();
    code.call(rcx).unwrap();
    code.lea(rsp, rbp - 16).unwrap();
    code.pop(r10).unwrap();
    code.pop(r12).unwrap();
    code.pop(rbp).unwrap();
    code.lea(rsp, r10 - 8).unwrap();
    code.ret().unwrap();
    let flow = flow(&mut code);
    const CALL: usize = 8;
    let heights = Heights::of(&flow, Calls::Keep);
    let expected = Places {
        cfa_at: -16,
        caller_frame_pointer: 0,
    };
    assert_eq!(heights.before(CALL), None);
    assert_eq!(heights.realigned_before(CALL), Some(expected));
    let last = flow.insns.len() - 1;
    assert_eq!(heights.before(last), Some(0));
    let caller = heights.caller_frame_pointer_before(last);
    assert_eq!(caller, CallerFramePointer::InPlace);
}

/// If no caller-saved register is free, the CFA is in r13, whose own value is pushed before.
#[test]
fn a_frame_may_be_aligned_below_a_saved_register() {
    let mut code = assembler();
    code.push(r13).unwrap();
    code.lea(r13, rsp + 16).unwrap();
    code.and(rsp, -64).unwrap();
    code.push(qword_ptr(r13 - 8)).unwrap();
    code.push(rbp).unwrap();
    code.mov(rbp, rsp).unwrap();
    code.push(r13).unwrap();
    code.call(rcx).unwrap();
    code.mov(r13, qword_ptr(rbp - 8)).unwrap();
    code.leave().unwrap();
    code.lea(rsp, r13 - 16).unwrap();
    code.pop(r13).unwrap();
    code.ret().unwrap();
    let flow = flow(&mut code);
    let heights = Heights::of(&flow, Calls::Keep);
    let expected = Places {
        cfa_at: -8,
        caller_frame_pointer: 0,
    };
    assert_eq!(heights.realigned_before(7), Some(expected));
    let last = flow.insns.len() - 1;
    assert_eq!(heights.before(last), Some(0));
    // It is lost if it is overwritten before it is saved.
    let mut code = assembler();
    code.lea(r10, rsp + 8).unwrap();
    code.and(rsp, -32).unwrap();
    code.push(rbp).unwrap();
    code.mov(rbp, rsp).unwrap();
    code.mov(r10, rax).unwrap();
    code.push(r10).unwrap();
    code.call(rcx).unwrap();
    let flow = self::flow(&mut code);
    assert_eq!(Heights::of(&flow, Calls::Keep).realigned_before(6), None);
}

/// An instruction that forms the address of the next one creates no jump target.
#[test]
fn where_code_is_it_runs_on() {
    let mut code = assembler();
    code.push(rbx).unwrap();
    let mut here = code.create_label();
    code.lea(r10, qword_ptr(here)).unwrap();
    code.set_label(&mut here).unwrap();
    code.call(rcx).unwrap();
    let mut flow = flow(&mut code);
    assert_eq!(flow.insns[1].formed_address(), Some(flow.insns[2].at()));
    flow.marks = vec![flow.insns[2].at()];
    assert_eq!(Heights::of(&flow, Calls::Keep).before(2), Some(-8));
    flow.marks = vec![flow.insns[1].at()];
    assert_eq!(
        Heights::of(&flow, Calls::Keep).before(2),
        None,
        "from anywhere"
    );
}
