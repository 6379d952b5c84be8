//! A session as the live view shows and changes it.

use crate::commands::failures::{SessionFailure, UnmatchedFailure};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use patcher::flow::callees;
use patcher::select::{Pattern, Spot};
use patcher::{Avma, Svma};

use super::Live;
use crate::commands::find::Finding;
use crate::commands::measure::{self, MANY};
use crate::commands::outcome::{added, also_called, listed, partly_counted, unfollowed};
use crate::commands::watch::destination;
use ipath_base::error::io_text;
use ipath_base::hint::CommandLine;
use ipath_session::segment::{FunctionDoc, ModuleDoc, Remeasure, Role};
use ipath_session::session::{Candidate, Changed, Session, SessionError};
use ipath_symbols::images;
use ipath_target::process::modules::{Module, VDSO, modules};
use ipath_view::{Callees, Finder, Names, Sample, Source};

impl Live {
    /// The id of a function in the session, by its index in the latest sample. An error if the
    /// session does not have the function.
    fn function(&self, index: usize) -> Result<usize, String> {
        let index = match self.sum.as_ref() {
            // An index into the sum, which includes functions measured before an exec.
            Some(sum) => {
                let function = sum.functions.get(index);
                let found = function.and_then(|f| self.index_of(sum.modules.get(f.module)?, f));
                found.ok_or_else(|| "the function is not in the session".to_owned())?
            }
            None => index,
        };
        let id = self.session.document().rows().nth(index);
        let id = id.map(|(id, _)| id);
        id.ok_or_else(|| "the function is not in the session".to_owned())
    }

    /// The index in the latest sample of this session of a function that is given by its entry in a
    /// sum of profiles. `None` if the session does not have the function.
    pub(in crate::commands) fn index_of(
        &self,
        module: &ipath_profile::Module,
        function: &ipath_profile::Function,
    ) -> Option<usize> {
        let document = self.session.document();
        let is_module = |known: &ModuleDoc| match (&known.build_id, &module.build_id) {
            (Some(known), Some(wanted)) => known == wanted,
            _ => known.path == module.path,
        };
        document.rows().position(|(_, known)| {
            let is_there = document.modules.get(known.module).is_some_and(is_module);
            is_there && known.address.0 == function.address && known.part() == function.part()
        })
    }

    fn apply(
        &mut self,
        change: impl FnOnce(&mut Session) -> Result<Changed, SessionError>,
    ) -> Result<Changed, String> {
        let result = change(&mut self.session);
        result.map_err(|e| e.failure("change", self.session.process()).to_string())
    }

    /// Instruments the functions that patterns match, and returns the message about the result. If
    /// `may_fail`, patterns without a match are skipped. Otherwise they are an error, as are more
    /// than [`MANY`] functions.
    fn add_all(&mut self, patterns: &[Pattern], may_fail: bool) -> Result<String, String> {
        let failure = |e: SessionError| e.to_string();
        let selected = self.session.select(patterns, None).map_err(failure)?;
        let unmatched = selected.selection.unmatched.first();
        if let Some(unmatched) = unmatched.filter(|_| !may_fail) {
            let near = unmatched.did_you_mean();
            let near = near.map_or_else(String::new, |near| format!(" ({near})"));
            return Err(format!("{unmatched}{near}"));
        }
        let count = selected.selection.candidates.len();
        if count > MANY {
            let pid = self.session.process().pid;
            return Err(match patterns {
                [one] => format!(
                    "{count} functions match: `{}` instruments them all",
                    CommandLine::ipath("add")
                        .pid(pid)
                        .func(one.text())
                        .with("--yes")
                ),
                _ => format!("{count} functions are too many at once: add some of them by name"),
            });
        }
        let changed = self.apply(|session| session.add("add", selected))?;
        let refused = changed
            .refused
            .iter()
            .chain(&changed.unchanged)
            .next()
            .map(|(name, reason)| format!("; refused {name}: {reason}"));
        let moving = changed.unfollowed.first();
        let moving = moving.map(|path| format!("; {}", unfollowed(path)));
        let partly = changed.partly.first();
        let partly = partly.and_then(partly_counted);
        let partly = partly.map(|line| format!("; {line}"));
        let also = changed.shared.first().and_then(also_called);
        let also = also.map(|line| format!("; {line}"));
        let further = [refused, moving, also, partly].into_iter().flatten();
        Ok(added(&changed) + &further.collect::<String>())
    }

    /// The loaded module of a function of the session, with the function's address in the file and
    /// its size.
    fn place(&self, id: usize) -> Result<(Module, Svma, u64), String> {
        let gone = || "its module is no longer loaded".to_owned();
        let document = self.session.document();
        let function = document.functions.get(id).ok_or_else(gone)?;
        let (bias, address) = document.place_of(function).ok_or_else(gone)?;
        let process = self.session.process();
        let maps = process.maps().map_err(|e| e.to_string())?;
        let start = bias.to_avma(address);
        let modules = modules(process, &maps);
        let module = modules.into_iter().find(|m| m.range.contains(&start));
        Ok((module.ok_or_else(gone)?, address, function.size))
    }
}

/// Patterns for the function in these modules that an import by this name resolves to. The loader's
/// own copies are skipped if there are others, because only the loader calls them.
fn exported(name: &str, modules: &[Module]) -> Vec<String> {
    let Ok(pattern) = Pattern::parse(name) else {
        return Vec::new();
    };
    let has_it = |module: &&Module| {
        let image = images::of_module(module);
        module.path != VDSO && image.is_ok_and(|i| !pattern.select(i.image(), "").is_empty())
    };
    let is_loader = |module: &&Module| module.file_name().starts_with("ld-linux");
    let found = modules.iter().filter(has_it);
    let (loaders, others): (Vec<&Module>, Vec<&Module>) = found.partition(is_loader);
    let meant = if others.is_empty() { loaders } else { others };
    let pattern = |module: &Module| format!("{}!{name}", module.file_name());
    meant.into_iter().map(pattern).collect()
}

fn parsed<'t>(texts: impl IntoIterator<Item = &'t String>) -> Vec<Pattern> {
    let parse = |text: &String| Pattern::parse(text).ok();
    texts.into_iter().filter_map(parse).collect()
}

impl Source for Live {
    fn sample(&mut self) -> Result<Sample<'_>, String> {
        self.look().map_err(|e| e.to_string())
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        let patterns = [Pattern::parse(pattern).map_err(|e| e.to_string())?];
        self.add_all(&patterns, false)
    }

    fn callees(&mut self, function: usize) -> Result<Callees, String> {
        let id = self.function(function)?;
        let (module, address, size) = self.place(id)?;
        let opened = images::of_module(&module).map_err(|e| e.to_string())?;
        let called = callees(
            opened.image(),
            address..Svma(address.0.saturating_add(size)),
        );
        let document = self.session.document();
        let mut texts = BTreeSet::new();
        texts.extend(
            called
                .functions
                .iter()
                .map(|&at| format!("{}+{:#x}", module.shown_name(), at.0)),
        );
        let process = self.session.process();
        let modules = modules(process, &process.maps().unwrap_or_default());
        let imported = called.imported.iter();
        texts.extend(imported.flat_map(|name| exported(name, &modules)));
        let failure = |e: SessionError| e.to_string();
        let selected = self
            .session
            .select(&parsed(&texts), None)
            .map_err(failure)?;
        let candidates = &selected.selection.candidates;
        let active = document.measured().filter(|(_, f)| f.is_in());
        let active = active.filter_map(|(_, f)| document.place_of(f));
        let active: BTreeSet<Avma> = active.map(|(bias, at)| bias.to_avma(at)).collect();
        let start = |c: &Candidate| c.bias.to_avma(c.plan.function.range.start);
        let new = candidates.iter().filter(|c| !active.contains(&start(c)));
        let names: Vec<String> = new.map(|c| c.name.clone()).collect();
        if names.is_empty() && !candidates.is_empty() {
            return Err("the functions that it calls are already instrumented".to_owned());
        }
        if names.is_empty() {
            return Err(match called.indirect {
                0 => "it calls nothing".to_owned(),
                n => format!("it makes no direct calls; indirect calls with unknown targets: {n}"),
            });
        }
        Ok(Callees {
            names,
            patterns: texts.into_iter().collect(),
            indirect: called.indirect,
        })
    }

    fn add_callees(&mut self, callees: &Callees) -> Result<String, String> {
        let told = self.add_all(&parsed(&callees.patterns), true)?;
        Ok(match callees.indirect {
            0 => told,
            n => format!("{told}; indirect calls with unknown targets: {n}"),
        })
    }

    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String> {
        let names: Vec<String> = metrics.split(',').map(str::to_owned).collect();
        let names: Vec<String> = names.into_iter().filter(|n| !n.trim().is_empty()).collect();
        let metrics =
            measure::metrics("change", &names).map_err(|failure| failure.in_one_line())?;
        let id = self.function(function)?;
        let document = self.session.document();
        let place = document
            .functions
            .get(id)
            .filter(|f| f.is_in() && f.role.is_measured());
        let place = place.and_then(|f| document.place_of(f));
        let (bias, address) = place.ok_or("it is not an instrumented function")?;
        let at = format!("{:#x}", bias.to_avma(address).0);
        let pattern = Pattern::parse(&at).map_err(|e| e.to_string())?;
        let process = self.session.process().clone();
        let failure = |e: SessionError| e.failure("change", &process).in_one_line();
        let remeasure = Some(Remeasure::Set(metrics));
        let selected = self
            .session
            .select(&[pattern], remeasure)
            .map_err(failure)?;
        let changed = self.session.add("add", selected).map_err(failure)?;
        Ok(added(&changed))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        let id = self.function(function)?;
        let changed = self.apply(|session| session.remove(&[id]))?;
        Ok(format!("removed {}", changed.functions.join(", ")))
    }

    fn edges(&mut self, function: usize) -> Result<String, String> {
        let id = self.function(function)?;
        let document = self.session.document();
        let row = document
            .functions
            .get(id)
            .filter(|f| !matches!(f.role, Role::Point | Role::Span));
        let row = row.ok_or("only functions have edges")?;
        let (name, place) = (row.name.clone(), document.place_of(row));
        let (bias, address) = place.ok_or("its module is no longer loaded")?;
        let is_counted =
            |f: &FunctionDoc| f.role == Role::Edges && f.is_in() && document.place_of(f) == place;
        let counted = document.functions.iter().position(is_counted);
        if let Some(id) = counted {
            self.apply(|session| session.remove(&[id]))?;
            return Ok(format!("edges no longer counted: {}", listed(&[name])));
        }
        let at = format!("{:#x}:edges", bias.to_avma(address).0);
        let spot = Spot::parse(&at).map_err(|e| e.to_string())?;
        let failure = |e: SessionError| e.to_string();
        let mut selected = self.session.select(&[], None).map_err(failure)?;
        selected.find_points(&[spot]);
        if let Some(unmatched) = selected.selection.unmatched.first() {
            return Err(unmatched.to_string());
        }
        let changed = self.apply(|session| session.add("add", selected))?;
        match changed.refused.first() {
            Some((name, reason)) => Err(format!(
                "not instrumented: {reason} ({})",
                listed(std::slice::from_ref(name))
            )),
            None => Ok(format!("edges counted from now on: {}", listed(&[name]))),
        }
    }

    fn names(&mut self) -> Option<Arc<Names>> {
        if self
            .names
            .as_ref()
            .is_some_and(|names| !names.is_finished())
        {
            return None;
        }
        match self.names.take() {
            Some(read) => Some(Arc::new(read.join().unwrap_or_default())),
            None => {
                let process = self.session.process().clone();
                self.names = Some(std::thread::spawn(move || names_of(&process)));
                None
            }
        }
    }

    fn finder(&mut self) -> Result<Box<dyn Finder>, String> {
        let finding = Finding::begin("sample", self.session.process())
            .map_err(|failure| failure.in_one_line())?;
        Ok(Box::new(finding))
    }

    fn add_found(&mut self, patterns: &[String]) -> Result<String, String> {
        let pattern = |text: &String| Pattern::parse(text).map_err(|e| e.to_string());
        let patterns: Result<Vec<Pattern>, String> = patterns.iter().map(pattern).collect();
        self.add_all(&patterns?, false)
    }

    fn write(&mut self, file: &str) -> Result<String, String> {
        let path = Path::new(file);
        let to = destination(path).map_err(|failure| failure.in_one_line())?;
        let profile = self.whole();
        let saved = profile.save_soon(&to).map_err(|e| io_text(&e));
        saved.map_err(|cause| format!("write {}: {cause}", path.display()))?;
        Ok(format!("written to {}", path.display()))
    }
}

/// All functions of a process that have a name.
fn names_of(process: &ipath_target::process::Process) -> Names {
    let mut names = Names::default();
    let Ok(maps) = process.maps() else {
        return names;
    };
    for module in modules(process, &maps) {
        let Ok(opened) = images::of_module(&module) else {
            continue;
        };
        let number = names.module(&module.shown_name());
        for function in opened.image().functions().iter() {
            if !function.linkage.is_empty() {
                let name = patcher::function::demangle(&function.linkage);
                names.push(name, number, function.range.start.0);
            }
        }
    }
    names
}
