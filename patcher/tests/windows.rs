//! Properties of all bytes that plans overwrite, over all functions of real libraries. Windows
//! never overlap. According to another decoder, no branch leads into one. Undoing restores the
//! bytes.

mod libraries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use capstone::arch::x86::{ArchMode, X86OperandType};
use capstone::arch::{ArchOperand, BuildsCapstone};
use capstone::{Capstone, InsnGroupType};
use patcher::emit::{CodePlace, Hooks, Patch};
use patcher::image::Image;
use patcher::plan::{Allowed, Effects, FunctionPlan, ModuleContext, Tactic, plan_points};
use patcher::{Avma, Bias, Svma};

/// The assumed load bias of the module. The trampolines are 1 GiB higher.
const BIAS: Bias = Bias(0x7f00_0000_0000);
const TRAMPOLINES: u64 = BIAS.0 + (1 << 30);

fn plans(image: &Image<'_>) -> Vec<FunctionPlan> {
    let context = ModuleContext::new(image);
    let want = Effects {
        entry: true,
        exits: true,
    };
    image
        .functions()
        .iter()
        .enumerate()
        .map(|(index, function)| {
            // Every other plan has points.
            let mut points = libraries::points(image, &function);
            points.retain(|_| index % 2 == 1);
            plan_points(image, &context, &function, (want, &points), Allowed::ALL)
        })
        .collect()
}

/// The patches of all sites of `plan`, with trampolines from `at` on. Moves `at` behind them.
fn patches(plan: &FunctionPlan, at: &mut u64) -> Vec<Patch> {
    let mut all = Vec::new();
    for site in &plan.sites {
        let hooks = Hooks {
            entry_cell: Avma(TRAMPOLINES - 16),
            exit_cell: Avma(TRAMPOLINES - 8),
            tail_cell: Avma(TRAMPOLINES - 24),
            lend_cell: Avma(TRAMPOLINES - 24),
            point_cell: Some(Avma(TRAMPOLINES - 24)),
            span_cells: None,
            timed_path_cells: None,
            counts: None,
            id: 1,
        };
        let targets = site.pun.as_ref().map(|pun| pun.targets(BIAS));
        let place = CodePlace {
            trampoline: Avma(*at),
            stone: targets.map(|t| t.expect("in user space").start),
        };
        let emitted = site.emit(BIAS, place, &hooks).expect("in reach");
        assert!(emitted.code.len() <= site.max_len(), "{:?}", site.window);
        *at += site.max_len() as u64;
        // A thread that has taken the short jump to a landing goes back when the patches are
        // undone.
        let window = BIAS.to_avma(site.window.start)..BIAS.to_avma(site.window.end);
        for patch in emitted.patches.iter().filter(|p| !window.contains(&p.at)) {
            let mut pairs = emitted.hook_starts.iter();
            let back = pairs.find(|pair| pair.trampoline == patch.at);
            assert_eq!(
                back.map(|pair| pair.original),
                Some(window.start),
                "{patch:?}"
            );
        }
        all.extend(emitted.patches);
    }
    all
}

type Program = (&'static str, Vec<u8>);

/// Libraries and programs of this machine, and the program compiled for these tests.
static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let mut all = vec![("libc.so.6", libraries::libc())];
    for name in ["libstdc++.so.6", "libcrypto.so.3"] {
        all.extend(libraries::library(name).map(|data| (name, data)));
    }
    // This one is not position-independent, is stripped, and has a profile-guided layout.
    all.extend(
        std::fs::read("/usr/bin/python3.11")
            .ok()
            .map(|data| ("python3.11", data)),
    );
    for optimization in ["-O0", "-O2", "-O3", "-Os"] {
        all.extend(libraries::compiled(optimization).map(|data| (optimization, data)));
    }
    all
});

#[test]
fn undoing_a_plan_gives_the_same_bytes() {
    for (name, data) in PROGRAMS.iter() {
        let image = Image::parse(data).expect("an ELF image");
        let mut at = TRAMPOLINES;
        let mut written = 0;
        for plan in plans(&image) {
            let mut memory: BTreeMap<u64, u8> = BTreeMap::new();
            let patches = patches(&plan, &mut at);
            for patch in &patches {
                assert_eq!(patch.old.len(), patch.new.len());
                let svma = BIAS.to_svma(patch.at);
                let original = image
                    .bytes(svma, patch.old.len() as u64)
                    .expect("in the file");
                assert_eq!(original, patch.old, "{name} {svma}");
                for (offset, byte) in patch.new.iter().enumerate() {
                    // No two patches write the same byte, so they can be undone in any order.
                    let before = memory.insert(patch.at.0 + offset as u64, *byte);
                    assert_eq!(before, None, "{name} {}", plan.function.linkage);
                }
            }
            for patch in &patches {
                memory.extend((patch.at.0..).zip(patch.old.iter().copied()));
            }
            for (at, byte) in &memory {
                let svma = BIAS.to_svma(Avma(*at));
                assert_eq!(image.bytes(svma, 1), Some(&[*byte][..]));
            }
            written += memory.len();
        }
        assert!(written > 0, "{name} has no patches");
    }
}

#[test]
fn windows_never_overlap() {
    let mut puns = 0;
    for (name, data) in PROGRAMS.iter() {
        let image = Image::parse(data).expect("an ELF image");
        // Functions whose symbols overlap share bytes and cannot both be instrumented.
        let mut owner: HashMap<u64, (Svma, usize)> = HashMap::new();
        for (index, plan) in plans(&image).iter().enumerate() {
            let own: Vec<Range<Svma>> = plan.function.ranges().cloned().collect();
            for (number, site) in plan.sites.iter().enumerate() {
                let tag = (plan.function.range.start, index << 16 | number);
                let hosted = |at: u64| {
                    plan.sites.iter().any(|other| {
                        other
                            .landing
                            .as_ref()
                            .is_some_and(|l| l.contains(&Svma(at)))
                    })
                };
                for at in site.window.start.0..site.window.end.0 {
                    let within = own.iter().any(|r| r.contains(&Svma(at)));
                    if let Some(before) = owner.insert(at, tag) {
                        assert!(
                            before.0 != tag.0 && within,
                            "{name} {at:#x}: windows of {:x} and {:x} overlap",
                            before.0,
                            tag.0,
                        );
                    }
                }
                // The bytes that a pun depends on stay, no matter whose they are.
                if let Some(pun) = &site.pun {
                    assert_eq!(pun.depends.end, site.window.start.plus(5));
                    let bytes = image.bytes(pun.depends.start, pun.bytes.len() as u64);
                    assert_eq!(bytes, Some(&pun.bytes[..]), "{name}");
                    for at in pun.depends.start.0..pun.depends.end.0 {
                        let window = plan.sites.iter().find(|s| s.window.contains(&Svma(at)));
                        assert_eq!(window, None, "{name} {at:#x}");
                        assert!(!hosted(at), "{name} {at:#x}");
                    }
                    puns += 1;
                }
                if let Some(landing) = &site.landing {
                    for at in landing.start.0..landing.end.0 {
                        assert!(hosted(at));
                        let window = plan.sites.iter().find(|s| s.window.contains(&Svma(at)));
                        let jump = window.map(|s| match s.tactic {
                            Tactic::Springboard => s.window.start.0..s.window.start.0 + 2,
                            _ => s.window.start.0..s.window.start.0 + 5,
                        });
                        assert!(jump.is_none_or(|j| !j.contains(&at)), "{name} {at:#x}");
                    }
                }
            }
        }
    }
    assert!(puns > 20, "puns are among what is tested: {puns}");
}

/// The targets of all direct branches in `functions`, each with its sources, according to capstone.
fn branches(
    image: &Image<'_>,
    functions: impl Iterator<Item = Range<Svma>>,
) -> HashMap<u64, Vec<u64>> {
    let capstone = Capstone::new()
        .x86()
        .mode(ArchMode::Mode64)
        .detail(true)
        .build();
    let capstone = capstone.expect("capstone");
    let mut found: HashMap<u64, Vec<u64>> = HashMap::new();
    for range in functions {
        let Some(bytes) = image.bytes(range.start, range.end.0 - range.start.0) else {
            continue;
        };
        let Ok(insns) = capstone.disasm_all(bytes, range.start.0) else {
            continue;
        };
        for insn in insns.iter() {
            let detail = capstone.insn_detail(insn).expect("detail");
            let jump = |g: &capstone::InsnGroupId| {
                let group = u32::from(g.0);
                group == InsnGroupType::CS_GRP_JUMP || group == InsnGroupType::CS_GRP_CALL
            };
            if !detail.groups().iter().any(jump) {
                continue;
            }
            for operand in detail.arch_detail().operands() {
                if let ArchOperand::X86Operand(operand) = operand
                    && let X86OperandType::Imm(to) = operand.op_type
                {
                    found.entry(to as u64).or_default().push(insn.address());
                }
            }
        }
    }
    found
}

#[test]
fn no_branch_another_decoder_sees_lands_inside_a_window() {
    let (mut led, mut hosted) = (0, 0);
    for (name, data) in PROGRAMS.iter() {
        let image = Image::parse(data).expect("an ELF image");
        let ranges = image
            .functions()
            .iter()
            .flat_map(|f| f.ranges().cloned().collect::<Vec<_>>());
        let mut seen = HashSet::new();
        let branches = branches(&image, ranges.filter(|r| seen.insert(r.start)));
        for plan in plans(&image) {
            // A jump that a site of the same plan displaces leads to a copy once that site is
            // written.
            let site_at = |at: u64| plan.sites.iter().position(|s| s.window.contains(&Svma(at)));
            for (index, site) in plan.sites.iter().enumerate() {
                let landing = site.landing.clone().unwrap_or(Svma(0)..Svma(0));
                if let Some(host) = site_at(landing.start.0) {
                    assert!(host < index, "{name}: {landing:?} is left over too late");
                    hosted += 1;
                }
                // In a retargeted jump, only the displacement changes.
                let inside = site.window.start.0 + 1..site.window.end.0;
                for at in inside.chain(landing.start.0..landing.end.0) {
                    for &from in branches.get(&at).into_iter().flatten() {
                        let led_away = site_at(from).is_some_and(|before| before <= index);
                        assert!(led_away, "{name}: {from:#x} lands at {at:#x}");
                        led += 1;
                    }
                }
            }
        }
    }
    assert!(
        led > 100,
        "jumps led to copies are among what is tested: {led}"
    );
    assert!(hosted > 20, "so are landings in windows: {hosted}");
}

/// Ranges of bytes between functions that control falls through into, according to another decoder,
/// each with the preceding function.
fn run_into(image: &Image<'_>) -> Vec<(Range<u64>, Svma)> {
    let capstone = Capstone::new()
        .x86()
        .mode(ArchMode::Mode64)
        .detail(true)
        .build();
    let capstone = capstone.expect("capstone");
    let ranges: Vec<Range<Svma>> = image.functions().iter().map(|f| f.range).collect();
    let mut found = Vec::new();
    for (range, next) in ranges.iter().zip(&ranges[1..]) {
        let Some(bytes) = image.bytes(range.start, range.end.0 - range.start.0) else {
            continue;
        };
        let insns = capstone
            .disasm_all(bytes, range.start.0)
            .expect("disassembly");
        let Some(last) = insns.last() else { continue };
        let detail = capstone.insn_detail(last).expect("detail");
        let is = |wanted| detail.groups().iter().any(|g| u32::from(g.0) == wanted);
        let conditional = || last.mnemonic() != Some("jmp");
        let stops = [
            is(InsnGroupType::CS_GRP_JUMP) && !conditional(),
            is(InsnGroupType::CS_GRP_CALL),
            is(InsnGroupType::CS_GRP_RET),
            is(InsnGroupType::CS_GRP_INT),
            matches!(last.mnemonic(), Some("hlt" | "ud2" | "nop" | "int3")),
        ];
        let complete = last.address() + last.bytes().len() as u64 == range.end.0;
        if complete && !stops.contains(&true) && range.end < next.start {
            found.push((range.end.0..next.start.0, range.start));
        }
    }
    found
}

#[test]
fn no_padding_that_is_run_into_is_used_for_another_function() {
    let mut seen = 0;
    for (name, data) in PROGRAMS.iter() {
        let image = Image::parse(data).expect("an ELF image");
        let run_into = run_into(&image);
        seen += run_into.len();
        for plan in plans(&image) {
            let own = plan.function.range.start;
            for site in &plan.sites {
                let landing = site.landing.clone().into_iter();
                for written in landing.chain([site.window.clone()]) {
                    let hit = run_into.iter().find(|(range, function)| {
                        let overlaps = range.start < written.end.0 && written.start.0 < range.end;
                        overlaps && *function != own
                    });
                    assert!(
                        hit.is_none(),
                        "{name} {own:x}: {written:x?} is run into from {hit:x?}"
                    );
                }
            }
        }
    }
    assert!(seen > 10, "hand-written code of libc runs on: {seen}");
}
