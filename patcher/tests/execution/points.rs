//! Points: hooks before any instruction, which run each time control reaches it.

use iced_x86::code_asm::*;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use patcher::emit::{EmitError, Hooks};
use patcher::image::Image;
use patcher::plan::{Effects, FunctionPlan, ModuleContext, RefuseReason, Tactic};
use patcher::{Avma, Bias, Svma};
use proptest::prelude::*;

use super::harness::BOTH;
use super::program::{DATA, TEXT};
use super::random::{self, RandomFunction};

const ALL: [Effects; 4] = [
    BOTH,
    Effects {
        entry: true,
        exits: false,
    },
    Effects {
        entry: false,
        exits: true,
    },
    NONE,
];

const NONE: Effects = Effects {
    entry: false,
    exits: false,
};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

prop_compose! {
    /// A random function and one to four of its instructions, occasionally all.
    fn pointed_at()(
        seeds in prop::collection::vec(any::<u64>(), 2..24),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..=4),
        all in prop::bool::weighted(0.1),
    ) -> (RandomFunction, Vec<(u64, u8)>) {
        let function = random::function(&seeds);
        let insns = function.instructions();
        let picked: Vec<u64> = picks.iter().map(|p| *p.get(&insns)).collect();
        let chosen = if all { insns } else { picked };
        let points = chosen.into_iter().zip(1..).collect();
        (function, points)
    }
}

proptest! {
    #![proptest_config(config(10_000))]

    #[test]
    fn random_points_run_as_often_as_their_instructions(
        (function, points) in pointed_at(),
        seed in any::<u64>(),
        want in prop::sample::select(&ALL[..]),
    ) {
        function.case(want, &points).same_with_probes(seed)?;
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn threads_are_moved_in_and_out(
        (function, points) in pointed_at(),
        seed in any::<u64>(),
        want in prop::sample::select(&ALL[..]),
    ) {
        function.case(want, &points).same_when_moved(seed)?;
    }
}

/// The plan for entry, exits, and points at the instructions with these numbers. All must be
/// available. The function is run with all combinations of effects.
fn pointed(
    build: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    numbers: &[usize],
) -> FunctionPlan {
    let function = random::fixed(|a| build(a).expect("encodes"));
    let insns = function.instructions();
    // The numbers descend, but hooks run in ascending order of their numbers.
    let points: Vec<(u64, u8)> = numbers
        .iter()
        .map(|&n| insns[n])
        .zip((1..9).rev())
        .collect();
    for want in ALL {
        let case = function.case(want, &points);
        let plan = case.plan();
        let refused = plan.points.iter().find(|p| p.outcome.is_err());
        assert_eq!(refused, None);
        for seed in 0..8 {
            case.same_with_probes(seed).expect("the same behaviour");
        }
        let moved = case.same_when_moved(1).expect("the same behaviour");
        assert!(moved > 0);
    }
    let plan = function.case(BOTH, &points).plan();
    assert_eq!(plan.refused(), None);
    plan
}

/// The outcome for a point at `at`, without other probes.
fn outcome(function: &RandomFunction, at: u64) -> Result<Tactic, RefuseReason> {
    function.case(NONE, &[(at, 1)]).plan().points[0].outcome
}

/// An instruction whose second operand is at `at`, relative to the instruction pointer.
fn near(code: Code, register: Register, at: u64) -> Result<Instruction, IcedError> {
    let operand = MemoryOperand::with_base_displ(Register::RIP, at as i64);
    Instruction::with2(code, register, operand)
}

#[test]
fn a_loop_head_in_the_first_bytes() {
    let build = |a: &mut CodeAssembler| {
        let mut head = a.create_label();
        a.cwde()?;
        a.set_label(&mut head)?;
        a.and(ecx, 7)?;
        a.add(rax, rcx)?;
        a.adc(rdx, 3)?;
        a.dec(ecx)?;
        a.jns(head)?;
        a.ret()
    };
    pointed(build, &[1]);
    pointed(build, &[0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_conditional_jump_runs_its_hook_taken_or_not() {
    let build = |a: &mut CodeAssembler| {
        let mut out = a.create_label();
        a.test(edi, 1)?;
        a.jne(out)?;
        a.add(rax, rsi)?;
        a.imul_3(rdx, rax, 0x1234_5678)?;
        a.set_label(&mut out)?;
        a.xor(rax, rdx)?;
        a.ret()
    };
    pointed(build, &[1]);
}

/// For the exit alone, the jump would be retargeted, and its trampoline reached only if it is
/// taken.
#[test]
fn a_conditional_tail_jump_is_a_point_always_and_an_exit_when_taken() {
    let build = |a: &mut CodeAssembler| {
        for _ in 0..12 {
            a.add(rax, 0x1234_5678)?;
            a.xor(rdx, 0x1234_5678)?;
        }
        a.test(edi, 1)?;
        a.jne(TEXT + 0x40)?;
        a.lea(rcx, qword_ptr(rax + 4))?;
        a.ret()
    };
    let alone = random::fixed(|a| build(a).expect("encodes"));
    let plan = alone.case(BOTH, &[]).plan();
    assert_eq!(plan.exits[0].outcome, Ok(Tactic::Retarget));
    let plan = pointed(build, &[25]);
    assert_eq!(plan.points[0].point.at, plan.exits[0].point.at);
    assert_eq!(plan.points[0].outcome, Ok(Tactic::Window));
}

#[test]
fn a_tail_jump_is_a_point_and_an_exit() {
    let plan = pointed(
        |a| {
            for _ in 0..12 {
                a.add(rax, 0x1234_5678)?;
                a.xor(rdx, 0x1234_5678)?;
            }
            a.jmp(TEXT + 0x40)
        },
        &[24],
    );
    assert_eq!(plan.points[0].outcome, Ok(Tactic::Retarget));
}

#[test]
fn a_counting_jump() {
    let build = |a: &mut CodeAssembler| {
        let mut head = a.create_label();
        let mut out = a.create_label();
        a.and(ecx, 7)?;
        a.jrcxz(out)?;
        a.set_label(&mut head)?;
        a.add(rax, rcx)?;
        a.rol(rax, 7)?;
        a.loop_(head)?;
        a.set_label(&mut out)?;
        a.mov(rdx, rax)?;
        a.ret()
    };
    pointed(build, &[4]);
    pointed(build, &[1, 4]);
}

#[test]
fn a_counting_jump_to_itself() {
    pointed(
        |a| {
            let mut head = a.create_label();
            a.and(ecx, 7)?;
            a.inc(ecx)?;
            a.set_label(&mut head)?;
            a.loop_(head)?;
            a.mov(rax, qword_ptr(rbx + 8))?;
            a.ret()
        },
        &[2],
    );
}

#[test]
fn a_rip_relative_operand() {
    let plan = pointed(
        |a| {
            a.add_instruction(near(Code::Mov_r64_rm64, Register::RAX, DATA + 0x40)?)?;
            a.add_instruction(near(Code::Add_r64_rm64, Register::RDX, DATA + 0x48)?)?;
            a.ret()
        },
        &[0, 1],
    );
    assert_eq!(plan.points[1].outcome, Ok(Tactic::Window));
}

#[test]
fn the_entry_with_a_loop_to_it_is_passed_more_often_than_called() {
    let build = |marker: bool| {
        move |a: &mut CodeAssembler| {
            let mut head = a.create_label();
            if marker {
                a.endbr64()?;
            }
            a.set_label(&mut head)?;
            a.and(ecx, 7)?;
            a.add(rax, rcx)?;
            a.mov(rdx, qword_ptr(rbx + 0x100))?;
            a.dec(ecx)?;
            a.jns(head)?;
            a.add(rax, rdx)?;
            a.ret()
        }
    };
    let plan = pointed(build(false), &[0]);
    assert_eq!(plan.points[0].point.at, plan.entry.point.at);
    pointed(build(true), &[1, 5]);
    pointed(build(true), &[0]);
    pointed(build(true), &[0, 1]);
}

#[test]
fn a_landing_marker_that_is_jumped_to_is_refused() {
    let function = random::fixed(|a| {
        let mut head = a.create_label();
        a.set_label(&mut head).expect("fresh");
        a.endbr64().expect("encodes");
        a.dec(ecx).expect("encodes");
        a.mov(rdx, qword_ptr(rbx + 0x100)).expect("encodes");
        a.jns(head).expect("encodes");
        a.ret().expect("encodes");
    });
    let at = function.start;
    assert_eq!(outcome(&function, at), Err(RefuseReason::LoopToEntry));
}

#[test]
fn a_call_and_what_it_returns_to() {
    let build = |a: &mut CodeAssembler| {
        a.sub(rsp, 8)?;
        a.call(TEXT)?;
        a.add(rsp, 8)?;
        a.add(rax, rcx)?;
        a.ret()
    };
    let plan = pointed(build, &[1]);
    assert!(plan.sites[0].ends_in_call());
    let plan = pointed(build, &[2]);
    let returns_to = plan.points[0].point.at;
    assert!(plan.sites.iter().any(|s| s.window.start == returns_to));
    pointed(build, &[1, 2]);
    pointed(build, &[0, 1, 2, 3, 4]);
}

/// The call is too short for a jump, and no window may extend beyond it.
#[test]
fn a_call_through_a_register_and_what_it_returns_to() {
    let build = |a: &mut CodeAssembler| {
        a.add_instruction(near(Code::Lea_r64_m, Register::RDI, TEXT)?)?;
        a.sub(rsp, 8)?;
        a.call(rdi)?;
        a.cwde()?;
        a.add(rsp, 8)?;
        a.add(rax, rcx)?;
        a.ret()
    };
    for numbers in [&[2][..], &[3], &[2, 3], &[1, 2, 3, 4]] {
        let plan = pointed(build, numbers);
        let call = plan.function.range.start.plus(11);
        for site in plan.sites.iter().filter(|s| s.window.contains(&call)) {
            assert_eq!(site.window.end, call.plus(2));
        }
    }
}

/// There is no room for a jump between two calls, and their bytes must not be used.
#[test]
fn a_short_instruction_between_two_calls() {
    let function = random::fixed(|a| {
        let helper = near(Code::Lea_r64_m, Register::RDI, TEXT).expect("encodes");
        a.add_instruction(helper).expect("encodes");
        a.sub(rsp, 8).expect("encodes");
        a.call(rdi).expect("encodes");
        a.cwde().expect("encodes");
        a.call(rdi).expect("encodes");
        a.add(rsp, 8).expect("encodes");
        a.add(rax, rcx).expect("encodes");
        a.ret().expect("encodes");
    });
    let points = [(function.instructions()[3], 1)];
    let case = function.case(NONE, &points);
    let outcome = case.plan().points[0].outcome;
    assert!(
        matches!(outcome, Ok(Tactic::Springboard | Tactic::Pun)),
        "{outcome:?}"
    );
    for seed in 0..8 {
        case.same_with_probes(seed).expect("the same behaviour");
    }
}

#[test]
fn a_return_has_its_point_where_its_exit_is() {
    let plan = pointed(
        |a| {
            a.mov(rax, qword_ptr(rbx + 0x40))?;
            a.ret()
        },
        &[1],
    );
    assert_eq!(plan.points[0].point.at, plan.exits[0].point.at);
}

/// Entry, points and exit at the only instruction.
#[test]
fn a_function_of_one_byte() {
    pointed(|a| a.ret(), &[0, 0]);
}

#[test]
fn an_instruction_of_one_byte() {
    let build = |a: &mut CodeAssembler| {
        let mut out = a.create_label();
        a.mov(rax, qword_ptr(rbx + 0x40))?;
        a.test(edi, 1)?;
        a.jne(out)?;
        a.stc()?;
        a.set_label(&mut out)?;
        a.adc(rax, rdx)?;
        a.cwde()?;
        a.ret()
    };
    pointed(build, &[3]);
    pointed(build, &[5]);
    pointed(build, &[2, 3, 4, 5, 6]);
}

/// The red zone is live around every instruction.
#[test]
fn each_instruction_of_a_leaf_function() {
    let build = |a: &mut CodeAssembler| {
        a.mov(qword_ptr(rsp - 8), rdi)?;
        a.mov(qword_ptr(rsp - 128), rsi)?;
        a.cmp(rdi, rsi)?;
        a.mov(rax, qword_ptr(rsp - 8))?;
        a.cmovb(rax, qword_ptr(rsp - 128))?;
        a.setb(byte_ptr(rsp - 64))?;
        a.movzx(ecx, byte_ptr(rsp - 64))?;
        a.ret()
    };
    for number in 0..8 {
        pointed(build, &[number]);
    }
    pointed(build, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn what_begins_no_instruction_of_the_function_is_refused() {
    let function = random::fixed(|a| {
        a.mov(rax, qword_ptr(rbx + 0x40)).expect("encodes");
        a.ret().expect("encodes");
    });
    for at in [
        function.start + 1,
        function.end,
        function.start - 1,
        0,
        u64::MAX,
    ] {
        let refused = outcome(&function, at);
        assert_eq!(refused, Err(RefuseReason::NotAnInstruction), "{at:#x}");
    }
    assert_eq!(outcome(&function, function.start), Ok(Tactic::Window));
}

#[test]
fn what_no_path_reaches_is_refused() {
    let function = random::fixed(|a| {
        a.mov(rax, qword_ptr(rbx + 0x40)).expect("encodes");
        a.ret().expect("encodes");
        a.add(rax, 0x1234_5678).expect("encodes");
        a.ret().expect("encodes");
    });
    let dead = function.instructions()[2];
    assert_eq!(outcome(&function, dead), Err(RefuseReason::DataInCode));
}

#[test]
fn a_system_call_stays_where_it_is() {
    let function = random::fixed(|a| {
        a.mov(eax, 39).expect("encodes");
        a.syscall().expect("encodes");
        a.mov(rdx, qword_ptr(rbx + 0x40)).expect("encodes");
        a.ret().expect("encodes");
    });
    let call = function.instructions()[1];
    assert_eq!(outcome(&function, call), Err(RefuseReason::Immovable));
}

#[test]
fn points_need_a_stub() {
    let function = random::fixed(|a| a.ret().expect("encodes"));
    let plan = function.case(NONE, &[(function.start, 1)]).plan();
    let hooks = Hooks {
        entry_cell: Avma(0x10_0000),
        exit_cell: Avma(0x10_0008),
        tail_cell: Avma(0x10_0008),
        lend_cell: Avma(0x10_0008),
        point_cell: None,
        span_cells: None,
        timed_path_cells: None,
        counts: None,
        id: 1,
    };
    let emitted = plan.sites[0].emit(Bias(0), Avma(0x10_0010), &hooks);
    let at = Bias(0).to_avma(Svma(function.start));
    assert_eq!(emitted, Err(EmitError::NoPointStub { at }));
}

/// If nothing else has room, all probes at the instruction share one breakpoint.
#[test]
fn breakpoints_are_shared_by_all_probes_of_an_instruction() {
    let mut function = random::fixed(|a| a.ret().expect("encodes"));
    // The bytes after the end of the text are not known.
    let text = (DATA - TEXT) as usize;
    function.code.resize(text - 1, 0xcc);
    function.code.push(0xc3);
    (function.start, function.end) = (DATA - 1, DATA);
    let points = [(DATA - 1, 2), (DATA - 1, 1)];
    let case = function.case(BOTH, &points);
    let mut plan = case.plan();
    assert_eq!(plan.points[0].outcome, Err(RefuseReason::TooShort));
    let file = case.file();
    let image = Image::parse(&file).expect("an ELF file");
    plan.allow_traps(&image, &ModuleContext::new(&image));
    assert_eq!(plan.refused(), None);
    let [site] = &plan.sites[..] else {
        panic!("one site: {:?}", plan.sites);
    };
    assert_eq!(site.tactic, Tactic::Trap);
    let points = site.points.clone();
    let order = [plan.entry, plan.points[1], plan.points[0], plan.exits[0]];
    assert_eq!(points, order.map(|p| p.point));
}

#[test]
fn most_random_points_can_be_had() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        seed ^ seed >> 29
    };
    let (mut had, mut all) = (0, 0);
    for _ in 0..500 {
        let seeds: Vec<u64> = (0..12).map(|_| next()).collect();
        let function = random::function(&seeds);
        for at in function.instructions() {
            let outcome = outcome(&function, at);
            // Many functions have dead code, which may be data.
            all += usize::from(outcome != Err(RefuseReason::DataInCode));
            had += usize::from(outcome.is_ok());
        }
    }
    assert!(had * 100 > all * 95, "{had} of {all}");
}
