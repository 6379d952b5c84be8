//! Return addresses as frames: which file they are in, which function, which line.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use patcher::{Avma, Bias, Svma};

use crate::images::{self, OpenImage};
use crate::lines::{Lines, Places};
use crate::process::modules::{FileBytes, Module, bias_of, modules};
use crate::process::{Mapping, Process};
use crate::profile::{self, Frame, Profile};
use crate::segment::Segment;

/// An executable mapping of a file.
struct Place {
    end: u64,
    path: String,
    image: Option<(&'static OpenImage, Bias)>,
}

/// A module: its path, and the address in the process minus that in the file where it is known.
pub(super) type Key = (String, Option<u64>);

/// What is known of addresses, kept from profile to profile.
#[derive(Default)]
pub(super) struct Frames {
    /// By first address.
    places: BTreeMap<u64, Place>,
    /// What each return address is, with its module.
    known: HashMap<u64, (Frame, Option<Key>)>,
    /// Of the profile being made: the frame of each return address.
    used: HashMap<u64, usize>,
    /// Of the profile being made: the index of each module.
    modules: HashMap<Key, usize>,
    /// Source positions, by path; `None` where a file has none.
    lines: HashMap<String, Option<Lines<'static>>>,
    /// Executable mappings at the last look, so that the same ones are not looked at again.
    seen: Vec<(u64, u64, String)>,
}

impl Frames {
    /// Takes in what the process has mapped now.
    pub(super) fn learn_maps(&mut self, process: &Process) {
        let Ok(maps) = process.maps() else { return };
        let code = |m: &&Mapping| m.execute && !m.name.is_empty();
        let now: Vec<(u64, u64, String)> = maps
            .iter()
            .filter(code)
            .map(|m| (m.range.start.0, m.range.end.0, m.name.clone()))
            .collect();
        if now == self.seen {
            return;
        }
        self.seen = now;
        for module in modules(process, &maps) {
            for mapping in &module.code {
                self.learn(&module, mapping);
            }
        }
    }

    fn learn(&mut self, module: &Module, mapping: &Mapping) {
        let start = mapping.range.start.0;
        if self
            .places
            .get(&start)
            .is_some_and(|p| p.path == module.path && p.image.is_some())
        {
            return;
        }
        let image = images::of_module(module).ok();
        let image = image.and_then(|i| Some((i, module.bias(&i.image)?)));
        let place = Place {
            end: mapping.range.end.0,
            path: module.path.clone(),
            image,
        };
        self.places.insert(start, place);
        self.known
            .retain(|&ra, _| ra <= start || ra > mapping.range.end.0);
    }

    /// Takes in what the runtime has seen: the only witness of what a target that has ended had
    /// mapped.
    pub(super) fn learn_published(&mut self, segment: &Segment) {
        let used = segment.header().modules_used.load(Acquire);
        for index in 0..u32::try_from(used).unwrap_or(u32::MAX) {
            let Some(entry) = segment.module(index) else {
                break;
            };
            let len = entry.path_len.load(Acquire) as usize;
            let (start, end) = (entry.start.load(Relaxed), entry.end.load(Relaxed));
            if len == 0 || len > abi::segment::MODULE_PATH || self.places.contains_key(&start) {
                continue;
            }
            let bytes = entry
                .path
                .iter()
                .flat_map(|w| w.load(Relaxed).to_le_bytes());
            let path = String::from_utf8_lossy(&bytes.take(len).collect::<Vec<_>>()).into_owned();
            let offset = entry.offset.load(Relaxed);
            let file = FileBytes::open(&PathBuf::from(&path)).ok();
            let image = file.and_then(|f| images::open(&f).ok());
            let image = image.and_then(|i| Some((i, bias_of(&i.image, Avma(start), offset)?)));
            self.places.insert(start, Place { end, path, image });
        }
    }

    /// The index of a module in the profile being made.
    pub(super) fn module(
        &mut self,
        profile: &mut Profile,
        key: Key,
        build_id: Option<&str>,
    ) -> usize {
        if let Some(&index) = self.modules.get(&key) {
            return index;
        }
        let (path, base) = key.clone();
        let build_id = build_id.map(str::to_owned).or_else(|| self.build_id(&path));
        profile.modules.push(profile::Module {
            path,
            build_id,
            base,
        });
        self.modules.insert(key, profile.modules.len() - 1);
        profile.modules.len() - 1
    }

    fn build_id(&self, path: &str) -> Option<String> {
        let place = self.places.values().find(|p| p.path == path)?;
        let id = place.image?.0.image.build_id()?;
        Some(id.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The index of a return address's frame in the profile being made.
    pub(super) fn frame(&mut self, profile: &mut Profile, ra: u64) -> usize {
        if let Some(&index) = self.used.get(&ra) {
            return index;
        }
        let (mut frame, module) = match self.known.get(&ra) {
            Some(known) => known.clone(),
            None => {
                let found = self.look_up(ra);
                self.known.insert(ra, found.clone());
                found
            }
        };
        frame.module = module.map(|key| self.module(profile, key, None));
        profile.frames.push(frame);
        self.used.insert(ra, profile.frames.len() - 1);
        profile.frames.len() - 1
    }

    fn look_up(&mut self, ra: u64) -> (Frame, Option<Key>) {
        let at = ra.wrapping_sub(1);
        let nothing = || {
            (
                Frame {
                    address: at,
                    ..Frame::default()
                },
                None,
            )
        };
        let Some((_, place)) = self
            .places
            .range(..=at)
            .next_back()
            .filter(|(_, p)| at < p.end)
        else {
            return nothing();
        };
        let Some((image, bias)) = place.image else {
            return (nothing().0, Some((place.path.clone(), None)));
        };
        let svma = bias.to_svma(Avma(at));
        let mut frame = image.frame(svma);
        let path = place.path.clone();
        let lines = self.lines.entry(path.clone()).or_insert_with(|| {
            Lines::load(image.image.data(), &Places::for_file(&PathBuf::from(&path)))
        });
        if let Some(lines) = lines {
            lines.describe(svma, &mut frame);
        }
        (frame, Some((path, Some(bias.0))))
    }

    /// Ends the profile being made.
    pub(super) fn end(&mut self, _profile: &mut Profile) {
        self.used.clear();
        self.modules.clear();
    }
}

impl OpenImage {
    /// The frame of a call site.
    fn frame(&self, at: Svma) -> Frame {
        let function = self.image.functions().containing(at);
        Frame {
            module: None,
            address: at.0,
            function: function.and_then(|f| f.linkage).map(str::to_owned),
            offset: function.map(|f| at.0 - f.start.0),
            ..Frame::default()
        }
    }
}
