//! Runs a function without and with probes, and compares the results.

use std::collections::BTreeSet;

use patcher::emit::{CodePlace, Emitted, Hooks, Patch};
use patcher::function::{Function, FunctionKind};
use patcher::image::Image;
use patcher::plan::{Allowed, Effects, FunctionPlan, ModuleContext, plan_points};
use patcher::{Avma, Bias, Svma};
use proptest::prelude::*;

use super::machine::{self, ENTERED, LEFT, Machine, MachineState, TAILED};
use super::program::{self, DATA, LOG, TEXT};
use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// Entry and all exits.
pub const BOTH: Effects = Effects {
    entry: true,
    exits: true,
};

/// A function, and the probes wanted in it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The code of the program.
    pub code: &'a [u8],
    /// The function's first address.
    pub start: u64,
    /// The address after the function.
    pub end: u64,
    /// Other functions of the program.
    pub rest: &'a [program::Symbol<'a>],
    pub want: Effects,
    /// The wanted points: addresses of instructions, and numbers below [`ENTERED`].
    pub points: &'a [(u64, u8)],
}

impl Case<'_> {
    /// The program as an ELF file.
    pub fn file(&self) -> Vec<u8> {
        let mut symbols = vec![("f", self.start, self.end - self.start)];
        symbols.extend(self.rest);
        program::elf(self.code, &symbols)
    }

    pub fn plan(&self) -> FunctionPlan {
        let file = self.file();
        let image = Image::parse(&file).expect("an ELF file");
        let context = ModuleContext::new(&image);
        let function = Function {
            range: Svma(self.start)..Svma(self.end),
            linkage: "f".to_owned(),
            aliases: Vec::new(),
            kind: FunctionKind::Code,
            cold: Vec::new(),
        };
        let points = self.points.iter();
        let points: Vec<_> = points.map(|&(at, n)| (Svma(at), u32::from(n))).collect();
        plan_points(
            &image,
            &context,
            &function,
            (self.want, &points),
            Allowed::ALL,
        )
    }

    /// Compares a run without probes to runs with each prefix of the patches, up to all of them. A
    /// prefix is what remains if the writer is killed. Returns the number of patches.
    ///
    /// All runs start in the same state. The hooks must run in the order, and as often, as the
    /// processor reaches their instructions in the original.
    pub fn same_with_probes(&self, seed: u64) -> Result<usize, TestCaseError> {
        let file = self.file();
        let plan = self.plan();
        // One mapping for all runs, so that addresses in registers are the same too.
        let mut machine = Machine::new(&file);
        let before = MachineState::random(seed);
        let plain = (machine.run(self.start, &before), machine.read(DATA, 0x1000));
        let mut executed = Vec::new();
        if !plan.points.is_empty() {
            machine.load(&file);
            let stepped = machine.step(self.start, &before);
            executed = stepped.1;
            let stepped = (stepped.0, machine.read(DATA, 0x1000));
            prop_assert_eq!(&plain, &stepped, "step by step");
        }
        machine.load(&file);
        let patches = prepare(&mut machine, &plan).map(|emitted| patches(&emitted));
        // The test fails if too many cases have no room.
        prop_assume!(patches.is_some());
        let patches = patches.unwrap_or_default();
        for written in 0..=patches.len() {
            if let Some(patch) = written.checked_sub(1).map(|last| &patches[last]) {
                machine.write(patch.at.0 - machine.base(), &patch.new);
            }
            machine.reset(&file);
            let probed = (machine.run(self.start, &before), machine.read(DATA, 0x1000));
            prop_assert_eq!(&plain, &probed, "{} of {}", written, patches.len());
        }
        self.all_hooks_ran(&plan, &executed, &machine.hooks_run())?;
        Ok(patches.len())
    }

    /// Moves the thread at every address that has an equivalent one. It moves into the trampolines
    /// when the patches are written, and out of them when they are undone. Returns the number of
    /// moves that took place.
    pub fn same_when_moved(&self, seed: u64) -> Result<usize, TestCaseError> {
        let file = self.file();
        let plan = self.plan();
        let mut machine = Machine::new(&file);
        let before = MachineState::random(seed);
        let plain = (machine.run(self.start, &before), machine.read(DATA, 0x1000));
        machine.load(&file);
        let emitted = prepare(&mut machine, &plan);
        prop_assume!(emitted.is_some());
        let emitted = emitted.unwrap_or_default();
        let len = (DATA - TEXT) as usize;
        let original = machine.read(TEXT, len);
        for patch in patches(&emitted) {
            machine.write(patch.at.0 - machine.base(), &patch.new);
        }
        let patched = machine.read(TEXT, len);
        let bias = Bias(machine.base());
        let mut moves = Vec::new();
        for (site, emitted) in plan.sites.iter().zip(&emitted) {
            let mut originals = BTreeSet::new();
            for pair in emitted
                .pcs
                .iter()
                .filter(|p| originals.insert(p.original.0))
            {
                let svma = bias.to_svma(pair.original);
                if site.window.contains(&svma) && svma != site.window.start {
                    moves.push((pair.original.0, pair.trampoline.0, &original, &patched));
                }
            }
            for pair in emitted.pcs.iter().chain(&emitted.hook_starts) {
                moves.push((pair.trampoline.0, pair.original.0, &patched, &original));
            }
        }
        let mut moved = 0;
        for (from, to, first, then) in moves {
            machine.write(TEXT, first);
            machine.reset(&file);
            let run = machine.run_moved(self.start, &before, (from, to), then.clone());
            if let Some(after) = run {
                let probed = (after, machine.read(DATA, 0x1000));
                prop_assert_eq!(&plain, &probed, "{:#x} to {:#x}", from, to);
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// Checks that `run` contains exactly the hooks that a run of these instructions must execute.
    fn all_hooks_ran(
        &self,
        plan: &FunctionPlan,
        executed: &[u64],
        run: &[u8],
    ) -> Result<(), TestCaseError> {
        let had = plan.points.iter().zip(self.points);
        let had = had.filter(|(plan, _)| plan.outcome.is_ok());
        let mut had: Vec<(u64, u8)> = had.map(|(_, point)| *point).collect();
        had.sort_unstable();
        let at = |pc: u64| had.iter().filter(move |p| p.0 == pc).map(|p| p.1);
        let wanted: Vec<u8> = executed.iter().flat_map(|&pc| at(pc)).collect();
        let points: Vec<u8> = run.iter().copied().filter(|n| *n < ENTERED).collect();
        prop_assert_eq!(wanted, points, "of {:?} in {:?}", run, &plan.sites);
        let count = |tag| run.iter().filter(|n| **n == tag).count();
        if !self.want.entry {
            prop_assert_eq!(count(ENTERED), 0);
        } else if plan.entry.outcome.is_ok() {
            prop_assert_eq!(count(ENTERED), 1);
            // Control reaches a landing marker before the entry.
            let before = executed
                .iter()
                .take_while(|pc| **pc != plan.entry.point.at.0);
            let before = before.flat_map(|&pc| at(pc)).count();
            prop_assert_eq!(run.get(before), Some(&ENTERED));
        }
        if !self.want.exits {
            prop_assert_eq!(count(LEFT) + count(TAILED), 0);
        } else if plan.exits.iter().all(|e| e.outcome.is_ok()) {
            prop_assert_eq!(count(LEFT) + count(TAILED), 1);
            // The last hook tells how the function was left: by its own return or by a tail call.
            let is_own = |pc: &&u64| (self.start..self.end).contains(*pc);
            if let Some(&last) = executed.iter().rfind(is_own) {
                let code = &self.code[(last - TEXT) as usize..];
                let last = Decoder::with_ip(64, code, last, DecoderOptions::NONE).decode();
                let way = match last.flow_control() {
                    FlowControl::Return => LEFT,
                    _ => TAILED,
                };
                prop_assert_eq!(run.last(), Some(&way), "by {}", last);
            }
        }
        Ok(())
    }
}

/// The patches of all sites, in write order.
pub fn patches(emitted: &[Emitted]) -> Vec<Patch> {
    emitted.iter().flat_map(|e| e.patches.clone()).collect()
}

/// Writes the trampolines of `plan` to `machine`, and checks that the patches expect its contents.
/// Returns the emitted sites, in write order. `None` if a pun can only lead to addresses without
/// room.
pub fn prepare(machine: &mut Machine, plan: &FunctionPlan) -> Option<Vec<Emitted>> {
    let bias = Bias(machine.base());
    let mut at = machine::FIRST;
    let mut all = Vec::new();
    for site in &plan.sites {
        let hooks = Hooks {
            entry_cell: Avma(machine.base() + machine::ENTRY_CELL),
            exit_cell: Avma(machine.base() + machine::EXIT_CELL),
            tail_cell: Avma(machine.base() + machine::TAIL_CELL),
            lend_cell: Avma(machine.base() + machine::TAIL_CELL),
            point_cell: Some(Avma(machine.base() + machine::POINT_CELL)),
            span_cells: None,
            timed_path_cells: None,
            counts: None,
            id: 7,
        };
        let stone = match &site.pun {
            Some(pun) => {
                let targets = pun.targets(bias).expect("in user space");
                Some(machine.stone(targets.start.0..targets.end.0)?)
            }
            None => None,
        };
        let place = CodePlace {
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
        all.push(emitted);
        at += site.max_len() as u64;
        assert!(at <= LOG, "room for all trampolines");
    }
    Some(all)
}
