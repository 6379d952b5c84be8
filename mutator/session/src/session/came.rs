//! Libraries that were loaded later and contain requested functions, without a pending pattern for
//! them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::segment::device_numbers;
use patcher::select::Pattern;

use super::Session;
use crate::segment::Document;
use ipath_base::files::file_name;
use ipath_symbols::images::{self, OpenError};
use ipath_target::process::identity::{self, FileId};
use ipath_target::process::modules::Module;

/// The most entries to inspect: a library that is loaded repeatedly has many.
const MAX_ENTRIES: u32 = 4096;

/// Records the files that were searched for functions.
pub(super) fn note_looked_in(document: &mut Document, modules: &[Module]) {
    for module in modules {
        let key = (module.path.clone(), module.file());
        if !document.looked_in.contains(&key) {
            document.looked_in.push(key);
        }
    }
}

impl Session {
    /// The paths of libraries that the runtime has seen, that contain requested functions, and that
    /// are not measured. Empty while patterns are pending, because these install the functions.
    pub fn came_unmeasured(&self) -> Vec<String> {
        let document = &self.document;
        if !document.pending.is_empty() || document.named.is_empty() {
            return Vec::new();
        }
        let patterns = document.named.iter();
        let patterns: Vec<Pattern> = patterns
            .filter_map(|text| Pattern::parse(text).ok())
            .collect();
        let is_named = |(path, file): &(String, FileId)| {
            let bytes = || identity::open(path.as_ref(), file, |_| None).map_err(OpenError::Io);
            let Ok(image) = images::of_file(path, file, bytes) else {
                return false;
            };
            let name = file_name(path);
            let mut patterns = patterns.iter().filter(|p| !p.is_address());
            patterns.any(|p| p.module_matches(name) && !p.select(image.image(), name).is_empty())
        };
        let came = self.came();
        came.into_iter()
            .filter(is_named)
            .map(|(path, _)| path)
            .collect()
    }

    /// The files that the runtime has seen and that were not searched.
    fn came(&self) -> BTreeSet<(String, FileId)> {
        let used = self.segment.header().modules_used.load(Acquire);
        let used = u32::try_from(used).unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
        let all = (0..used).filter_map(|index| {
            let entry = self.segment.module(index)?;
            let len = entry.path_len.load(Acquire) as usize;
            let words = entry.path.iter();
            let bytes = words.flat_map(|word| word.load(Relaxed).to_le_bytes());
            let path = String::from_utf8(bytes.take(len).collect()).ok()?;
            let (major, minor) = device_numbers(entry.device.load(Relaxed));
            let file = (
                format!("{major:02x}:{minor:02x}"),
                entry.inode.load(Relaxed),
            );
            (len <= abi::segment::MODULE_PATH && path.starts_with('/')).then_some((path, file))
        });
        let looked_in = &self.document.looked_in;
        all.filter(|key| !looked_in.contains(key)).collect()
    }
}
