//! The instructions that the places of a command line name.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use patcher::function::Function;
use patcher::inside::{self, Inside, NeverReturning};
use patcher::select::{Pattern, SourceLine, Spot};
use patcher::{Bias, Svma};

use super::select::is_meant;
use super::unmatched::{Hidden, Unmatched, near};
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::lines::FileLines;
use ipath_target::process::modules::Module;

/// The index of a module, its image and bias, a function in it, and the link-time address of an
/// instruction of the function.
pub(super) type PointMatch = (usize, Arc<OpenImage>, Bias, Function, Svma);

/// Finds the instructions that a place names: in functions of its name, at its source line, or else
/// at its address.
pub(super) fn places(modules: &[Module], spot: &Spot) -> Vec<PointMatch> {
    let opened = modules.iter().enumerate().filter_map(|(index, module)| {
        let image = images::of_module(module).ok()?;
        let bias = module.bias(image.image())?;
        Some((index, module, image, bias))
    });
    let opened: Vec<_> = opened.collect();
    let mut found = Vec::new();
    for (index, module, image, bias) in &opened {
        let (index, bias) = (*index, *bias);
        let mut calls = NeverReturning::default();
        let named = functions(spot, image, module, bias).into_iter();
        let placed = named.flat_map(|function| {
            let places = match spot.part() {
                Some(part) if part.is_whole() => vec![function.range.start],
                Some(part) => inside(image, &function, &mut calls)
                    .map_or(Vec::new(), |inside| inside.starts_of(part)),
                None => spot.offset_in(&function).into_iter().collect(),
            };
            places.into_iter().map(move |at| (function.clone(), at))
        });
        let there = placed.filter(|(function, _)| module.maps_function(bias, function));
        let found_at = |(function, at)| (index, Arc::clone(image), bias, function, at);
        found.extend(there.map(found_at));
        let line = spot.line_in(module.file_name());
        let at_line = line.map(|line| at_line(image, module, line));
        let at_line = at_line.unwrap_or_default().into_iter();
        let there = at_line.filter(|(function, _)| module.maps_function(bias, function));
        found.extend(there.map(found_at));
    }
    let address = spot.address().filter(|_| found.is_empty());
    for (index, module, image, bias) in opened.iter().filter(|_| address.is_some()) {
        let (index, bias) = (*index, *bias);
        let Some(address) = address.filter(|a| is_meant(a, module.file_name(), Some(module)))
        else {
            continue;
        };
        let Some(at) = spot.address_in(bias) else {
            continue;
        };
        let functions = image.select(address, module.file_name(), bias).into_iter();
        let there = functions.filter(|function| module.maps_function(bias, function));
        let found_at = |function| (index, Arc::clone(image), bias, function, at);
        found.extend(there.map(found_at));
    }
    found
}

/// The functions in a module that a place names. If it has no part of a function, it must name them
/// by a pattern that is no address.
fn functions(spot: &Spot, image: &OpenImage, module: &Module, bias: Bias) -> Vec<Function> {
    let name = module.file_name();
    let is_meant =
        |pattern: &&Pattern| pattern.is_address() && is_meant(pattern, name, Some(module));
    match spot.function().filter(is_meant) {
        Some(address) if spot.part().is_some() => image.select(address, name, bias),
        _ => spot.functions(image.image(), name),
    }
}

/// The blocks and loops of a function. Functions of the same image share `calls`.
pub(super) fn inside(
    image: &OpenImage,
    function: &Function,
    calls: &mut NeverReturning,
) -> Result<Inside, inside::Refusal> {
    Inside::of(image.image(), image.context(), function, calls)
}

/// Why no instruction matches, if the place is a part of functions that there are.
fn no_part(modules: &[Module], spot: &Spot) -> Option<Hidden> {
    spot.part()?;
    modules.iter().find_map(|module| {
        let image = images::of_module(module).ok()?;
        let bias = module.bias(image.image())?;
        let functions = functions(spot, &image, module, bias);
        let function = functions.into_iter().next()?;
        let inside = inside(&image, &function, &mut NeverReturning::default());
        Some(match inside {
            Ok(Inside { graph, loops, .. }) => Hidden::NoPart {
                name: function.name(),
                blocks: graph.blocks().len(),
                loops: loops.loops().len(),
            },
            Err(refusal) => Hidden::NoGraph(refusal),
        })
    })
}

/// The instructions at which statements of a source line begin, each with its function.
fn at_line(image: &OpenImage, module: &Module, line: &SourceLine) -> Vec<(Function, Svma)> {
    let of_line = statements(image, module, line).into_iter();
    of_line
        .filter(|(number, _)| *number == line.line)
        .filter_map(|(_, at)| Some((image.function_at(at)?, at)))
        .collect()
}

/// The line and the address of each statement in the file of a source line. Empty if the module has
/// no debug information.
fn statements(image: &OpenImage, module: &Module, line: &SourceLine) -> BTreeSet<(u32, Svma)> {
    let lines = image.lines(Path::new(&module.path));
    let read = |lines: FileLines| lines.with(|l| l.statements(|path| line.is_in(path)));
    lines.map(read).unwrap_or_default()
}

/// Why no instruction matches, if the place is a source line.
fn no_line(modules: &[Module], spot: &Spot) -> Option<Hidden> {
    /// The number of lines to name before and after the wanted one.
    const NEAR: usize = 2;
    let mut lines = BTreeSet::new();
    let mut wanted = None;
    for module in modules {
        let Some(line) = spot.line_in(module.file_name()) else {
            continue;
        };
        wanted = Some(line);
        if let Ok(image) = images::of_module(module) {
            let found = statements(&image, module, line).into_iter();
            let with_code = found.filter(|&(_, at)| image.function_at(at).is_some());
            lines.extend(with_code.map(|(number, _)| number));
        }
    }
    let line = wanted?;
    if lines.is_empty() {
        return Some(Hidden::NoSource(line.file.clone()));
    }
    let before = lines.range(..line.line).rev().take(NEAR);
    let near: BTreeSet<u32> = before
        .chain(lines.range(line.line..).take(NEAR))
        .copied()
        .collect();
    Some(Hidden::NoStatement(near.into_iter().collect()))
}

/// The modules that may contain the place but cannot be read, with the reason.
pub(super) fn unreadable(modules: &[Module], spot: &Spot) -> Vec<(String, String)> {
    let pattern = spot.address().or(spot.function());
    let is_it = |m: &&Module| pattern.is_some_and(|p| is_meant(p, m.file_name(), Some(m)));
    let unread = |m: &Module| Some((m.path.clone(), images::of_module(m).err()?.to_string()));
    modules.iter().filter(is_it).filter_map(unread).collect()
}

/// The place as a pattern without a match, with suggestions for its function.
pub(super) fn unmatched(modules: &[Module], spot: &Spot) -> Unmatched {
    let is_in_module = spot.address().is_some_and(Pattern::has_module);
    let why = no_line(modules, spot).or_else(|| no_part(modules, spot));
    // A place given relative to a module's start names no function.
    let is_misspelled = !is_in_module && why.is_none();
    let near = spot.function().filter(|_| is_misspelled).map(|pattern| {
        let images = modules.iter().map(images::of_module);
        let images: Vec<_> = images.filter_map(Result::ok).collect();
        near(pattern, modules, images.iter().map(|image| &**image))
    });
    Unmatched {
        pattern: spot.text().to_owned(),
        near: near.unwrap_or_default(),
        inlined: 0,
        jit: None,
        is_in_unbounded_code: false,
        why,
        modules: None,
        may_come: false,
    }
}
