//! Display names of functions and call sites.

use super::position::{last_component, position};
use super::{Frame, FrameLoop, Function, Module, Profile};
use crate::folding::{Fold, is_own};
use ipath_base::printable::printable;
use patcher::function::demangle;
use std::borrow::Cow;
use std::collections::HashSet;

/// A line of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The demangled function, or `module+0xSTART`.
    pub name: String,
    /// The source position (`app.c:12`), or the module if the position is not known. Empty for an
    /// inlined copy whose position is not known.
    pub place: String,
    /// True if this is an inlined copy inside the next label's function.
    pub inlined: bool,
    /// The reason to fold the line with its neighbors. `None` if the line is shown.
    pub fold: Option<Fold>,
    /// True if the line is of the program's own function, as by [`is_own`].
    pub is_own: bool,
    /// The loops of this function around the call, innermost first: `loop at solve.c:12-20`.
    pub loops: Vec<String>,
}

impl Profile {
    /// The lines that show `frame`: the functions inlined at the call site, innermost first, then
    /// the function itself.
    pub fn labels(&self, frame: &Frame) -> Vec<Label> {
        let module = frame.module.and_then(|module| self.modules.get(module));
        let file = module.map(|module| module.path.as_str());
        let inlined = frame.inlined.iter().zip((1..=frame.inlined.len()).rev());
        let mut labels: Vec<Label> = inlined
            .map(|(inline, depth)| {
                let function = inline.function.as_deref();
                let name = function.map_or_else(|| "?".to_owned(), readable);
                let fold = Fold::of_inlined(&name, inline.file.as_deref());
                Label {
                    is_own: fold.is_none() && is_own(&name, file),
                    fold,
                    name,
                    place: position(inline.file.as_deref(), inline.line).unwrap_or_default(),
                    inlined: true,
                    loops: Self::loops(frame, depth),
                }
            })
            .collect();
        let name = self.frame_name(frame);
        labels.push(Label {
            fold: Fold::of(&name),
            is_own: is_own(&name, file),
            name,
            place: position(frame.file.as_deref(), frame.line)
                .unwrap_or_else(|| self.place_name(frame).into_owned()),
            inlined: false,
            loops: Self::loops(frame, 0),
        });
        labels
    }

    /// The loops around a call in the function that is inlined `depth` times, innermost first.
    fn loops(frame: &Frame, depth: usize) -> Vec<String> {
        let own = frame.loops_at(depth);
        own.map(|of| format!("loop at {}", place_of(frame, of)))
            .collect()
    }

    /// The name of a loop around the call of `frame`: `loop at solve.c:12-20`. If its lines are not
    /// known, it contains the name of the function (`loop at solve+0x1f`) or the module.
    pub(crate) fn loop_name(&self, frame: &Frame, of: &FrameLoop) -> String {
        let place = place_of(frame, of);
        let around = match place.as_bytes() {
            [b'+', ..] => self.frame_name(frame),
            [b'0', ..] => format!("{}+", self.module_name(frame.module)),
            _ => String::new(),
        };
        format!("loop at {around}{place}")
    }

    /// The demangled function of `frame`. `module+0xSTART` if it has no name, or `module+0xADDRESS`
    /// if the start of the function is not known either.
    pub fn frame_name(&self, frame: &Frame) -> String {
        match frame.function.as_deref() {
            Some(linkage) if !linkage.is_empty() => readable(linkage),
            _ => {
                let start = frame.address.wrapping_sub(frame.offset.unwrap_or(0));
                format!("{}+{start:#x}", self.module_name(frame.module))
            }
        }
    }

    /// The place of a frame's code. Code that has a name but belongs to no file was generated in
    /// the process.
    fn place_name(&self, frame: &Frame) -> Cow<'_, str> {
        match (frame.module, &frame.function) {
            (None, Some(_)) => Cow::Borrowed("[jit]"),
            (module, _) => self.module_name(module),
        }
    }

    /// The first of these in which the function at `index` differs from others of its name: its
    /// module, the line of its definition, its module and address, as ` (app)`. Empty if no other
    /// function has its name. Functions without calls count only if this one has none either.
    pub fn distinction(&self, index: usize) -> String {
        let function = &self.functions[index];
        if let Some(copy) = &function.inlined_copy {
            return format!(" ({})", printable(&copy.place()));
        }
        let has_calls = |f: &Function| f.totals.counts.count > 0;
        let is_other = |&(at, f): &(usize, &Function)| {
            let is_shown = has_calls(f) || !has_calls(function);
            at != index && f.name == function.name && is_shown
        };
        let others = self.functions.iter().enumerate().filter(is_other);
        let others: Vec<&Function> = others.map(|(_, other)| other).collect();
        if others.is_empty() {
            return String::new();
        }
        let module = |f: &Function| Some(self.module_name(Some(f.module)).into_owned());
        let line = |f: &Function| position(f.file.as_deref(), Some(f.line?));
        let address = |f: &Function| Some(format!("{}+{:#x}", module(f)?, f.address));
        let differs = |part: &dyn Fn(&Function) -> Option<String>| {
            let own = part(function)?;
            let is_alone = others.iter().all(|f| part(f).as_ref() != Some(&own));
            is_alone.then_some(own)
        };
        let part = differs(&module).or_else(|| differs(&line));
        let part = part.or_else(|| address(function)).unwrap_or_default();
        format!(" ({part})")
    }

    /// The display name of the module with this index: the file's name, or for the program the name
    /// by which it was started. The module's base is appended if the file is mapped in several
    /// places and functions would be mixed up. `[unknown]` if there is no such module.
    pub fn module_name(&self, module: Option<usize>) -> Cow<'_, str> {
        let Some(module) = module.and_then(|m| self.modules.get(m)) else {
            return Cow::Borrowed("[unknown]");
        };
        let own = module.started_as.as_deref();
        let name = printable(own.unwrap_or_else(|| last_component(&module.path)));
        match module.base {
            Some(base) if self.is_mixed_up(module) => Cow::Owned(format!("{name}@{base:#x}")),
            _ => name,
        }
    }

    /// True if the same function is instrumented in two places where the file is mapped.
    fn is_mixed_up(&self, module: &Module) -> bool {
        let is_same = |m: &Module| m.path == module.path;
        let is_other = |m: &Module| is_same(m) && m.base != module.base;
        if !self.modules.iter().any(is_other) {
            return false;
        }
        let of = |is_it: &dyn Fn(&Module) -> bool| -> HashSet<u64> {
            let all = self.functions.iter();
            let own = all.filter(|f| self.modules.get(f.module).is_some_and(is_it));
            own.map(|function| function.address).collect()
        };
        let own = of(&|m| is_same(m) && m.base == module.base);
        !own.is_disjoint(&of(&is_other))
    }
}

impl Frame {
    /// The loops around a call in the function that is inlined `depth` times, innermost first.
    pub(crate) fn loops_at(&self, depth: usize) -> impl Iterator<Item = &FrameLoop> {
        // The call may be in fewer copies than the start of its block.
        let depth_of = |of: &FrameLoop| of.inlined.min(self.inlined.len());
        let all = self.loops.iter();
        all.filter(move |of| depth_of(of) == depth)
    }
}

/// The lines of a loop (`solve.c:12-20`). If they are not known, the offset of its header from the
/// start of the function (`+0x1f`), or its address.
fn place_of(frame: &Frame, of: &FrameLoop) -> String {
    of.lines().unwrap_or_else(|| {
        let start = frame
            .offset
            .map(|offset| frame.address.wrapping_sub(offset));
        let offset = start.and_then(|start| of.header.checked_sub(start));
        offset.map_or_else(
            || format!("{:#x}", of.header),
            |offset| format!("+{offset:#x}"),
        )
    })
}

/// The demangled name, safe to display.
fn readable(linkage: &str) -> String {
    printable(&demangle(linkage)).into_owned()
}
