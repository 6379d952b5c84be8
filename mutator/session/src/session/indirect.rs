//! Indirect functions (STT_GNU_IFUNC). The symbol is a resolver, which the loader calls to find the
//! implementation that suits the machine. Users who name the symbol mean the implementation.
//!
//! It is read from the words that the loader has filled in for the program (psABI 4.4.1,
//! R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT and R_X86_64_GLOB_DAT). If all of them wait for the first
//! call, a thread of the program calls the resolver, as in gdb.

use std::collections::HashSet;
use std::sync::Arc;

use patcher::elf::{LinkTables, Relocation};
use patcher::function::{Function, FunctionKind};
use patcher::isa::Fill;
use patcher::plan::{Effects, FunctionPlan, RefuseReason, plan_allowed};
use patcher::select::Pattern;
use patcher::{Avma, Bias};

use super::{Candidate, Selection, SessionError};
use ipath_symbols::images;
use ipath_target::process::modules::{Module, VDSO};
use ipath_target::process::{Memory, Process, Space};
use ipath_target::tracee::{CallCode, Remote, Stopped, tracing};

/// Replaces resolvers that patterns have named with their implementations. A resolver without a
/// known implementation stays, refused.
///
/// # Errors
/// The process cannot be stopped to ask a resolver, has ended or has executed another program.
pub fn resolve(
    space: &Arc<Space>,
    modules: &[Module],
    selection: &mut Selection,
    want: Effects,
    mut stopped: Option<&mut Stopped>,
) -> Result<(), SessionError> {
    let is_indirect = |c: &Candidate| c.plan.function.kind == FunctionKind::Ifunc;
    if !selection.candidates.iter().any(is_indirect) {
        return Ok(());
    }
    let filled = Filled::read(modules, space.memory());
    // Among versions of a name, those that the program has not bound are dropped.
    let indirect = selection.candidates.iter().filter(|c| is_indirect(c));
    let bound: HashSet<(usize, String)> = indirect
        .filter(|c| !inside(modules, c, &filled.values(c)).is_empty())
        .map(|c| (c.module, c.name.clone()))
        .collect();
    let may_ask = is_initialized(space.process(), modules, stopped.is_some());
    let mut resolved: Vec<Candidate> = Vec::new();
    for candidate in std::mem::take(&mut selection.candidates) {
        if !is_indirect(&candidate) {
            resolved.push(candidate);
            continue;
        }
        let mut values = filled.values(&candidate);
        let mut targets = inside(modules, &candidate, &values);
        if targets.is_empty() && bound.contains(&(candidate.module, candidate.name.clone())) {
            continue;
        }
        if targets.is_empty() && may_ask {
            values.extend(ask(space, &candidate, stopped.as_deref_mut())?);
            targets = inside(modules, &candidate, &values);
        }
        let mut in_vdso = modules.iter().filter(|m| m.path == VDSO);
        if targets.is_empty() && in_vdso.any(|m| values.iter().any(|at| m.range.contains(at))) {
            let plan = FunctionPlan::refusal(&candidate.plan.function, RefuseReason::Vdso);
            resolved.push(Candidate { plan, ..candidate });
            continue;
        }
        let functions: Vec<Function> = targets
            .into_iter()
            .filter_map(|at| implementation(&candidate, at))
            .collect();
        if functions.is_empty() {
            resolved.push(candidate);
            continue;
        }
        for function in functions {
            let image = Arc::clone(&candidate.image);
            let plan = plan_allowed(
                image.image(),
                image.context(),
                &function,
                want,
                candidate.plan.allowed,
            );
            resolved.push(Candidate {
                plan,
                image,
                name: candidate.name.clone(),
                unreadable: None,
                unread: Vec::new(),
                points: Vec::new(),
                counted: None,
                relaid: None,
                elsewhere: candidate.elsewhere.clone(),
                ..candidate
            });
        }
    }
    selection.candidates = merged(resolved);
    Ok(())
}

/// True if resolvers can detect the machine. A static program that has just started has not set
/// that up yet.
fn is_initialized(process: &Process, modules: &[Module], just_started: bool) -> bool {
    !just_started || images::loader(process, modules).is_some()
}

/// Merges candidates of the same function: several names may have one implementation.
fn merged(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        let start = candidate.plan.function.range.start;
        let same = |c: &&mut Candidate| {
            c.module == candidate.module && c.plan.function.range.start == start
        };
        match kept.iter_mut().find(same) {
            Some(known) => {
                let aliases = &mut known.plan.function.aliases;
                let names = &candidate.plan.function;
                for name in std::iter::once(&names.linkage).chain(&names.aliases) {
                    if *name != known.plan.function.linkage && !aliases.contains(name) {
                        aliases.push(name.clone());
                    }
                }
            }
            None => kept.push(candidate),
        }
    }
    kept
}

/// The function that begins at `at`, under the requested name. `None` if no function begins at
/// `at`.
fn implementation(candidate: &Candidate, at: Avma) -> Option<Function> {
    let image = &candidate.image.image();
    let svma = candidate.bias.to_svma(at);
    let found = Pattern::select_at(image, svma).filter(|f| f.range.start == svma)?;
    let asked = &candidate.plan.function;
    let names = std::iter::once(found.linkage).chain(found.aliases);
    let mut aliases = asked.aliases.clone();
    aliases.extend(names.filter(|n| !n.is_empty() && *n != asked.linkage));
    Some(Function {
        linkage: asked.linkage.clone(),
        aliases,
        ..found
    })
}

/// The words that the loader has filled in.
struct Filled {
    /// Addresses of resolvers and the words filled with their results.
    by_resolver: Vec<(Avma, Avma)>,
    /// Names of symbols and the words filled with their addresses.
    by_name: Vec<(String, Avma)>,
}

impl Filled {
    /// Reads the words of all modules. Skips modules and words that cannot be read.
    fn read(modules: &[Module], memory: &Memory) -> Self {
        let mut filled = Self {
            by_resolver: Vec::new(),
            by_name: Vec::new(),
        };
        for module in modules {
            let Ok(image) = images::of_module(module) else {
                continue;
            };
            let Some(bias) = module.bias(image.image()) else {
                continue;
            };
            if let Ok(elf) = LinkTables::parse(image.image().data()) {
                filled.add(&elf, module, bias, memory);
            }
        }
        filled
    }

    fn add(&mut self, elf: &LinkTables<'_>, module: &Module, bias: Bias, memory: &Memory) {
        let at = |address: u64| bias.to_avma(patcher::Svma(address));
        // In a part of a file that is mapped a second time, these words are absent.
        let is_mapped = |r: &Relocation| module.range.contains(&at(r.at));
        for relocation in elf.filled_at_start().into_iter().filter(is_mapped) {
            let Ok(value) = memory.read_word(at(relocation.at)) else {
                continue;
            };
            match relocation.fill() {
                Fill::Resolved => {
                    let resolver = at(relocation.addend);
                    self.by_resolver.push((resolver, Avma(value)));
                }
                Fill::Symbol => {
                    let symbol = elf.dynamic_symbol(relocation.symbol);
                    let name = symbol.and_then(|s| elf.name(&s));
                    if let Some(name) = name.filter(|n| !n.is_empty()) {
                        self.by_name.push((name.to_owned(), Avma(value)));
                    }
                }
                Fill::Relative | Fill::Other => {}
            }
        }
    }

    /// The contents of the words for a resolver.
    fn values(&self, candidate: &Candidate) -> HashSet<Avma> {
        let function = &candidate.plan.function;
        let resolver = candidate.bias.to_avma(function.range.start);
        let named =
            |name: &str| name == function.linkage || function.aliases.iter().any(|a| a == name);
        let by_resolver = self.by_resolver.iter().filter(|s| s.0 == resolver);
        let by_name = self.by_name.iter().filter(|s| named(&s.0));
        let values = by_resolver.map(|s| s.1).chain(by_name.map(|s| s.1));
        values.filter(|at| *at != resolver).collect()
    }
}

/// The addresses that are code of the resolver's own module. A word that waits for the first call
/// points into the module that makes the call.
fn inside(modules: &[Module], candidate: &Candidate, values: &HashSet<Avma>) -> Vec<Avma> {
    let code = &modules[candidate.module].code;
    let is_there = |at: &&Avma| code.iter().any(|m| m.contains(**at));
    let mut found: Vec<Avma> = values.iter().filter(is_there).copied().collect();
    found.sort();
    found
}

/// Calls the resolver on a thread of the program. Returns `None` if no thread can call it.
fn ask(
    space: &Arc<Space>,
    candidate: &Candidate,
    stopped: Option<&mut Stopped>,
) -> Result<Option<Avma>, SessionError> {
    let resolver = candidate.bias.to_avma(candidate.plan.function.range.start);
    let code = CallCode::find(space.process(), &space.maps()?, space.memory())?;
    let call = |stopped: &mut Stopped| Ok(Remote::new(&code, stopped)?.resolve(resolver)?);
    match stopped {
        Some(stopped) => call(stopped),
        None => tracing(|| {
            let mut stopped = Stopped::all(space)?;
            let answer = call(&mut stopped);
            stopped.resume()?;
            answer
        }),
    }
}
