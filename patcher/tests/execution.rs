//! Random functions behave the same with and without probes, and run each hook exactly once.

#[path = "execution/harness.rs"]
mod harness;
#[path = "execution/machine.rs"]
mod machine;
#[path = "execution/points.rs"]
mod points;
mod program;
#[path = "execution/random.rs"]
mod random;
#[path = "execution/stepping.rs"]
mod stepping;

use patcher::plan::{Effects, FunctionPlan, RefuseReason, Tactic};
use proptest::prelude::*;

use harness::{BOTH, Case, patches, prepare};
use iced_x86::code_asm::*;
use machine::{Machine, MachineState};
use program::{DATA, TEXT};

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_functions_run_the_same(
        seeds in prop::collection::vec(any::<u64>(), 2..24),
        seed in any::<u64>(),
    ) {
        random::function(&seeds).case(BOTH, &[]).same_with_probes(seed)?;
    }
}

fn fixed(build: impl FnOnce(&mut iced_x86::code_asm::CodeAssembler)) -> FunctionPlan {
    let function = random::fixed(build);
    let case = function.case(BOTH, &[]);
    for seed in 0..20 {
        case.same_with_probes(seed).expect("the same behaviour");
    }
    let plan = case.plan();
    assert_eq!(plan.refused(), None);
    plan
}

#[test]
fn a_loop_to_the_entry_is_one_call() {
    let plan = fixed(|a| {
        let mut head = a.create_label();
        a.set_label(&mut head).expect("fresh");
        a.and(ecx, 7).expect("encodes");
        a.add(rax, rcx).expect("encodes");
        a.dec(ecx).expect("encodes");
        a.mov(rdx, rax).expect("encodes");
        a.jns(head).expect("encodes");
        a.ret().expect("encodes");
    });
    assert_eq!(plan.exits.len(), 1);
}

#[test]
fn a_loop_to_an_entry_after_a_landing_marker_is_one_call() {
    let plan = fixed(|a| {
        let mut head = a.create_label();
        a.set_label(&mut head).expect("fresh");
        a.endbr64().expect("encodes");
        a.and(ecx, 7).expect("encodes");
        a.add(rax, rcx).expect("encodes");
        a.mov(rdx, qword_ptr(rbx + 0x100)).expect("encodes");
        a.dec(ecx).expect("encodes");
        a.jns(head).expect("encodes");
        a.add(rax, rdx).expect("encodes");
        a.ret().expect("encodes");
    });
    let entry = plan.function.range.start.plus(4);
    assert!(plan.sites.iter().any(|s| s.window.start == entry));
}

/// A landing marker and a short jump, with no free bytes after them. Compilers generate this for a
/// function identical to another. The entry must be available both with and without the exit.
#[test]
fn an_entry_without_room_takes_the_landing_marker_before_it() {
    // endbr64; jmp to the next function: add rax, rdi; ret
    let body: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0xeb, 0x00];
    let next: &[u8] = &[0x48, 0x01, 0xf8, 0xc3];
    let code = [body, next].concat();
    let end = TEXT + body.len() as u64;
    let entry = Effects {
        entry: true,
        exits: false,
    };
    for want in [BOTH, entry] {
        let case = Case {
            code: &code,
            start: TEXT,
            end,
            rest: &[("next", end, next.len() as u64)],
            want,
            points: &[],
        };
        let plan = case.plan();
        assert_eq!(plan.refused(), None, "{want:?}");
        assert_eq!(plan.entry.outcome, Ok(Tactic::Window), "{want:?}");
        for seed in 0..20 {
            case.same_with_probes(seed).expect("the same behaviour");
            case.same_when_moved(seed).expect("the same behaviour");
        }
    }
}

/// Two returns without room, close to a range that has room for a landing.
#[test]
fn returns_without_room_take_springboards() {
    let plan = fixed(|a| {
        let mut one = a.create_label();
        let mut two = a.create_label();
        a.mov(rax, qword_ptr(rbx + 0x40)).expect("encodes");
        a.test(ecx, 1).expect("encodes");
        a.jne(one).expect("encodes");
        a.add(rax, 0x1234_5678).expect("encodes");
        a.add(rdx, 0x1234_5678).expect("encodes");
        a.test(ecx, 2).expect("encodes");
        a.jne(two).expect("encodes");
        a.sub(rsi, 0x1234_5678).expect("encodes");
        a.ret().expect("encodes");
        a.set_label(&mut one).expect("fresh");
        a.push(rdx).expect("encodes");
        a.pop(rax).expect("encodes");
        a.ret().expect("encodes");
        a.set_label(&mut two).expect("fresh");
        a.cwde().expect("encodes");
        a.ret().expect("encodes");
    });
    let springboards = plan
        .sites
        .iter()
        .filter(|s| s.tactic == Tactic::Springboard)
        .count();
    assert_eq!(springboards, 2, "{:?}", plan.exits);
}

/// Functions of one to four bytes, with up to four bytes of padding. If a jump does not fit, a pun
/// does, and the bytes after it stay unchanged.
#[test]
fn tiny_function_is_punned_if_it_has_no_room_for_a_jump() {
    let bodies: [&[u8]; 6] = [
        &[0xc3],                   // ret
        &[0xf3, 0xc3],             // rep ret
        &[0x98, 0xc3],             // cwde; ret
        &[0x31, 0xc0, 0xc3],       // xor eax, eax; ret
        &[0x48, 0x89, 0xf8, 0xc3], // mov rax, rdi; ret
        &[0x50, 0x58, 0x98, 0xc3], // push rax; pop rax; cwde; ret
    ];
    let mut puns = 0;
    for (body, pad) in bodies.iter().flat_map(|b| (0..5).map(move |pad| (b, pad))) {
        let mut code = body.to_vec();
        code.resize(body.len() + pad, 0x90);
        let next = TEXT + code.len() as u64;
        // add rax, [rbx + 8]; xor [rbx + 16], rax; ret
        code.extend([0x48, 0x03, 0x43, 0x08, 0x48, 0x31, 0x43, 0x10, 0xc3]);
        let case = Case {
            code: &code,
            start: TEXT,
            end: TEXT + body.len() as u64,
            rest: &[("next", next, 9)],
            want: BOTH,
            points: &[],
        };
        for seed in 0..20 {
            case.same_with_probes(seed).expect("the same behaviour");
        }
        let (file, plan) = (case.file(), case.plan());
        assert_eq!(plan.refused(), None, "{body:x?} {pad}");
        let mut machine = Machine::new(&file);
        let before = MachineState::random(1);
        let plain = (machine.run(next, &before), machine.read(DATA, 0x1000));
        machine.load(&file);
        for patch in patches(&prepare(&mut machine, &plan).expect("room")) {
            machine.write(patch.at.0 - machine.base(), &patch.new);
        }
        let beside = (machine.run(next, &before), machine.read(DATA, 0x1000));
        assert_eq!(plain, beside, "{body:x?} {pad}");
        let is_pun = body.len() + pad < 5;
        let punned = plan.sites.iter().any(|s| s.tactic == Tactic::Pun);
        assert_eq!(is_pun, punned, "{body:x?} {pad}: {:?}", plan.sites);
        puns += usize::from(punned);
    }
    assert!(puns > 10, "{puns}");
}

/// The bytes after the end of a file's text are not known, so a pun cannot depend on them.
#[test]
fn a_tiny_function_at_the_end_of_the_text_is_refused() {
    let mut code = vec![0xcc; (DATA - TEXT) as usize - 1];
    code.push(0xc3);
    let case = Case {
        code: &code,
        start: DATA - 1,
        end: DATA,
        rest: &[],
        want: BOTH,
        points: &[],
    };
    let refused = case.plan().refused();
    assert_eq!(refused.map(|r| r.1), Some(RefuseReason::TooShort));
}

#[test]
fn most_random_functions_can_be_had_completely() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        seed ^ seed >> 29
    };
    let complete = (0..500).filter(|_| {
        let seeds: Vec<u64> = (0..12).map(|_| next()).collect();
        let function = random::function(&seeds);
        let plan = function.case(BOTH, &[]).plan();
        plan.refused().is_none()
    });
    // Otherwise, a function would be compared with itself. Many random functions have dead code
    // between two returns, which may be data and is in no window.
    let complete = complete.count();
    assert!(complete > 300, "{complete} of 500");
}

/// The jump back is patched before the window is overwritten, although it has a higher address.
#[test]
fn a_loop_head_in_the_first_bytes_is_led_to_a_copy() {
    let plan = fixed(|a| {
        let mut head = a.create_label();
        a.cwde().expect("encodes");
        a.set_label(&mut head).expect("fresh");
        a.and(ecx, 7).expect("encodes");
        a.add(rax, rcx).expect("encodes");
        a.adc(rdx, 3).expect("encodes");
        a.dec(ecx).expect("encodes");
        a.jns(head).expect("encodes");
        a.ret().expect("encodes");
    });
    let starts: Vec<_> = plan.sites.iter().map(|s| s.window.start).collect();
    assert!(starts[0] > starts[1], "{starts:?}");
}

#[test]
fn a_return_that_is_jumped_to_has_its_exit() {
    fixed(|a| {
        let mut out = a.create_label();
        a.mov(eax, 22).expect("encodes");
        a.cmp(esi, 1).expect("encodes");
        a.ja(out).expect("encodes");
        a.mov(eax, ecx).expect("encodes");
        a.xor(eax, eax).expect("encodes");
        a.set_label(&mut out).expect("fresh");
        a.ret().expect("encodes");
    });
}

#[test]
fn conditional_tail_jumps_are_exits_only_when_taken() {
    let plan = fixed(|a| {
        a.add(rax, rsi).expect("encodes");
        a.test(edi, 1).expect("encodes");
        a.jne(TEXT + 0x40).expect("encodes");
        a.lea(rcx, qword_ptr(rax + 4)).expect("encodes");
        a.ret().expect("encodes");
    });
    assert_eq!(plan.exits.len(), 2);
}

#[test]
fn a_call_in_the_window_returns_to_the_original_address() {
    let plan = fixed(|a| {
        a.sub(rsp, 8).expect("encodes");
        a.call(TEXT).expect("encodes");
        a.add(rsp, 8).expect("encodes");
        a.add(rax, rcx).expect("encodes");
        a.ret().expect("encodes");
    });
    assert!(plan.sites[0].ends_in_call());
}

/// Hooks of exits push, and would overwrite memory that may still be used here.
#[test]
fn exits_with_something_below_the_stack_pointer_are_refused() {
    // mov [rsp - 8], rax; jmp [rsp - 8]
    let jumps: &[u8] = &[0x48, 0x89, 0x44, 0x24, 0xf8, 0xff, 0x64, 0x24, 0xf8];
    // mov [rsp - 8], rax, falling through into the next function
    let runs_on: &[u8] = &[0x48, 0x89, 0x44, 0x24, 0xf8];
    // mov rax, [rsp - 8]; ret
    let next: &[u8] = &[0x48, 0x8b, 0x44, 0x24, 0xf8, 0xc3];
    for body in [jumps, runs_on] {
        let code = [body, next].concat();
        let end = TEXT + body.len() as u64;
        let case = Case {
            code: &code,
            start: TEXT,
            end,
            rest: &[("next", end, next.len() as u64)],
            want: BOTH,
            points: &[],
        };
        let refused = case.plan().refused();
        assert_eq!(
            refused.map(|r| r.1),
            Some(RefuseReason::RedZone),
            "{body:x?}"
        );
    }
}
