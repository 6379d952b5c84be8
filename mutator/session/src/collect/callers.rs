//! The frames of paths of measured functions only (`--path probes`).

use std::collections::{BTreeMap, HashMap};

use super::paths::heirs;
use crate::segment::Document;
use ipath_profile::{Frame, Profile};

/// The frames that stand for open calls of measured functions.
pub(super) struct Callers {
    /// Indexes in the profile, by function id.
    functions: BTreeMap<u32, usize>,
    /// Indexes of frames in the profile, by that of their function.
    frames: HashMap<usize, usize>,
}

impl Callers {
    /// For a session with this document. `None` if its paths consist of call sites.
    pub(super) fn of(document: &Document) -> Option<Self> {
        if !document.callers_only {
            return None;
        }
        let rows = document.rows().enumerate();
        let known = rows.filter_map(|(index, (id, _))| Some((u32::try_from(id).ok()?, index)));
        let mut functions: BTreeMap<u32, usize> = known.collect();
        for (retired, heir) in heirs(document) {
            if let Some(&index) = functions.get(&heir) {
                functions.insert(retired, index);
            }
        }
        Some(Self {
            functions,
            frames: HashMap::new(),
        })
    }

    /// The index of the frame of the function with this id, which is added if it is missing. The
    /// place of the call in the function is not known.
    pub(super) fn frame(&mut self, profile: &mut Profile, id: u32) -> usize {
        let function = self.functions.get(&id).copied();
        // A function that is not in the document has no frame of its own.
        let key = function.unwrap_or(usize::MAX);
        if let Some(&known) = self.frames.get(&key) {
            return known;
        }
        let of = function.and_then(|index| profile.functions.get(index));
        let frame = of.map_or_else(Frame::default, |of| Frame {
            module: Some(of.module),
            address: of.address,
            function: Some(if of.linkage.is_empty() {
                of.name.clone()
            } else {
                of.linkage.clone()
            }),
            ..Frame::default()
        });
        profile.frames.push(frame);
        let index = profile.frames.len() - 1;
        self.frames.insert(key, index);
        index
    }
}
