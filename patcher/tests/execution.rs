//! Random functions do the same with and without probes, and run each hook exactly once.

#[path = "execution/machine.rs"]
mod machine;
mod program;
#[path = "execution/random.rs"]
mod random;

use patcher::emit::{Hooks, Patch, Place};
use patcher::function::{Function, FunctionKind};
use patcher::image::Image;
use patcher::plan::{Effects, FunctionPlan, ModuleContext, RefuseReason, Tactic, plan};
use patcher::{Avma, Bias, Svma};
use proptest::prelude::*;

use iced_x86::code_asm::*;
use machine::{Machine, State};
use program::{DATA, TEXT, TRAMPOLINES};

/// Plans the function `name` of `file`.
fn planned(file: &[u8], name: &str, range: std::ops::Range<u64>) -> FunctionPlan {
    let image = Image::parse(file).expect("an ELF file");
    let context = ModuleContext::new(&image);
    let function = Function {
        range: Svma(range.start)..Svma(range.end),
        linkage: name.to_owned(),
        aliases: Vec::new(),
        kind: FunctionKind::Code,
        cold: Vec::new(),
    };
    plan(
        &image,
        &context,
        &function,
        Effects {
            entry: true,
            exits: true,
        },
    )
}

/// Writes the trampolines of `plan` into `machine`, whose bytes must be what the patches expect;
/// gives the patches in the order in which they are to be written. `None` where a pun leads to
/// where there is no room.
fn prepare(machine: &mut Machine, plan: &FunctionPlan) -> Option<Vec<Patch>> {
    let bias = Bias(machine.base());
    let mut at = TRAMPOLINES + 0x100;
    let mut patches = Vec::new();
    for site in &plan.sites {
        let hooks = Hooks {
            entry_cell: Avma(machine.base() + TRAMPOLINES),
            exit_cell: Avma(machine.base() + TRAMPOLINES + 8),
            point_cell: None,
            id: 7,
        };
        let stone = match &site.pun {
            Some(pun) => {
                let targets = pun.targets(bias).expect("in user space");
                Some(machine.stone(targets.start.0..targets.end.0)?)
            }
            None => None,
        };
        let place = Place {
            trampoline: Avma(machine.base() + at),
            stone: stone.map(Avma),
        };
        let emitted = site
            .emit(bias, place, &hooks)
            .expect("trampolines are near");
        assert!(emitted.code.len() <= site.max_len());
        if let Some(stone) = stone {
            machine.write_stone(stone, &emitted.stone);
        }
        machine.write(at, &emitted.code);
        for patch in &emitted.patches {
            let offset = patch.at.0 - machine.base();
            assert_eq!(machine.read(offset, patch.old.len()), patch.old);
        }
        patches.extend(emitted.patches);
        at += site.max_len() as u64;
    }
    Some(patches)
}

/// Runs `code` as it is, with probes, and with the first ones of the patches alone, as when the one
/// who writes them is killed, always from the same state, and compares everything. Gives the number
/// of patches.
fn same_with_probes(
    code: &[u8],
    start: u64,
    end: u64,
    rest: &[program::Symbol<'_>],
    seed: u64,
) -> Result<usize, TestCaseError> {
    let mut symbols = vec![("f", start, end - start)];
    symbols.extend(rest);
    let file = program::elf(code, &symbols);
    let plan = planned(&file, "f", start..end);
    // One mapping for both, so that addresses that get into registers are the same as well.
    let mut machine = Machine::new(&file);
    let before = State::random(seed);
    let plain = (machine.run(start, &before), machine.read(DATA, 0x1000));
    machine.load(&file);
    let patches = prepare(&mut machine, &plan);
    // Too many that have no room fail the test.
    prop_assume!(patches.is_some());
    let patches = patches.unwrap_or_default();
    for written in 0..=patches.len() {
        if let Some(patch) = written.checked_sub(1).map(|last| &patches[last]) {
            machine.write(patch.at.0 - machine.base(), &patch.new);
        }
        machine.reset(&file);
        let probed = (machine.run(start, &before), machine.read(DATA, 0x1000));
        prop_assert_eq!(&plain, &probed, "{} of {}", written, patches.len());
    }
    let (entries, exits) = machine.hooks_run();
    if plan.entry.outcome.is_ok() {
        prop_assert_eq!(entries, 1);
    }
    if plan.exits.iter().all(|e| e.outcome.is_ok()) {
        prop_assert_eq!(exits, 1);
    }
    Ok(patches.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_functions_run_the_same(
        seeds in prop::collection::vec(any::<u64>(), 2..24),
        seed in any::<u64>(),
    ) {
        let function = random::function(&seeds);
        let helpers = [("helper", TEXT, random::HELPER), ("tail", TEXT + 0x40, random::HELPER)];
        same_with_probes(&function.code, function.start, function.end, &helpers, seed)?;
    }
}

fn fixed(build: impl FnOnce(&mut iced_x86::code_asm::CodeAssembler)) -> FunctionPlan {
    let function = random::fixed(build);
    let helpers = [
        ("helper", TEXT, random::HELPER),
        ("tail", TEXT + 0x40, random::HELPER),
    ];
    for seed in 0..20 {
        same_with_probes(&function.code, function.start, function.end, &helpers, seed)
            .expect("the same behaviour");
    }
    let mut symbols = vec![("f", function.start, function.end - function.start)];
    symbols.extend(helpers);
    let file = program::elf(&function.code, &symbols);
    let plan = planned(&file, "f", function.start..function.end);
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
fn a_loop_to_an_entry_behind_a_landing_marker_is_one_call() {
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
    let behind = plan.function.range.start.plus(4);
    assert!(plan.sites.iter().any(|s| s.window.start == behind));
}

/// Two returns of which neither has room, close to a stretch that can hold a landing.
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

/// Functions of one to four bytes, with up to four bytes of padding: what has no room for a jump
/// has room for a pun, and what follows stays as it is.
#[test]
fn tiny_function() {
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
        let symbols = [("next", next, 9)];
        let end = TEXT + body.len() as u64;
        for seed in 0..20 {
            same_with_probes(&code, TEXT, end, &symbols, seed).expect("the same behaviour");
        }
        let file = program::elf(&code, &[("f", TEXT, body.len() as u64), symbols[0]]);
        let plan = planned(&file, "f", TEXT..end);
        assert_eq!(plan.refused(), None, "{body:x?} {pad}");
        let mut machine = Machine::new(&file);
        let before = State::random(1);
        let plain = (machine.run(next, &before), machine.read(DATA, 0x1000));
        machine.load(&file);
        for patch in prepare(&mut machine, &plan).expect("room") {
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

/// Behind the last byte of a file's text nothing is known, so nothing can be built on it.
#[test]
fn a_tiny_function_at_the_end_of_the_text_is_refused() {
    let mut code = vec![0xcc; (DATA - TEXT) as usize - 1];
    code.push(0xc3);
    let file = program::elf(&code, &[("f", DATA - 1, 1)]);
    let refused = planned(&file, "f", DATA - 1..DATA).refused();
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
        let file = program::elf(
            &function.code,
            &[("f", function.start, function.end - function.start)],
        );
        planned(&file, "f", function.start..function.end)
            .refused()
            .is_none()
    });
    // Otherwise the comparison would compare a function with itself. Many of them have dead code
    // between two returns, which may be data as well and is in no window.
    let complete = complete.count();
    assert!(complete > 300, "{complete} of 500");
}

/// The jump back is led away before the window is overwritten, although it stands behind it.
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
