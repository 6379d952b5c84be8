//! Functions of random instructions.

use iced_x86::code_asm::*;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, MemoryOperand, Register};
use patcher::plan::Effects;

use super::harness::Case;
use super::machine::FUEL;
use super::program::{DATA, Symbol, TEXT};

/// A function and its callees, as the code of a program.
#[derive(Debug)]
pub struct RandomFunction {
    /// The code of the program, from [`TEXT`] on.
    pub code: Vec<u8>,
    /// The function's first address.
    pub start: u64,
    /// The address after the function.
    pub end: u64,
}

/// The size of each of the two helper functions, in bytes.
const HELPER: u64 = 16;

/// Both helpers.
const HELPERS: [Symbol<'_>; 2] = [("helper", TEXT, HELPER), ("tail", TEXT + 0x40, HELPER)];

impl RandomFunction {
    /// A test case for this function with these probes.
    pub fn case<'a>(&'a self, want: Effects, points: &'a [(u64, u8)]) -> Case<'a> {
        Case {
            code: &self.code,
            start: self.start,
            end: self.end,
            rest: &HELPERS,
            want,
            points,
        }
    }

    /// The addresses of the function's instructions, ascending.
    pub fn instructions(&self) -> Vec<u64> {
        let code = &self.code[(self.start - TEXT) as usize..(self.end - TEXT) as usize];
        let decoder = Decoder::with_ip(64, code, self.start, DecoderOptions::NONE);
        decoder.into_iter().map(|insn| insn.ip()).collect()
    }
}

/// The registers that instructions use. The stack pointer and `rbx`, the address of the data, are
/// excluded.
const FREE: [AsmRegister64; 14] = [
    rax, rcx, rdx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
];
const FREE_32: [AsmRegister32; 14] = [
    eax, ecx, edx, ebp, esi, edi, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d,
];
const FREE_8: [AsmRegister8; 14] = [
    al, cl, dl, bpl, sil, dil, r8b, r9b, r10b, r11b, r12b, r13b, r14b, r15b,
];

/// A function made by `build`, located after the helpers.
pub fn fixed(build: impl FnOnce(&mut CodeAssembler)) -> RandomFunction {
    let mut helpers = CodeAssembler::new(64).expect("64 bits");
    helpers.add(rax, qword_ptr(rbx + 8)).expect("encodes");
    helpers.xor(qword_ptr(rbx + 16), rax).expect("encodes");
    helpers.ret().expect("encodes");
    let mut code = helpers.assemble(TEXT).expect("assembles");
    code.resize(0x40, 0xcc);
    code.extend(helpers.assemble(TEXT + 0x40).expect("assembles"));
    code.resize(0x80, 0xcc);
    let start = TEXT + 0x80;
    let mut a = CodeAssembler::new(64).expect("64 bits");
    build(&mut a);
    code.extend(a.assemble(start).expect("assembles"));
    let end = TEXT + code.len() as u64;
    // No padding: the next bytes belong to another function.
    code.extend([0x31, 0xc0, 0xc3]);
    RandomFunction { code, start, end }
}

/// Offsets in the red zone that functions use: at both ends and in the middle.
const RED_ZONE: [i32; 3] = [-8, -64, -128];

/// A function with one instruction or branch per seed, and with one or more returns and tail jumps.
///
/// Backward branches are taken as long as there is fuel. Every other function uses the red zone,
/// which it fills first.
pub fn function(seeds: &[u64]) -> RandomFunction {
    let red_zone = seeds.first().is_some_and(|seed| seed >> 63 == 1);
    fixed(|a| {
        let labels: Vec<_> = seeds.iter().map(|_| a.create_label()).collect();
        if red_zone {
            for (offset, register) in RED_ZONE.into_iter().zip([rax, r9, rsi]) {
                a.mov(qword_ptr(rsp + offset), register).expect("encodes");
            }
        }
        for (index, seed) in seeds.iter().enumerate() {
            let mut here = labels[index];
            a.set_label(&mut here).expect("once");
            let distance = (seed >> 32) as usize % 5;
            let ahead = labels.get(index + 1 + distance).copied();
            let back = labels[index.saturating_sub(distance)];
            match (red_zone, seed % 9) {
                (true, 8) => below(a, *seed).expect("encodes"),
                _ => instruction(a, *seed, ahead, back).expect("encodes"),
            }
            // Every label needs an instruction of its own.
            if seed % 7 == 0 {
                a.nop().expect("encodes");
            }
        }
        if red_zone {
            for offset in RED_ZONE {
                a.xor(rax, qword_ptr(rsp + offset)).expect("encodes");
            }
        }
        a.ret().expect("encodes");
    })
}

/// An instruction that reads or writes the red zone.
fn below(a: &mut CodeAssembler, seed: u64) -> Result<(), iced_x86::IcedError> {
    let pick = (seed >> 8) as usize % FREE.len();
    let offset = RED_ZONE[(seed >> 16) as usize % RED_ZONE.len()];
    match (seed >> 24) % 4 {
        0 => a.mov(qword_ptr(rsp + offset), FREE[pick]),
        1 => a.mov(FREE[pick], qword_ptr(rsp + offset)),
        2 => a.add(dword_ptr(rsp + offset), FREE_32[pick]),
        _ => a.cmp(FREE_8[pick], byte_ptr(rsp + offset)),
    }
}

fn instruction(
    a: &mut CodeAssembler,
    seed: u64,
    target: Option<CodeLabel>,
    back: CodeLabel,
) -> Result<(), iced_x86::IcedError> {
    let pick = |shift: u32| (seed >> shift) as usize % FREE.len();
    let (x, y) = (FREE[pick(8)], FREE[pick(16)]);
    let (x32, y32) = (FREE_32[pick(8)], FREE_32[pick(16)]);
    let x8 = FREE_8[pick(8)];
    let offset = ((seed >> 24) & 0x7f8) as i32;
    // Relative to the instruction pointer.
    let far = MemoryOperand::with_base_displ(Register::RIP, DATA as i64 + i64::from(offset));
    let wide = Register::from(x);
    let memory = qword_ptr(rbx + offset);
    let immediate = (seed >> 40) as i32;
    match (seed % 40, target) {
        (0, _) => a.mov(x, y),
        (1, _) => a.add(x, immediate & 0x7f),
        (2, _) => a.add(x, immediate),
        (3, _) => a.xor(x, memory),
        (4, _) => a.mov(memory, x),
        (5, _) => a.add_instruction(Instruction::with2(Code::Lea_r64_m, wide, far)?),
        (6, _) => a.add_instruction(Instruction::with2(Code::Mov_r64_rm64, wide, far)?),
        (7, _) => a.add_instruction(Instruction::with2(Code::Add_rm64_r64, far, wide)?),
        (8, _) => a.cmp(x, y),
        (9, _) => a.sete(x8),
        (10, _) => a.cmovb(x, y),
        (11, _) => a.adc(x, y),
        (12, _) => a.imul_3(x, y, immediate),
        (13, _) => a.shl(x32, (immediate & 31) as u32),
        (14, _) => a.push(x).and_then(|()| a.pop(y)),
        (15, _) => a.pushfq().and_then(|()| a.pop(x)),
        (16, _) => a.inc(x32),
        (17, _) => a.movzx(x32, x8),
        (18, _) => a.call(TEXT),
        (19, _) => a.add_instruction(Instruction::with2(Code::Cmp_rm64_imm32, far, immediate)?),
        (20, _) => a.lock().xadd(memory, x),
        (21, _) => a.stc(),
        (22, _) => a.lea(x, qword_ptr(y + x * 4 + offset)),
        (23, _) => a.xchg(x, y),
        (24, _) => a.bswap(x),
        (25, _) => a.movq(xmm3, x).and_then(|()| a.movq(memory, xmm3)),
        (26, _) => a.add_instruction(Instruction::with1(Code::Setb_rm8, far)?),
        (27, _) => a.test(x32, y32),
        (28, _) => a.ret(),
        (29, _) => a.jne(TEXT + 0x40),
        (30, _) if seed >> 60 == 0 => a.jmp(TEXT + 0x40),
        (30..=31, Some(label)) => a.je(label),
        (32, Some(label)) => a.jb(label),
        (33, Some(label)) => a.jmp(label),
        (34, Some(label)) => a.jrcxz(label),
        (35, Some(label)) => a.loop_(label),
        (36, Some(label)) => a.js(label),
        (37, Some(label)) => a.jle(label),
        (38, _) => {
            a.dec(dword_ptr(rbx + (FUEL - DATA) as i32))?;
            a.jg(back)
        }
        _ => a.sbb(x32, y32),
    }
}
