//! How functions and call sites are called before people.

use super::{Frame, Function, Module, Profile};
use crate::folding::{Fold, is_own};
use ipath_base::printable::printable;
use patcher::function::demangle;
use std::borrow::Cow;
use std::collections::HashSet;

/// One line of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The demangled function, or `module+0xSTART`.
    pub name: String,
    /// The source position (`app.c:12`), or the module where there is none.
    pub place: String,
    /// True if this is an inlined copy inside the next label's function.
    pub inlined: bool,
    /// The reason to fold it with its neighbours. `None` if it is shown.
    pub fold: Option<Fold>,
    /// True if it is the program's own function, see `is_own`.
    pub is_own: bool,
}

impl Profile {
    /// The lines that show `frame`: the functions inlined there, innermost first, then the
    /// function itself.
    pub fn labels(&self, frame: &Frame) -> Vec<Label> {
        let module = frame.module.and_then(|module| self.modules.get(module));
        let file = module.map(|module| module.path.as_str());
        let mut labels: Vec<Label> = frame
            .inlined
            .iter()
            .map(|inline| {
                let function = inline.function.as_deref();
                let name = function.map_or_else(|| "?".to_owned(), readable);
                let fold = Fold::of_inlined(&name, inline.file.as_deref());
                Label {
                    is_own: fold.is_none() && is_own(&name, file),
                    fold,
                    name,
                    place: position(inline.file.as_deref(), inline.line).unwrap_or_default(),
                    inlined: true,
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
        });
        labels
    }

    /// The demangled function of `frame`; `module+0xSTART` where it has no name, and the frame's own address in the
    /// place of START where no function is known there.
    pub fn frame_name(&self, frame: &Frame) -> String {
        match frame.function.as_deref() {
            Some(linkage) if !linkage.is_empty() => readable(linkage),
            _ => {
                let start = frame.address.wrapping_sub(frame.offset.unwrap_or(0));
                format!("{}+{start:#x}", self.module_name(frame.module))
            }
        }
    }

    /// Where a frame's code is: code that no file has and that has a name was written by a compiler in the process.
    fn place_name(&self, frame: &Frame) -> Cow<'_, str> {
        match (frame.module, &frame.function) {
            (None, Some(_)) => Cow::Borrowed("[jit]"),
            (module, _) => self.module_name(module),
        }
    }

    /// The shortest part in which a function differs from others of its name: ` (app)`, the line of its
    /// definition, or its address. Empty if no other function that is called has its name.
    pub fn distinction(&self, index: usize) -> String {
        let function = &self.functions[index];
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

    /// The name of a module: the file's name, or for the program the name by which it was started. The
    /// address is appended if the file is mapped in several places and functions would be mixed up.
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

fn readable(linkage: &str) -> String {
    printable(&demangle(linkage)).into_owned()
}

fn position(file: Option<&str>, line: Option<u32>) -> Option<String> {
    let file = printable(last_component(file?));
    Some(match line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    })
}

fn last_component(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(path)
}
