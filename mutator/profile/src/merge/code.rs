//! Identification of equal functions and call sites of several profiles.

use crate::profile::{
    Counts, Frame, FramePart, Function, FunctionPart, FunctionTotals, Module, Profile,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Code by its identity, with its index in the sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// By build id, or by path.
    modules: FxHashMap<String, usize>,
    /// By module in the sum, address in the file, and part.
    functions: FxHashMap<(usize, u64, FunctionPart), usize>,
    frames: FxHashMap<FrameKey, usize>,
    /// The refused functions in the sum: module in the sum, address in the file, and reason.
    refused: FxHashSet<(usize, u64, String)>,
}

/// A file and an address in it, and the meaning of the frame. Code that belongs to no file has a
/// name and an offset in it instead, or an absolute address if it has no name.
type FrameKey = (Option<usize>, u64, Option<String>, FramePart);

/// For each function and each frame of a profile, in the profile's order: its index in the sum.
pub(super) struct Indexes {
    pub(super) functions: Vec<usize>,
    pub(super) frames: Vec<usize>,
}

impl Code {
    /// Adds the modules, functions, frames and refused functions of `profile` that `sum` lacks, and
    /// returns the indexes of all functions and frames.
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
        // Does not collide with paths, which cannot contain a null byte.
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
            // The base differs between the processes.
            known.base = None;
        }
        at
    }

    fn function(&mut self, sum: &mut Vec<Function>, function: &Function, module: usize) -> usize {
        let key = (module, function.address, function.part());
        *self.functions.entry(key).or_insert_with(|| {
            // The counts are added up from the paths.
            let totals = FunctionTotals {
                counts: Counts::default(),
                unwound: function.totals.unwound.map(|_| 0),
                open: function.totals.open.map(|_| 0),
            };
            sum.push(Function {
                module,
                tail: 0,
                throttled: None,
                totals,
                spread: None,
                processes: Vec::new(),
                slowest: Vec::new(),
                trace: Vec::new(),
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
                frame.part(),
            ),
            (module, _) => (module, frame.address, None, frame.part()),
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
