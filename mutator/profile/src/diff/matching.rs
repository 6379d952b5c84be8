//! Matching of the code of two profiles: by address if the files are the same, else by name.

use crate::profile::{Frame, FramePart, FunctionPart, Profile};
use std::collections::HashSet;

/// A function or call site as text. Equal code in two profiles has equal text.
pub(super) type Site = String;

/// The sites of the functions and frames of a profile, by index.
pub(super) struct Sites {
    pub(super) functions: Vec<Site>,
    pub(super) frames: Vec<Site>,
}

/// The build ids that all of `profiles` contain. Empty without profiles.
pub(super) fn common<'p>(profiles: impl Iterator<Item = &'p Profile>) -> HashSet<&'p str> {
    let ids = |profile: &'p Profile| -> HashSet<&'p str> {
        let modules = profile.modules.iter();
        modules.filter_map(|m| m.build_id.as_deref()).collect()
    };
    let all = profiles.map(ids);
    let both = |a: HashSet<&'p str>, b: HashSet<&'p str>| a.intersection(&b).copied().collect();
    all.reduce(both).unwrap_or_default()
}

/// The functions measured by each run of each side.
pub(super) struct Measured<'s>([Vec<HashSet<&'s str>>; 2]);

impl<'s> Measured<'s> {
    /// Collects the functions of the sites of each run, on the old and on the new side.
    pub(super) fn by(sides: &'s [Vec<Sites>; 2]) -> Self {
        let of = |sites: &'s Sites| sites.functions.iter().map(String::as_str).collect();
        Self([0, 1].map(|side| sides[side].iter().map(of).collect()))
    }

    /// For each run of each side, true if the run measured the function.
    pub(super) fn of(&self, function: &str) -> [Vec<bool>; 2] {
        let has = |run: &HashSet<&str>| run.contains(function);
        [0, 1].map(|side| self.0[side].iter().map(has).collect())
    }
}

impl Sites {
    /// The sites of a profile. Code of modules whose build id is in `common` is identified by
    /// address, other code by name.
    pub(super) fn of(profile: &Profile, common: &HashSet<&str>) -> Self {
        let address = |module: Option<usize>, address: u64| {
            let id = profile.modules.get(module?)?.build_id.as_deref()?;
            // Names do not contain a null byte.
            common.contains(id).then(|| format!("\0{id}\0{address:x}"))
        };
        let functions = profile.functions.iter().map(|f| {
            let at = address(Some(f.module), f.address);
            let name = || {
                if f.linkage.is_empty() {
                    f.name.clone()
                } else {
                    f.linkage.clone()
                }
            };
            let part = match (f.part(), &f.inlined_copy) {
                (FunctionPart::Whole, _) => String::new(),
                (FunctionPart::Point, _) => "\0point".to_owned(),
                (FunctionPart::Loop, _) => "\0loop".to_owned(),
                (FunctionPart::Paths, _) => "\0paths".to_owned(),
                (FunctionPart::Copy(_), Some(copy)) if at.is_none() => {
                    format!("\0copy\0{}", copy.within)
                }
                (FunctionPart::Copy(entry), _) => format!("\0copy\0{entry:x}"),
            };
            format!("{}{part}", at.unwrap_or_else(name))
        });
        let named = |frame: &Frame| match frame.function.as_deref() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => profile.frame_name(frame),
        };
        let frames = profile.frames.iter();
        let frames = frames.map(|f| match (address(f.module, f.address), f.part()) {
            (Some(at), FramePart::Copy(copy)) => format!("{at}\0{copy:x}"),
            (Some(at), FramePart::Path(path)) => format!("{at}\0path\0{path}"),
            // The lines of the path, after its number. Paths on the same lines are compared in sum.
            (None, FramePart::Path(_)) => {
                let name = named(f);
                let lines = name.split_once(": ").map(|(_, lines)| lines.to_owned());
                lines.unwrap_or(name)
            }
            (at, _) => at.unwrap_or_else(|| named(f)),
        });
        Self {
            functions: functions.collect(),
            frames: frames.collect(),
        }
    }
}
