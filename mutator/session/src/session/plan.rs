//! Planning the patches of selected functions.

use std::collections::HashMap;
use std::sync::Arc;

use patcher::function::Function;
use patcher::plan::{FunctionPlan, RefuseReason, plan_allowed};
use rustc_hash::FxHashSet;

use super::candidate::{Candidate, Origin, display_name};
use super::elsewhere::{Elsewhere, MOST_DWARF, inlined_in, names};
use super::select::{Query, SearchedFile};
use crate::segment::Role;
use ipath_target::process::modules::VDSO;

impl SearchedFile<'_> {
    fn origin(&self) -> Origin {
        Origin {
            module: self.index,
            image: Arc::clone(&self.image),
            bias: self.bias,
        }
    }

    /// Plans functions and passes them to `take`, also refused ones. The flag is true for a
    /// function that is meant by address. Skips nameless fragments of functions, unless they are
    /// meant by address or the query is in full.
    pub(super) fn plan_all(
        &self,
        query: &Query<'_>,
        functions: Vec<(Function, bool)>,
        take: &mut impl FnMut(Candidate),
    ) {
        let linked = functions
            .iter()
            .flat_map(|(f, _)| names(&f.linkage, &f.aliases));
        let linked = linked.filter(|name| !name.is_empty());
        let wanted = linked.map(String::as_bytes).collect();
        let inlined = self.inlined(query, Some(&wanted));
        for (function, is_by_address) in functions {
            let plan = self.plan(query, &function);
            // A glob means functions. A fragment without a name was not meant.
            let is_meant = query.in_full || is_by_address || !function.linkage.is_empty();
            if !is_meant && plan.entry.outcome == Err(RefuseReason::Fragment) {
                continue;
            }
            let name = display_name(&function, &self.shown_name());
            let mut candidate = Candidate::new(self.origin(), Role::Measured, name, plan);
            candidate.elsewhere = Elsewhere::of(&self.image, &function, &inlined);
            take(candidate);
        }
    }

    /// The plan of a function. Refused in the vDSO, and for text in shared mappings.
    fn plan(&self, query: &Query<'_>, function: &Function) -> FunctionPlan {
        let refusal = self.module.and_then(|module| match module.path.as_str() {
            VDSO => Some(RefuseReason::Vdso),
            _ if module.shares(self.bias, function) => Some(RefuseReason::SharedText),
            _ => None,
        });
        match refusal {
            Some(reason) => FunctionPlan::refusal(function, reason),
            None => {
                let (image, context) = (self.image.image(), self.image.context());
                plan_allowed(image, context, function, query.want, query.allowed)
            }
        }
    }

    /// Number of inlined copies of functions, by linkage name. Counts those with a name in
    /// `wanted`, or all.
    pub(super) fn inlined(
        &self,
        query: &Query<'_>,
        wanted: Option<&FxHashSet<&[u8]>>,
    ) -> HashMap<String, u64> {
        let most = if query.in_full {
            usize::MAX
        } else {
            MOST_DWARF
        };
        inlined_in(&self.image, self.path, most, wanted)
    }
}
