use iced_x86::code_asm::*;
use iced_x86::{Mnemonic, OpKind};

use super::*;
use crate::addr::Avma;

/// The displaced form of the single instruction `bytes`, located at 0x1000.
fn displaced(bytes: &[u8]) -> Result<Displaced, Immovable> {
    Displaced::of(&first(bytes, Svma(0x1000)), bytes)
}

fn form_of(bytes: &[u8]) -> Form {
    displaced(bytes).expect("movable").form
}

#[test]
fn what_does_not_depend_on_its_address_is_copied() {
    for bytes in [
        &[0xc3][..],
        &[0xf3, 0xc3],
        &[0xc2, 8, 0],
        &[0x48, 0x89, 0xe5],
        &[0x90],
    ] {
        assert_eq!(form_of(bytes), Form::Copy, "{bytes:x?}");
    }
}

#[test]
fn rip_relative_operands_are_found_before_an_immediate_as_well() {
    // cmp dword [rip + 0x10], 0x12345678: ten bytes, the displacement at the third
    let form = form_of(&[0x81, 0x3d, 0x10, 0, 0, 0, 0x78, 0x56, 0x34, 0x12]);
    let Form::RipRelative { offset, target, .. } = form else {
        panic!("{form:?}")
    };
    assert_eq!((offset, target), (2, Svma(0x1000 + 10 + 0x10)));
}

#[test]
fn every_condition_keeps_its_code() {
    for condition in 0..16 {
        let short = form_of(&[0x70 | condition, 0x10]);
        let near = form_of(&[0x0f, 0x80 | condition, 0x0c, 0, 0, 0]);
        let opcode = 0x80 | condition;
        assert_eq!(
            short,
            Form::Conditional {
                target: Svma(0x1012),
                opcode
            }
        );
        assert_eq!(
            near,
            Form::Conditional {
                target: Svma(0x1012),
                opcode
            }
        );
    }
}

#[test]
fn what_the_kernel_looks_at_stays() {
    // syscall, int3, ud2, iretq, xbegin
    for bytes in [
        &[0x0f, 0x05][..],
        &[0xcc],
        &[0x0f, 0x0b],
        &[0x48, 0xcf],
        &[0xc7, 0xf8, 0, 0, 0, 0],
    ] {
        assert_eq!(displaced(bytes), Err(Immovable::Special), "{bytes:x?}");
    }
    // A 32-bit address, which wraps differently at another address: mov eax, [eip + 16].
    assert_eq!(
        displaced(&[0x67, 0x8b, 0x05, 0x10, 0, 0, 0]),
        Err(Immovable::Special)
    );
}

#[test]
fn a_call_through_the_stack_reads_past_the_pushed_address() {
    // call [rsp + 0x7c]: the new displacement needs four bytes.
    let form = form_of(&[0xff, 0x54, 0x24, 0x7c]);
    let Form::CallThrough {
        jump,
        rip_relative: None,
    } = form
    else {
        panic!("{form:?}")
    };
    let jump = first(&jump, Svma(0)).0;
    assert_eq!(jump.mnemonic(), Mnemonic::Jmp);
    assert_eq!(jump.memory_base(), iced_x86::Register::RSP);
    assert_eq!(jump.memory_displacement64(), 0x84);
    // call rsp would call the pushed address.
    assert_eq!(displaced(&[0xff, 0xd4]), Err(Immovable::Special));
}

/// The instructions in `bytes`.
fn decoded(bytes: &[u8]) -> Vec<Instruction> {
    let insns: Vec<_> = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
        .iter()
        .collect();
    assert!(insns.iter().all(|i| !i.is_invalid()));
    insns
}

#[test]
fn a_far_operand_goes_through_a_register_that_the_instruction_does_not_use() {
    let mut a = CodeAssembler::new(64).expect("64 bits");
    let mut data = a.create_label();
    a.add(rax, qword_ptr(data)).expect("encodes");
    a.set_label(&mut data).expect("fresh");
    a.nop().expect("encodes");
    let bytes = a.assemble(0x1000).expect("assembles");
    let insn = first(&bytes, Svma(0x1000)).0;
    let far = FarAccess::of(&insn).expect("a far form");
    let mut out = Vec::new();
    far.encode(Avma(0x1234_5678_9abc), &mut out);
    assert!(out.len() <= far.max_len());
    let insns = decoded(&out);
    let mnemonics: Vec<_> = insns.iter().map(Instruction::mnemonic).collect();
    use Mnemonic::{Add, Lea, Mov, Pop, Push};
    assert_eq!(mnemonics, [Lea, Push, Mov, Add, Pop, Lea]);
    let scratch = insns[1].op0_register();
    assert_ne!(scratch, iced_x86::Register::RAX);
    assert_eq!(
        (insns[2].op0_register(), insns[2].immediate64()),
        (scratch, 0x1234_5678_9abc)
    );
    assert_eq!(insns[3].memory_base(), scratch);
    assert_eq!(insns[4].op0_register(), scratch);
    // The two steps over the red zone cancel out.
    let steps = [0, 5].map(|i: usize| insns[i].memory_displacement64() as i64);
    assert_eq!(steps, [-128, 128]);
}

#[test]
fn a_far_lea_becomes_a_move() {
    // lea r9, [rip + 0]
    let bytes = [0x4c, 0x8d, 0x0d, 0, 0, 0, 0];
    let far = FarAccess::of(&first(&bytes, Svma(0)).0).expect("a far form");
    let mut out = Vec::new();
    far.encode(Avma(0x1234_5678_9abc), &mut out);
    let insns = decoded(&out);
    assert_eq!(insns.len(), 1);
    assert_eq!(insns[0].op0_register(), iced_x86::Register::R9);
    assert_eq!(insns[0].op1_kind(), OpKind::Immediate64);
    // push [rip] uses the stack pointer, so nothing can be pushed around it.
    assert_eq!(
        FarAccess::of(&first(&[0xff, 0x35, 0, 0, 0, 0], Svma(0)).0),
        None
    );
}
