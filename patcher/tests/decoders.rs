//! Decodes every trampoline with two decoders. They must agree on every instruction, and every
//! displaced instruction must mean the same as at its original address.

mod libraries;

use std::collections::HashMap;

use capstone::arch::BuildsCapstone;
use capstone::arch::DetailsArchInsn;
use capstone::arch::x86::{ArchMode, X86OperandType};
use capstone::{Capstone, Insn};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use patcher::emit::{CodePlace, Emitted, Hooks};
use patcher::image::Image;
use patcher::plan::{Allowed, Effect, Effects, ModuleContext, ProbePoint, plan, plan_points};
use patcher::{Avma, Bias};

const BIAS: Bias = Bias(0x7f00_0000_0000);
const TRAMPOLINES: u64 = BIAS.0 + (1 << 30);

/// The operands of an instruction, in terms that both decoders report.
#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    /// The length of the instruction in bytes; 0 if it is not compared.
    length: usize,
    registers: Vec<String>,
    immediates: Vec<u64>,
    /// Base, index, scale, displacement; for a rip-relative operand, the absolute address.
    memory: Vec<(String, String, i32, i64)>,
}

fn name(register: Register) -> String {
    match register {
        Register::None => String::new(),
        // iced calls the low bytes of the new registers r8l and so on.
        register if register.is_gpr8() && register >= Register::R8L => {
            format!("{register:?}").to_lowercase().replace('l', "b")
        }
        register => format!("{register:?}").to_lowercase(),
    }
}

fn by_iced(insn: &Instruction) -> Meaning {
    let mut meaning = Meaning {
        length: insn.len(),
        registers: Vec::new(),
        immediates: Vec::new(),
        memory: Vec::new(),
    };
    for op in 0..insn.op_count() {
        match insn.op_kind(op) {
            OpKind::Register => meaning.registers.push(name(insn.op_register(op))),
            OpKind::NearBranch64 => meaning.immediates.push(insn.near_branch_target()),
            OpKind::Memory if insn.is_ip_rel_memory_operand() => {
                let at = insn.ip_rel_memory_address() as i64;
                meaning
                    .memory
                    .push(("rip".to_owned(), String::new(), 1, at));
            }
            OpKind::Memory => meaning.memory.push((
                name(insn.memory_base()),
                name(insn.memory_index()),
                insn.memory_index_scale() as i32,
                // One shows -1 as 0xffffffff if the address has 32 bits.
                match insn.memory_base().size() {
                    4 => i64::from(insn.memory_displacement32() as i32),
                    _ => insn.memory_displacement64() as i64,
                },
            )),
            _ => meaning.immediates.push(insn.immediate(op)),
        }
    }
    meaning
}

fn by_capstone(capstone: &Capstone, insn: &Insn<'_>) -> Meaning {
    let mut meaning = Meaning {
        length: insn.bytes().len(),
        registers: Vec::new(),
        immediates: Vec::new(),
        memory: Vec::new(),
    };
    let detail = capstone.insn_detail(insn).expect("detail");
    let name = |register| capstone.reg_name(register).unwrap_or_default();
    let arch = detail.arch_detail();
    let operands = arch.x86().expect("x86").operands();
    for operand in operands {
        match operand.op_type {
            X86OperandType::Reg(register) => meaning.registers.push(name(register)),
            X86OperandType::Imm(value) => meaning.immediates.push(value as u64),
            X86OperandType::Mem(memory) if name(memory.base()) == "rip" => {
                let at = insn.address() as i64 + insn.bytes().len() as i64 + memory.disp();
                meaning
                    .memory
                    .push(("rip".to_owned(), String::new(), 1, at));
            }
            X86OperandType::Mem(memory) => meaning.memory.push((
                name(memory.base()),
                name(memory.index()),
                memory.scale(),
                memory.disp(),
            )),
            X86OperandType::Invalid => {}
        }
    }
    meaning
}

/// True if the decoders list the operands in the same way. One of them counts implied operands, or
/// shows an immediate with another width.
fn comparable(insn: &Instruction) -> bool {
    let plain = (0..insn.op_count()).all(|op| {
        matches!(
            insn.op_kind(op),
            OpKind::Register
                | OpKind::Memory
                | OpKind::NearBranch64
                | OpKind::Immediate8to64
                | OpKind::Immediate8to32
                | OpKind::Immediate32to64
        )
    });
    let x87 = (0..insn.op_count()).any(|op| insn.op_register(op).is_st());
    let masked = insn.has_op_mask();
    plain && !x87 && !masked && insn.op_count() <= 2 && !insn.is_string_instruction()
}

/// Decodes `emitted` with both decoders and compares. Returns the number of instructions.
fn agree(capstone: &Capstone, emitted: &Emitted, base: u64) -> usize {
    let insns = capstone
        .disasm_all(&emitted.code, base)
        .expect("capstone decodes");
    let mut decoder = Decoder::with_ip(64, &emitted.code, base, DecoderOptions::NONE);
    let mut count = 0;
    for theirs in insns.iter() {
        let ours = decoder.decode();
        assert!(!ours.is_invalid(), "{theirs}");
        assert_eq!(ours.ip(), theirs.address());
        assert_eq!(ours.len(), theirs.bytes().len(), "{theirs}");
        let (mut a, mut b) = (by_iced(&ours), by_capstone(capstone, theirs));
        if ours.is_string_instruction() {
            a.memory.clear();
            b.memory.clear();
        }
        // One shows -1 as 0xffffffff for some instructions only.
        if (0..ours.op_count()).any(|op| ours.op_kind(op) == OpKind::Immediate8to32) {
            for immediate in a.immediates.iter_mut().chain(&mut b.immediates) {
                *immediate &= 0xffff_ffff;
            }
        }
        if !comparable(&ours) {
            // The lengths and the memory operands must still be equal.
            a.registers.clear();
            b.registers.clear();
            a.immediates.clear();
            b.immediates.clear();
        }
        assert_eq!(a, b, "{theirs}");
        count += 1;
    }
    assert!(!decoder.can_decode(), "both decode everything");
    count
}

/// The instruction at the start of `bytes`, without the parts that depend on its address.
fn meaning(capstone: &Capstone, bytes: &[u8], at: u64) -> (String, Meaning) {
    let insns = capstone
        .disasm_count(bytes, at, 1)
        .expect("capstone decodes");
    let insn = insns.iter().next().expect("one instruction");
    let mnemonic = insn.mnemonic().unwrap_or_default().to_owned();
    let mut meaning = by_capstone(capstone, insn);
    meaning.length = 0;
    (mnemonic, meaning)
}

fn check(name: &str, data: &[u8]) {
    let capstone = Capstone::new()
        .x86()
        .mode(ArchMode::Mode64)
        .detail(true)
        .build();
    let capstone = capstone.expect("capstone");
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let hooks = Hooks {
        entry_cell: Avma(TRAMPOLINES - 16),
        exit_cell: Avma(TRAMPOLINES - 8),
        tail_cell: Avma(TRAMPOLINES - 24),
        lend_cell: Avma(TRAMPOLINES - 24),
        point_cell: Some(Avma(TRAMPOLINES - 24)),
        span_cells: None,
        timed_path_cells: None,
        counts: None,
        id: 0x1234_5678,
    };
    let (mut instructions, mut pointed, mut moved) = (0, 0, HashMap::new());
    let mut at = TRAMPOLINES;
    for function in image.functions().iter() {
        let want = Effects {
            entry: true,
            exits: true,
        };
        let points = libraries::points(&image, &function);
        let plan = plan_points(&image, &context, &function, (want, &points), Allowed::ALL);
        for site in &plan.sites {
            let targets = site.pun.as_ref().map(|pun| pun.targets(BIAS));
            let place = CodePlace {
                trampoline: Avma(at),
                stone: targets.map(|t| t.expect("in user space").start),
            };
            let emitted = site.emit(BIAS, place, &hooks).expect("in reach");
            instructions += agree(&capstone, &emitted, at);
            let is_point = |p: &&ProbePoint| matches!(p.effect, Effect::Point(_));
            for point in site.points.iter().filter(is_point) {
                let original = BIAS.to_avma(point.at);
                let starts = emitted.hook_starts.iter();
                let hooks = starts.filter(|h| h.original == original).any(|hook| {
                    let code = &emitted.code[(hook.trampoline.0 - at) as usize..];
                    let (mnemonic, operands) = meaning(&capstone, code, hook.trampoline.0);
                    mnemonic == "lea" && operands.memory[0].3 == -128
                });
                assert!(hooks, "{name} {original}");
                pointed += 1;
            }
            for pair in &emitted.pcs {
                let offset = (pair.trampoline.0 - at) as usize;
                let original = BIAS.to_svma(pair.original);
                let Some(bytes) = (1..=15).rev().find_map(|len| image.bytes(original, len)) else {
                    continue;
                };
                if !site.window.contains(&original) {
                    continue;
                }
                let before = meaning(&capstone, bytes, pair.original.0);
                let after = meaning(&capstone, &emitted.code[offset..], pair.trampoline.0);
                // Branches may lead to a copy, and calls become a push and a jump.
                let branches = before.0.starts_with('j')
                    || before.0.starts_with("notrack")
                    || before.0.starts_with("loop")
                    || before.0.contains("call");
                // After the copy of another window that ends where this one begins.
                let back = after.0 == "jmp" && after.1.immediates == [pair.original.0];
                if !branches && !back {
                    assert_eq!(before, after, "{name} {original}");
                    *moved.entry(before.0).or_insert(0) += 1;
                }
            }
            at += site.max_len() as u64;
        }
    }
    println!(
        "{name}: {instructions} instructions, {pointed} points, {} mnemonics moved",
        moved.len()
    );
    assert!(pointed > 100, "{name}: {pointed} points");
    assert!(
        moved.len() > 20,
        "{name}: a good share of the instruction set is among those moved"
    );
}

/// The target of the jump at `at` according to both decoders, with `written` applied over the
/// image.
fn leads(capstone: &Capstone, image: &Image<'_>, written: &HashMap<u64, u8>, at: Avma) -> Avma {
    let byte = |at: u64| {
        let original = || image.bytes(BIAS.to_svma(Avma(at)), 1);
        written
            .get(&at)
            .copied()
            .or_else(|| original().map(|b| b[0]))
    };
    let bytes: Vec<u8> = (at.0..at.0 + 15).map_while(byte).collect();
    let ours = Decoder::with_ip(64, &bytes, at.0, DecoderOptions::NONE).decode();
    assert!(ours.is_jmp_short_or_near() || ours.is_jcc_near(), "{ours}");
    let (_, theirs) = meaning(capstone, &bytes, at.0);
    assert_eq!(theirs.immediates, [ours.near_branch_target()], "{ours}");
    Avma(ours.near_branch_target())
}

/// Every window, landing and stepping stone of a plan leads to its trampoline.
fn check_jumps(name: &str, data: &[u8], puns_wanted: bool) {
    let capstone = Capstone::new().x86().mode(ArchMode::Mode64).detail(true);
    let capstone = capstone.build().expect("capstone");
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let hooks = Hooks {
        entry_cell: Avma(TRAMPOLINES - 16),
        exit_cell: Avma(TRAMPOLINES - 8),
        tail_cell: Avma(TRAMPOLINES - 24),
        lend_cell: Avma(TRAMPOLINES - 24),
        point_cell: None,
        span_cells: None,
        timed_path_cells: None,
        counts: None,
        id: 1,
    };
    let want = Effects {
        entry: true,
        exits: true,
    };
    let (mut at, mut puns) = (TRAMPOLINES, 0);
    for function in image.functions().iter() {
        let plan = plan(&image, &context, &function, want);
        let mut written = HashMap::new();
        let mut places = Vec::new();
        for site in &plan.sites {
            let targets = site.pun.as_ref().map(|pun| pun.targets(BIAS));
            let place = CodePlace {
                trampoline: Avma(at),
                stone: targets.map(|t| Avma(t.expect("in user space").end.0 - 1)),
            };
            let emitted = site.emit(BIAS, place, &hooks).expect("in reach");
            for patch in &emitted.patches {
                written.extend((patch.at.0..).zip(patch.new.iter().copied()));
            }
            if let Some(stone) = place.stone {
                let (jump, word) = emitted.stone.split_at(6);
                let ours = Decoder::with_ip(64, jump, stone.0, DecoderOptions::NONE).decode();
                let (mnemonic, theirs) = meaning(&capstone, jump, stone.0);
                assert!(ours.is_jmp_near_indirect() && mnemonic == "jmp");
                assert_eq!(theirs.memory, by_iced(&ours).memory);
                assert_eq!(ours.ip_rel_memory_address(), stone.0 + 6);
                assert_eq!(word, at.to_le_bytes());
                puns += 1;
            }
            places.push(place);
            at += site.max_len() as u64;
        }
        for (site, place) in plan.sites.iter().zip(places) {
            let mut to = leads(&capstone, &image, &written, BIAS.to_avma(site.window.start));
            if let Some(landing) = &site.landing {
                assert_eq!(to, BIAS.to_avma(landing.start));
                to = leads(&capstone, &image, &written, to);
            }
            let code = place.stone.unwrap_or(place.trampoline);
            assert_eq!(to, code, "{name} {} {:?}", site.window.start, site.tactic);
        }
    }
    assert!(!puns_wanted || puns > 20, "{name}: {puns} puns");
}

#[test]
fn both_decoders_see_every_patched_jump_lead_to_its_code() {
    check_jumps("libc.so.6", &libraries::libc(), false);
    // Its functions are close together.
    if let Ok(data) = std::fs::read("/usr/bin/python3.11") {
        check_jumps("python3.11", &data, true);
    }
}

#[test]
fn both_decoders_agree_on_the_c_library() {
    check("libc.so.6", &libraries::libc());
}

#[test]
fn both_decoders_agree_on_other_libraries() {
    for name in ["libstdc++.so.6", "libcrypto.so.3", "libpython3.11.so.1.0"] {
        if let Some(data) = libraries::library(name) {
            check(name, &data);
        }
    }
}
