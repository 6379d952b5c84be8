//! The inlined copies of requested functions: spans in the functions that contain them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use patcher::function::{Function, demangle};
use patcher::inside::{InlinedCopy, InlinedSpan, Inside, NeverReturning, Span, Spanless};
use patcher::plan::Allowed;
use patcher::select::{Pattern, Spot};
use patcher::{Bias, Svma};

use super::candidate::{Point, display_name};
use super::pointed::{Pointed, standing};
use super::refusal::Refusal;
use super::select::{Selection, is_meant};
use super::spots::inside;
use super::unmatched::Hidden;
use crate::segment::{CopyDoc, Document, FunctionDoc};
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::lines::{Copy, Lines};
use ipath_target::process::modules::{Module, VDSO};
use ipath_target::progress::Step;

/// The functions with requested points, by the index of their module and their start.
type Found = BTreeMap<(usize, Svma), Pointed>;

/// A module's file that is searched for copies.
struct File<'m> {
    index: usize,
    module: &'m Module,
    image: Arc<OpenImage>,
    bias: Bias,
}

/// The copies in one module that patterns name.
#[derive(Default)]
struct Copies {
    all: Vec<Copy>,
    /// The functions that contain copies, by their starts.
    within: BTreeMap<Svma, Within>,
    /// The number of copies in code of no known function.
    nowhere: usize,
}

/// The copies in one function.
struct Within {
    function: Function,
    /// The numbers of the copies.
    numbers: Vec<usize>,
    /// The span of each copy, or the reason why there is none.
    spans: Vec<Result<InlinedSpan, String>>,
}

/// A pattern of functions and the names that it stands for, if it is an address.
struct Named<'p> {
    pattern: &'p Pattern,
    names: Vec<String>,
}

impl Named<'_> {
    fn names(&self, linkage: &str) -> bool {
        if self.pattern.is_address() {
            self.names.iter().any(|name| name == linkage)
        } else {
            self.pattern.names(linkage)
        }
    }
}

impl Selection {
    /// Finds the inlined copies of the functions that `spots` name, and adds them to `found`.
    pub(super) fn find_copies(
        &mut self,
        modules: &[Module],
        spots: &[&Spot],
        found: &mut Found,
        calls: &mut BTreeMap<usize, NeverReturning>,
    ) {
        if spots.is_empty() {
            return;
        }
        let files = modules.iter().enumerate().filter_map(|(index, module)| {
            let image = images::of_module(module).ok()?;
            let bias = module.bias(image.image())?;
            (module.path != VDSO).then_some(File {
                index,
                module,
                image,
                bias,
            })
        });
        let files: Vec<File<'_>> = files.collect();
        let mut counts: Vec<usize> = vec![0; spots.len()];
        let mut bare: Vec<BTreeMap<String, bool>> = vec![BTreeMap::new(); spots.len()];
        for file in &files {
            let name = file.module.file_name();
            let patterns = spots.iter().map(|spot| {
                let pattern = spot.function()?;
                let is_it = is_meant(pattern, name, Some(file.module));
                is_it.then(|| file.named(pattern))
            });
            let patterns: Vec<Option<Named<'_>>> = patterns.collect();
            if patterns.iter().all(Option::is_none) {
                continue;
            }
            let Some(copies) = file.copies(&patterns, calls.entry(file.index).or_default()) else {
                for (bare, named) in bare.iter_mut().zip(&patterns) {
                    if let Some(named) = named {
                        bare.insert(name.to_owned(), file.has(named));
                    }
                }
                continue;
            };
            for (count, named) in counts.iter_mut().zip(&patterns) {
                let names = |copy: &&Copy| {
                    !copy.is_part && named.as_ref().is_some_and(|n| n.names(&copy.name))
                };
                *count += copies.all.iter().filter(names).count();
            }
            if copies.nowhere > 0 {
                self.remarks.push(format!(
                    "{} inlined copies in {name} are in code of no known function",
                    copies.nowhere
                ));
            }
            file.take(copies, self.allowed, found);
        }
        for ((spot, count), bare) in spots.iter().zip(counts).zip(bare) {
            self.tell_copies(spot, count, &bare);
        }
    }

    /// Adds the remarks on the copies of one pattern. `bare` are the modules without debug
    /// information, and whether they have such a function.
    fn tell_copies(&mut self, spot: &Spot, count: usize, bare: &BTreeMap<String, bool>) {
        let text = spot.text();
        if count > 0 {
            // The copies are enough.
            self.unmatched.retain(|unmatched| unmatched.pattern != text);
            return;
        }
        let mut unmatched = self.unmatched.iter_mut();
        let Some(unmatched) = unmatched.find(|u| u.pattern == text) else {
            let mut bare = bare.iter().filter(|(_, has_it)| **has_it);
            self.remarks.push(match bare.next() {
                Some((module, _)) => format!(
                    "inlined copies of '{text}' are not known: {module} has no debug information \
                    (compile with -g)"
                ),
                None => format!("'{text}' has no inlined copies"),
            });
            return;
        };
        if let (None, Some((module, _))) = (&unmatched.why, bare.first_key_value()) {
            unmatched.why = Some(Hidden::NoCopies(module.clone()));
        }
    }
}

impl File<'_> {
    /// A pattern that may mean functions of this file.
    fn named<'p>(&self, pattern: &'p Pattern) -> Named<'p> {
        let mut names = Vec::new();
        if pattern.is_address() {
            let name = self.module.file_name();
            for function in self.image.select(pattern, name, self.bias) {
                names.push(function.linkage);
                names.extend(function.aliases);
            }
        }
        Named { pattern, names }
    }

    /// True if the file has a function of the pattern.
    fn has(&self, named: &Named<'_>) -> bool {
        let name = self.module.file_name();
        let found = self.image.select(named.pattern, name, self.bias);
        !found.is_empty()
    }

    /// The copies of functions with these names. `None` without debug information.
    fn copies(&self, patterns: &[Option<Named<'_>>], calls: &mut NeverReturning) -> Option<Copies> {
        let path = Path::new(&self.module.path);
        let _step = Step::begin(format!(
            "reading the debug information of {}",
            self.module.path
        ));
        let lines = self.image.lines(path)?;
        Some(lines.with(|lines| self.copies_in(lines, patterns, calls)))
    }

    fn copies_in(
        &self,
        lines: &Lines<'_>,
        patterns: &[Option<Named<'_>>],
        calls: &mut NeverReturning,
    ) -> Copies {
        let is_wanted = |name: &[u8]| {
            let name = std::str::from_utf8(name);
            let mut patterns = patterns.iter().flatten();
            name.is_ok_and(|name| patterns.any(|named| named.names(name)))
        };
        let functions = self.image.image().functions();
        let name_at = |at: u64| {
            let function = functions.containing(Svma(at))?;
            let name = function.linkage.filter(|_| function.start == Svma(at))?;
            // Copies of a function do not include those of its parts and clones (`f.part.0`).
            (!name.contains('.')).then(|| name.to_owned())
        };
        let mut found = Copies {
            all: lines.copies(is_wanted, name_at),
            ..Copies::default()
        };
        for (number, copy) in found
            .all
            .iter()
            .enumerate()
            .filter(|(_, copy)| !copy.is_part)
        {
            let first = copy.begins_at.into_iter();
            let mut places = first.chain(copy.ranges.iter().map(|range| range.start));
            let function = places.find_map(|at| self.image.function_at(at));
            let function = function.filter(|f| self.module.maps_function(self.bias, f));
            let Some(function) = function else {
                found.nowhere += 1;
                continue;
            };
            let within = found.within.entry(function.range.start);
            let within = within.or_insert_with(|| Within {
                function,
                numbers: Vec::new(),
                spans: Vec::new(),
            });
            within.numbers.push(number);
        }
        for within in found.within.values_mut() {
            let own = within.numbers.iter().map(|&number| &found.all[number]);
            let own: Vec<&Copy> = own.collect();
            within.spans = match inside(&self.image, &within.function, calls) {
                Ok(inside) => {
                    let inlined = lines.inlined(&own, &found.all, &inside.flow.ranges);
                    self.spans(&within.function, &inside, &inlined)
                }
                Err(why) => own.iter().map(|_| Err(why.to_string())).collect(),
            };
        }
        found
    }

    fn spans(
        &self,
        function: &Function,
        inside: &Inside,
        copies: &[InlinedCopy],
    ) -> Vec<Result<InlinedSpan, String>> {
        let (image, context) = (self.image.image(), self.image.context());
        let spans = Span::of_copies(image, context, function, inside, copies);
        let in_words = |span: Result<InlinedSpan, Spanless>| span.map_err(|why| why.to_string());
        spans.into_iter().map(in_words).collect()
    }

    /// Adds the copies to the points of the functions that contain them.
    fn take(&self, copies: Copies, allowed: Allowed, found: &mut Found) {
        for (start, within) in copies.within {
            let Within {
                function,
                numbers,
                spans,
            } = within;
            let origin = (self.index, Arc::clone(&self.image), self.bias);
            let pointed = found
                .entry((self.index, start))
                .or_insert_with(|| Pointed::none_in(origin, function.clone(), allowed));
            let mut others = pointed.points.iter();
            // At the same instruction, the order of their hooks would not be that of their nest.
            let has_others = others
                .any(|point| point.is_timed() && point.copy.is_none() && point.refused.is_none());
            let of_points = pointed
                .points
                .iter()
                .filter_map(|point| point.copy.as_ref());
            let known: HashSet<u64> = of_points.map(|copy| copy.entry).collect();
            let name = display_name(&function, &self.module.shown_name());
            let new = numbers.iter().map(|&number| &copies.all[number]).zip(spans);
            let new = new.filter(|(copy, _)| !known.contains(&(copy.entry as u64)));
            let why = "loops or paths of the function are timed by the same command";
            let points = new.map(|(copy, span)| {
                let span = span.and_then(|s| {
                    if has_others {
                        Err(why.to_owned())
                    } else {
                        Ok(s)
                    }
                });
                point(&function, &name, copy, span)
            });
            pointed.points.extend(points);
        }
    }
}

/// A copy in a function with the display name `within`.
fn point(
    function: &Function,
    within: &str,
    copy: &Copy,
    span: Result<InlinedSpan, String>,
) -> Point {
    let begins = copy.begins_at.unwrap_or(copy.ranges[0].start);
    let at = span.as_ref().map_or(begins, |span| span.entry);
    let offset = at.0.wrapping_sub(function.range.start.0);
    let name = demangle(&copy.name);
    let mut point = Point::new(at, format!("{name} inlined in {within}+{offset:#x}"));
    let mut doc = CopyDoc {
        entry: copy.entry as u64,
        linkage: copy.name.clone(),
        within: within.to_owned(),
        called: copy.called.clone(),
        depth: copy.depth,
        gaps: 0,
        outside: 0,
    };
    let hooks = match span {
        Ok(InlinedSpan {
            span,
            gaps,
            outside,
            ..
        }) => {
            (doc.gaps, doc.outside) = (gaps, outside);
            match standing(span.frame) {
                Some(standing) => point.standing = standing,
                None => {
                    let why = "its frame is too far away".to_owned();
                    point.refused = Some(Refusal::Inside(why));
                }
            }
            span.hooks
        }
        Err(why) => {
            point.refused = Some(Refusal::Inside(why));
            Vec::new()
        }
    };
    point.span = Some(hooks);
    point.copy = Some(Box::new(doc));
    point
}

/// True if one of these places names the copy that is measured by this row.
pub(super) fn is_named_copy(
    document: &Document,
    modules: &[Module],
    spots: &[Spot],
    row: &FunctionDoc,
) -> bool {
    let Some(copy) = &row.copy else {
        return false;
    };
    let Some(of) = document.modules.get(row.module) else {
        return false;
    };
    let mut here = modules.iter().filter(|module| module.path == of.path);
    let module = here.next();
    let mut patterns = spots.iter().filter(|spot| spot.is_of_copies());
    patterns.any(|spot| {
        let Some(pattern) = spot.function() else {
            return false;
        };
        let name = module.map_or_else(|| ipath_base::files::file_name(&of.path), Module::file_name);
        if !is_meant(pattern, name, module) {
            return false;
        }
        if !pattern.is_address() {
            return pattern.names(&copy.linkage);
        }
        let Some(image) = module.and_then(|module| images::of_module(module).ok()) else {
            return false;
        };
        let functions = image.select(pattern, name, of.bias);
        let mut functions = functions.iter();
        functions.any(|f| f.linkage == copy.linkage || f.aliases.contains(&copy.linkage))
    })
}
