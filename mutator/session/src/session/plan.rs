//! How selected functions would be patched.

use std::collections::HashMap;

use patcher::function::Function;
use patcher::plan::{FunctionPlan, RefuseReason, plan_allowed};
use rustc_hash::FxHashSet;

use super::candidate::{Candidate, Origin, display_name};
use super::elsewhere::{Elsewhere, MOST_DWARF, inlined_in, names};
use super::select::{Place, Query};
use crate::segment::Role;
use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::VDSO;

impl Place<'_> {
    fn origin(&self) -> Origin {
        Origin {
            module: self.index,
            image: self.image,
            bias: self.bias,
        }
    }

    /// Plans functions that are meant by address or by name.
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
            // A glob means functions: what has no name and is none was not meant.
            let is_meant = query.in_full || is_by_address || !function.linkage.is_empty();
            if !is_meant && plan.entry.outcome == Err(RefuseReason::Fragment) {
                continue;
            }
            let name = display_name(&function, &self.shown_name());
            let mut candidate = Candidate::new(self.origin(), Role::Measured, name, plan);
            candidate.elsewhere = Elsewhere::of(self.image, &function, &inlined);
            take(candidate);
        }
    }

    fn plan(&self, query: &Query<'_>, function: &Function) -> FunctionPlan {
        let refusal = self.module.and_then(|module| match module.path.as_str() {
            VDSO => Some(RefuseReason::Vdso),
            _ if module.shares(self.bias, function) => Some(RefuseReason::SharedText),
            _ => None,
        });
        let OpenImage { image, context, .. } = self.image;
        match refusal {
            Some(reason) => FunctionPlan::refusal(function, reason),
            None => plan_allowed(image, context, function, query.want, query.allowed),
        }
    }

    /// How often functions have been inlined, by linkage name: those of these names, or all.
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
        inlined_in(self.image, self.path, most, wanted)
    }
}
