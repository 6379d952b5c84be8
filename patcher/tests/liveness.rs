//! A program runs the same if each register and flag that [`Liveness`] calls free is overwritten
//! before each instruction. `--nocapture` shows the figures.

mod libraries;
#[path = "liveness/tracee.rs"]
mod tracee;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use patcher::Svma;
use patcher::flow::{Flow, ModuleContext};
use patcher::image::Image;
use patcher::inside::{Free, Graph, Liveness, NeverReturning};

use tracee::{Claim, End, Place, run};

/// The maximum number of instructions in a run.
const MOST_STEPS: usize = 4_000_000;
/// The stack pointer, by the number of the register.
const STACK_POINTER: usize = 4;
/// Numbers that are no addresses, and no numbers of system calls or processes.
const GARBAGE: u64 = 0x5a5a_5a5a_7a5a_7a00;

/// The program `programs/values.cc`, removed when dropped.
struct Program(PathBuf);

impl Program {
    /// The compiled program; `None` without a compiler.
    fn compiled(name: &str) -> Option<Self> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/values.cc");
        let name = format!("{name}-{}", std::process::id());
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let compiles = |more: &[&str]| {
            let mut command = Command::new("c++");
            command.args(["-O2", "-fPIE", "-pie", source, "-o"]);
            Some(command.arg(&out).args(more).status().ok()?.success())
        };
        let is_done = compiles(&["-DWITH_ZLIB", "-lz"])? || compiles(&[])?;
        assert!(is_done, "compiling {source}");
        Some(Self(out))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The claims before all instructions of the functions of a file that contain one of `executed`,
/// in the order of their addresses.
fn claims_of(path: &Path, executed: &BTreeSet<u64>) -> BTreeMap<u64, Claim> {
    let data = std::fs::read(path).expect("a file");
    let image = Image::parse(&data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut calls = NeverReturning::default();
    let mut claims: BTreeMap<u64, Claim> = BTreeMap::new();
    for function in image.functions().iter() {
        let ranges = std::iter::once(&function.range).chain(&function.cold);
        let mut found = ranges.flat_map(|r| executed.range(r.start.0..r.end.0));
        if found.next().is_none() {
            continue;
        }
        let Some(flow) = Flow::of(&image, &context, &function) else {
            continue;
        };
        let Ok(graph) = Graph::of(&image, &context, &flow, &mut calls) else {
            continue;
        };
        let liveness = Liveness::of(&flow, &graph);
        for insn in &flow.insns {
            let free = liveness.free_before(&flow, &graph, Svma(insn.at()));
            let registers = free.registers.iter().map(|r| 1 << r.number());
            let claim = Claim {
                registers: registers.sum(),
                flags: free.flags,
            };
            claims.insert(insn.at(), claim);
        }
    }
    claims
}

/// The claims of all files before the instructions of functions that were `executed`.
fn all_claims(executed: &HashSet<Place>) -> BTreeMap<PathBuf, BTreeMap<u64, Claim>> {
    let mut files: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
    for (path, at) in executed {
        files.entry(path.clone()).or_default().insert(*at);
    }
    let claims = files.into_iter().map(|(path, executed)| {
        let claims = claims_of(&path, &executed);
        (path, claims)
    });
    claims.collect()
}

/// The claims by place, each changed by `change`, which has the claim before the next instruction
/// too.
fn flat(
    files: &BTreeMap<PathBuf, BTreeMap<u64, Claim>>,
    change: impl Fn(Claim, Claim) -> Claim,
) -> HashMap<Place, Claim> {
    let mut all = HashMap::new();
    for (path, claims) in files {
        let next = claims.values().skip(1).copied().chain([Claim::default()]);
        for ((&at, &claim), next) in claims.iter().zip(next) {
            all.insert((path.clone(), at), change(claim, next));
        }
    }
    all
}

#[test]
fn free_registers_do_not_matter_and_others_do() {
    let Some(program) = Program::compiled("values") else {
        return;
    };
    let started = Instant::now();
    let plain = run(&program.0, &HashMap::new(), GARBAGE, MOST_STEPS);
    println!(
        "{}{} steps in {:?}",
        plain.outcome.output,
        plain.steps,
        started.elapsed()
    );
    assert_eq!(plain.outcome.end, End::Exited(0));
    assert!(plain.outcome.output.lines().count() >= 9);
    let files = all_claims(&plain.executed);
    let claims = flat(&files, |claim, _| claim);
    let executed = plain.executed.iter().filter_map(|place| claims.get(place));
    let executed: Vec<&Claim> = executed.collect();
    let some = executed.iter().filter(|claim| claim.registers != 0).count();
    let flags = executed.iter().filter(|claim| claim.flags).count();
    println!(
        "{} instructions executed, {} in graphs, {some} with registers, {flags} with flags free",
        plain.executed.len(),
        executed.len(),
    );
    assert!(some > 1000 && flags > 1000);

    for garbage in [GARBAGE, 0] {
        let changed = run(&program.0, &claims, garbage, MOST_STEPS);
        println!(
            "{} of {} steps with changes",
            changed.changed, changed.steps
        );
        assert_eq!(changed.outcome, plain.outcome, "{garbage:#x}");
        assert!(changed.changed * 4 > changed.steps);
    }

    // The test notices wrong claims.
    let is_noticed = |name: &str, change: &dyn Fn(Claim, Claim) -> Claim| {
        let wrong = run(
            &program.0,
            &flat(&files, change),
            GARBAGE,
            plain.steps + 1000,
        );
        println!(
            "{name}: {:?} after {} steps",
            wrong.outcome.end, wrong.steps
        );
        assert_ne!(wrong.outcome, plain.outcome, "{name}");
    };
    let all = !(1 << STACK_POINTER);
    is_noticed("everything", &|_, _| Claim {
        registers: all,
        flags: true,
    });
    is_noticed("flags", &|claim, _| Claim {
        flags: true,
        ..claim
    });
    is_noticed(
        "the registers before the next instruction",
        &|claim, next| Claim {
            registers: next.registers,
            ..claim
        },
    );
    is_noticed("the flags before the next instruction", &|claim, next| {
        Claim {
            flags: next.flags,
            ..claim
        }
    });
    for number in (0..16).filter(|&number| number != STACK_POINTER) {
        is_noticed(&format!("register {number}"), &|claim, _| Claim {
            registers: claim.registers | 1 << number,
            ..claim
        });
    }
}

/// The number of blocks at whose start something is free.
#[derive(Default, Debug)]
struct Figures {
    functions: usize,
    blocks: usize,
    flags: usize,
    one: usize,
    two: usize,
    flags_and_one: usize,
}

impl Figures {
    fn add(&mut self, free: Free) {
        self.blocks += 1;
        self.flags += usize::from(free.flags);
        self.one += usize::from(!free.registers.is_empty());
        self.two += usize::from(free.registers.len() >= 2);
        self.flags_and_one += usize::from(free.flags && !free.registers.is_empty());
    }
}

/// Every seventh function.
fn figures(data: &[u8]) -> Figures {
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut calls = NeverReturning::default();
    let mut figures = Figures::default();
    for function in image.functions().iter().step_by(7) {
        let Some(flow) = Flow::of(&image, &context, &function) else {
            continue;
        };
        let Ok(graph) = Graph::of(&image, &context, &flow, &mut calls) else {
            continue;
        };
        figures.functions += 1;
        let liveness = Liveness::of(&flow, &graph);
        for block in graph.blocks() {
            figures.add(liveness.free_before(&flow, &graph, block.first));
        }
    }
    figures
}

#[test]
fn many_blocks_have_free_registers() {
    for path in ["libc.so.6", "/usr/bin/git"] {
        // An absolute path is joined as it is.
        let Some(data) = libraries::library(path) else {
            continue;
        };
        let started = Instant::now();
        let figures = figures(&data);
        println!("{path}: {figures:#?}\nin {:?}", started.elapsed());
        let share = |count: usize| {
            let percent = 100.0 * count as f64 / figures.blocks as f64;
            println!("  {percent:.1} %");
            percent
        };
        let shares = [
            figures.flags,
            figures.one,
            figures.two,
            figures.flags_and_one,
        ]
        .map(share);
        assert!(shares[0] > 50.0 && shares[1] > 30.0, "{path}");
    }
}
