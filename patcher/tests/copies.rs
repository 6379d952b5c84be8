//! Copies of loops of real code: each instruction does what the original does. `--nocapture` shows
//! the figures.

mod libraries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstone::Capstone;
use capstone::arch::BuildsCapstone;
use capstone::arch::x86::ArchMode;
use patcher::emit::{CountCells, Emitted, Hooks};
use patcher::flow::ModuleContext;
use patcher::function::Function;
use patcher::image::Image;
use patcher::inside::{Counting, EdgeId, Followed, Inside, NeverReturning, Region, Traffic};
use patcher::isa::LOWERED;
use patcher::plan::{Allowed, Effect, Effects, Hooked, ProbePoint, Site, plan_inside};
use patcher::{Avma, Bias};

const BIAS: Bias = Bias(0x5555_0000_0000);
const TRAMPOLINES: u64 = BIAS.0 + 0x4000_0000;

#[derive(Default, Debug)]
struct Figures {
    functions: usize,
    regions: usize,
    spilled: usize,
    functions_as_a_whole: usize,
    follow: usize,
    unpaid: usize,
    with_tables: usize,
    tallies: usize,
    tallies_that_save_flags: usize,
    refused: BTreeMap<String, usize>,
    compared: usize,
    lowered: usize,
}

struct Compared<'a> {
    capstone: &'a Capstone,
    image: &'a Image<'a>,
    figures: Figures,
}

/// The mnemonic and the operands of the first instruction. Operands relative to the program counter
/// become absolute. Addresses relative to the stack pointer are taken from one that is higher by
/// `lowered`.
fn meaning(capstone: &Capstone, code: &[u8], at: u64, lowered: u64) -> (String, String) {
    let insns = capstone.disasm_count(code, at, 1).expect("decodes");
    let insn = insns
        .first()
        .unwrap_or_else(|| panic!("no instruction at {at:#x}"));
    let end = at + insn.bytes().len() as u64;
    let text = insn.op_str().unwrap_or_default();
    let text = resolved(text, "rip", end);
    let text = resolved(&text, "rsp", lowered.wrapping_neg());
    (insn.mnemonic().unwrap_or_default().to_owned(), text)
}

/// `text` with `base` added to each displacement from `register`.
fn resolved(text: &str, register: &str, base: u64) -> String {
    let Some((before, rest)) = text.split_once(&format!("[{register}")) else {
        return text.to_owned();
    };
    let (inner, after) = rest.split_once(']').expect("a closing bracket");
    let mut sum = base;
    let mut others = Vec::new();
    let mut sign = "+";
    for word in inner.split_whitespace() {
        let hex = word
            .strip_prefix("0x")
            .map(|hex| u64::from_str_radix(hex, 16));
        let number = hex.unwrap_or_else(|| word.parse()).ok();
        match (word, number) {
            ("+" | "-", _) => sign = word,
            (_, Some(number)) if sign == "-" => sum = sum.wrapping_sub(number),
            (_, Some(number)) => sum = sum.wrapping_add(number),
            (other, None) => others.push(other),
        }
    }
    format!("{before}[{register} {} {sum:#x}]{after}", others.join(" "))
}

impl Compared<'_> {
    fn function(
        &mut self,
        context: &ModuleContext<'_>,
        function: &Function,
        calls: &mut NeverReturning,
    ) {
        let Ok(inside) = Inside::of(self.image, context, function, calls) else {
            return;
        };
        self.figures.functions += 1;
        let of = (self.image, context, &inside);
        if let Ok(counting) = Counting::of(&inside.flow, &inside.graph, None) {
            let edges: Vec<EdgeId> = counting.counters.iter().map(|count| count.edge).collect();
            let traffic = Traffic {
                segments: &counting.segments,
                edges: &edges,
                measured: None,
            };
            let regions = Region::of_edges(of, &counting, traffic);
            self.those_that_pay(&regions, &counting, traffic, |traffic| {
                Region::of_edges(of, &counting, traffic)
            });
            for region in regions {
                let counters = counting.counters.iter().map(|count| count.at);
                let counters = counters.filter(|at| region.index_of(*at).is_some());
                // No counter of the region has another place, and none is lost.
                assert_eq!(region.tallies.len(), counters.count());
                self.region(context, function, Arc::new(region));
            }
        }
        let code = (&inside.flow, &inside.graph);
        let followed = Followed::of(self.image, context, function, code);
        let followed = followed.and_then(|followed| Ok((followed.paths(None)?, followed.segments)));
        if let Ok((paths, segments)) = followed {
            let own = (&paths.hooks[..], &paths.headers[..]);
            let traffic = Traffic {
                segments: &segments,
                edges: &paths.edges,
                measured: None,
            };
            let regions = Region::of_paths(of, own, traffic);
            for region in regions {
                let steps = paths.hooks.iter();
                let steps = steps.filter(|(at, _)| region.index_of(*at).is_some());
                assert_eq!(region.tallies.len(), steps.count());
                self.figures.follow += 1;
                self.region(context, function, Arc::new(region));
            }
        }
    }

    /// Code that has not run yet has the same copies as code of which nothing is known. Code that
    /// control only enters and leaves has none.
    fn those_that_pay(
        &mut self,
        regions: &[Region],
        counting: &Counting,
        traffic: Traffic<'_>,
        of: impl Fn(Traffic<'_>) -> Vec<Region>,
    ) {
        let with = |measured: &[u64]| {
            of(Traffic {
                measured: Some(measured),
                ..traffic
            })
        };
        let mut measured = vec![0; counting.segments.edges().len()];
        assert_eq!(with(&measured), regions);
        for region in regions {
            let counts = counting.counters.iter();
            let mut own = counts.filter(|count| region.index_of(count.at).is_some());
            if own.any(|count| region.entering.contains(&count.edge)) {
                continue;
            }
            for edge in &region.entering {
                measured[edge.index()] = 1_000_000;
            }
            assert!(!with(&measured).contains(region));
            measured.fill(0);
            self.figures.unpaid += 1;
        }
    }

    fn region(&mut self, context: &ModuleContext<'_>, function: &Function, region: Arc<Region>) {
        let figures = &mut self.figures;
        figures.regions += 1;
        figures.functions_as_a_whole += usize::from(region.bank.is_of_function());
        figures.spilled += usize::from(region.bank.is_spilled());
        figures.with_tables += usize::from(region.insns.iter().any(|i| i.dispatch.is_some()));
        figures.tallies += region.tallies.len();
        let saves_flags = region.tallies.iter().filter(|(_, t)| !t.free().flags);
        figures.tallies_that_save_flags += saves_flags.count();
        let points = region.headers.iter().map(|header| ProbePoint {
            at: header.at,
            effect: Effect::Enter(0),
        });
        let points: Vec<ProbePoint> = points.collect();
        let hooks = Hooked {
            points: &points,
            regions: &[Arc::clone(&region)],
            arrivals: &[],
        };
        let nothing = Effects {
            entry: false,
            exits: false,
        };
        let plan = plan_inside(
            self.image,
            context,
            function,
            (nothing, hooks),
            Allowed::ALL,
        );
        if let Some((_, reason)) = plan.refused() {
            *figures.refused.entry(reason.to_string()).or_default() += 1;
            return;
        }
        let cells = CountCells {
            stub: Avma(TRAMPOLINES - 8),
            table: Some(Avma(TRAMPOLINES - 16)),
            paths: Avma(TRAMPOLINES - 32),
            slots: Avma(TRAMPOLINES - 40),
            claim: 0,
        };
        let cell = Avma(TRAMPOLINES - 24);
        let hooks = Hooks {
            entry_cell: cell,
            exit_cell: cell,
            tail_cell: cell,
            lend_cell: cell,
            point_cell: None,
            span_cells: None,
            timed_path_cells: None,
            counts: Some(cells),
            id: 0,
        };
        for site in plan.sites.iter().filter(|site| site.pun.is_none()) {
            let emitted = site
                .emit(BIAS, Avma(TRAMPOLINES), &hooks)
                .expect("in reach");
            self.site(&region, site, &emitted);
        }
    }

    fn site(&mut self, region: &Region, site: &Site, emitted: &Emitted) {
        assert!(emitted.code.len() <= site.max_len());
        let all = emitted.pcs.len()
            + emitted.hook_starts.len()
            + emitted.banked.len()
            + emitted.walked.len();
        assert!(site.max_copied_pcs() == 0 || all <= site.max_copied_pcs());
        let pcs = emitted.pcs.iter().map(|pair| (pair, 0));
        let banked = emitted.banked.iter().map(|banked| {
            assert_eq!(banked.register, region.bank.number());
            let is_lower = banked.saved_at == 0;
            (&banked.pcs, if is_lower { LOWERED } else { 0 })
        });
        let mut known = BTreeSet::new();
        let mut copied = BTreeSet::new();
        for (pair, lowered) in pcs.chain(banked) {
            assert!(known.insert(pair.trampoline), "one original for {pair:?}");
            let original = BIAS.to_svma(pair.original);
            if region.index_of(original).is_none() {
                continue;
            }
            let code = &emitted.code[(pair.trampoline.0 - TRAMPOLINES) as usize..];
            let after = meaning(self.capstone, code, pair.trampoline.0, lowered);
            let longest = |len| self.image.bytes(original, len);
            let bytes = (1..=15).rev().find_map(longest).expect("bytes");
            let before = meaning(self.capstone, bytes, pair.original.0, 0);
            // Jumps lead to copies. A count or a step of a path precedes the copy.
            let is_jump = before.0.starts_with('j')
                || before.0.starts_with("loop")
                || before.0.ends_with("jmp");
            let is_way = ["jmp", "lea", "inc", "mov", "movabs", "lahf"].contains(&after.0.as_str());
            let is_exit = region
                .insns
                .iter()
                .any(|insn| insn.is_exit && insn.displaced.at == original);
            if before == after || is_jump || is_exit {
                copied.insert(original);
                self.figures.compared += 1;
                self.figures.lowered += usize::from(lowered != 0);
            } else {
                assert!(is_way, "{before:?} {after:?} at {original}");
            }
        }
        let entered = site
            .points
            .iter()
            .any(|p| matches!(p.effect, Effect::Enter(_)));
        if entered {
            let insns = region.insns.iter().map(|insn| insn.displaced.at);
            let missing: Vec<_> = insns.filter(|at| !copied.contains(at)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
}

fn figures(name: &str, data: &[u8]) -> Figures {
    let capstone = Capstone::new().x86().mode(ArchMode::Mode64).build();
    let capstone = capstone.expect("capstone");
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut compared = Compared {
        capstone: &capstone,
        image: &image,
        figures: Figures::default(),
    };
    let mut calls = NeverReturning::default();
    for function in image.functions().iter() {
        compared.function(&context, &function, &mut calls);
    }
    let figures = compared.figures;
    println!("{name}: {figures:#?}");
    figures
}

fn holds(name: &str, data: &[u8]) {
    let figures = figures(name, data);
    let refused: usize = figures.refused.values().sum();
    assert!(
        figures.regions > 500 && figures.follow > 200 && figures.functions_as_a_whole > 200,
        "{name} has many loops and functions without calls"
    );
    assert!(figures.unpaid > 200, "{name}: {figures:?}");
    assert!(refused * 10 < figures.regions, "{name}");
    assert!(
        figures.compared > 10_000 && figures.lowered > 1_000,
        "{name}"
    );
}

#[test]
fn loops_of_the_c_library_are_copied() {
    holds("libc.so.6", &libraries::libc());
}

#[test]
fn loops_of_programs_are_copied() {
    if let Ok(data) = std::fs::read("/usr/bin/git") {
        holds("git", &data);
    }
}

/// The edges and the paths of a loop with a jump table have copies.
#[test]
fn loops_with_jump_tables_are_copied() {
    for optimization in ["-O1", "-O2", "-Os"] {
        if let Some(data) = libraries::compiled_from("switches.c", optimization) {
            let figures = figures(optimization, &data);
            assert_eq!(
                (figures.with_tables, figures.follow),
                (2, 2),
                "{figures:#?}"
            );
        }
    }
}
