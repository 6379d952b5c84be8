//! Which functions and call sites of several profiles are the same.

use crate::profile::{Counts, Frame, Function, FunctionTotals, Module, Profile};
use rustc_hash::{FxHashMap, FxHashSet};

/// Code by what it is, with its index in the sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    modules: FxHashMap<String, usize>,
    functions: FxHashMap<(usize, u64, bool), usize>,
    frames: FxHashMap<FrameKey, usize>,
    refused: FxHashSet<(usize, u64, String)>,
}

/// A file and an address in it; of code that no file has the name and the place in it, or the address if it has no name.
type FrameKey = (Option<usize>, u64, Option<String>);

/// The indexes in the sum of what a profile has.
pub(super) struct Indexes {
    pub(super) functions: Vec<usize>,
    pub(super) frames: Vec<usize>,
}

impl Code {
    /// Adds what the sum does not have yet, and says where all of it is.
    pub(super) fn take(&mut self, sum: &mut Profile, profile: &Profile) -> Indexes {
        let modules = profile.modules.iter();
        let modules: Vec<usize> = modules.map(|m| self.module(&mut sum.modules, m)).collect();
        let functions = profile.functions.iter();
        let functions = functions.map(|f| self.function(&mut sum.functions, f, modules[f.module]));
        let functions = functions.collect();
        let frames = profile.frames.iter();
        let frames = frames.map(|f| self.frame(&mut sum.frames, f, f.module.map(|m| modules[m])));
        let frames = frames.collect();
        for refused in &profile.refused {
            let module = modules[refused.module];
            let key = (module, refused.address, refused.reason.clone());
            if self.refused.insert(key) {
                let mut refused = refused.clone();
                refused.module = module;
                sum.refused.push(refused);
            }
        }
        Indexes { functions, frames }
    }

    fn module(&mut self, sum: &mut Vec<Module>, module: &Module) -> usize {
        // No path is like this: none has a byte 0.
        let key = match &module.build_id {
            Some(id) => format!("\0{id}"),
            None => module.path.clone(),
        };
        let at = *self.modules.entry(key).or_insert_with(|| {
            sum.push(module.clone());
            sum.len() - 1
        });
        let known = &mut sum[at];
        if known.base != module.base {
            // It is somewhere else in each process.
            known.base = None;
        }
        at
    }

    fn function(&mut self, sum: &mut Vec<Function>, function: &Function, module: usize) -> usize {
        let key = (module, function.address, function.point);
        *self.functions.entry(key).or_insert_with(|| {
            // What is known of the ends is added up from the paths.
            let totals = FunctionTotals {
                counts: Counts::default(),
                unwound: function.totals.unwound.map(|_| 0),
                open: function.totals.open.map(|_| 0),
            };
            sum.push(Function {
                module,
                tail: 0,
                totals,
                spread: None,
                processes: Vec::new(),
                ..function.clone()
            });
            sum.len() - 1
        })
    }

    fn frame(&mut self, sum: &mut Vec<Frame>, frame: &Frame, module: Option<usize>) -> usize {
        let key = match (module, &frame.function) {
            (None, Some(name)) => (
                None,
                frame.offset.unwrap_or(frame.address),
                Some(name.clone()),
            ),
            (module, _) => (module, frame.address, None),
        };
        *self.frames.entry(key).or_insert_with(|| {
            sum.push(Frame {
                module,
                ..frame.clone()
            });
            sum.len() - 1
        })
    }
}
