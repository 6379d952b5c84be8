//! Return addresses as frames: which file they are in, which function, which line.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use patcher::flow::resumes_builtin;
use patcher::{Avma, Svma};
use rustc_hash::FxHashMap;

use super::described;
use super::edges::{Below, Edges};
use super::places::{Code, Place, Places, Site};
use crate::segment::{Document, Segment};
use ipath_profile::{Frame, Profile, Verdict};
use ipath_symbols::debuginfod::{self, hex};
use ipath_symbols::jit::JitNames;
use ipath_target::process::Process;

/// A module: its path, and the address in the process minus that in the file where it is known.
pub(super) type Key = (String, Option<u64>);

/// A module with its build id, where that is known: another one may have come to its place.
type Built = (Key, Option<String>);

/// What is known of addresses, kept from profile to profile.
#[derive(Default)]
pub(super) struct Frames {
    places: Places,
    edges: Edges,
    /// The names of code that no file has.
    jit: JitNames,
    /// True once they have been read for the profile being made.
    is_jit_read: bool,
    /// True if the profile being made has frames in code that is in no file.
    has_generated: bool,
    /// What each call site is, with its module.
    known: HashMap<Site, (Frame, Option<Built>)>,
    /// Modules whose file cannot be read, with the reason.
    unread: HashMap<Key, String>,
    /// Modules with debug information in separate files that were not found.
    split: BTreeSet<Key>,
    /// Of the profile being made: the frame of each call site.
    used: FxHashMap<Site, usize>,
    /// Of the profile being made: the indexes of the modules that have been at a place.
    modules: HashMap<Key, Vec<usize>>,
    /// Of the profile being made: which of its modules cannot be read.
    notes: Vec<String>,
    /// The functions of the session that have no name, by path and first address, with the address after them: the
    /// file alone may not tell where they start.
    nameless: BTreeMap<(String, Svma), Svma>,
    /// How many debug files had come when these were looked up.
    arrived: u64,
    /// How often has been looked at the process since one was asked for.
    looks_without: u32,
}

fn lacks_units(path: &str) -> String {
    format!(
        "{path}: lines may be those of functions that are inlined there: its split debug information (.dwo, .dwp) is not found"
    )
}

impl Frames {
    /// Of a process that lives.
    pub(super) fn of(process: &Process) -> Self {
        Self {
            jit: JitNames::of(process),
            edges: Edges::of(process),
            ..Self::default()
        }
    }

    /// Takes in what the process has mapped now; true where frames that are known may have other names by that.
    pub(super) fn learn_maps(&mut self, process: &Process) -> bool {
        /// After so many looks without a new address no memory is spent on source positions.
        const ENOUGH: u32 = 10;
        self.looks_without = self.looks_without.saturating_add(1);
        if self.looks_without == ENOUGH {
            described::forget_lines();
        }
        let known = self.known.len();
        let mut is_renamed = false;
        for new in self.places.learn_maps(process) {
            let is_beside = |address: Avma| address <= new.start || address > new.end;
            self.known.retain(|site, _| is_beside(site.address()));
            let file = self.places.file(new.start);
            is_renamed |=
                file.is_some_and(|file| self.modules.keys().any(|(path, _)| path == file));
        }
        if is_renamed || self.known.len() != known {
            self.edges.forget();
        }
        is_renamed || self.known.len() != known
    }

    /// Takes in what the runtime has seen: the only witness of what a target that has ended had
    /// mapped; true where frames that are known may have other names by that.
    pub(super) fn learn_published(
        &mut self,
        segment: &Segment,
        document: &Document,
        process: &Process,
    ) -> bool {
        let places = &mut self.places;
        let is_renamed = places.learn_published(segment, &document.modules, process);
        if is_renamed {
            self.known.clear();
            self.edges.forget();
        }
        is_renamed
    }

    /// Begins another profile, of a session with this document.
    pub(super) fn begin(&mut self, document: &Document) {
        self.used.clear();
        self.modules.clear();
        self.notes.clear();
        self.has_generated = false;
        for (_, function) in document.measured().filter(|(_, f)| f.linkage.is_empty()) {
            if let Some(module) = document.modules.get(function.module) {
                let start = function.address;
                let end = Svma(start.0.saturating_add(function.size));
                self.nameless.insert((module.path.clone(), start), end);
            }
        }
    }

    /// The source file and line of an instruction of a file that is mapped from this path.
    pub(super) fn position(&self, path: &str, at: Svma) -> Option<(String, u32)> {
        let image = self.places.image(path).filter(|image| image.is_intact())?;
        let frame = described::frame(image, at, path, self.arrived);
        frame.file.zip(frame.line)
    }

    /// What is to be said of the modules of the profile being made.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Takes in the debug files that have come since, and what has been written of generated code; true where frames that
    /// are known may have other names by that.
    pub(super) fn renew(&mut self) -> bool {
        let mut is_renamed = false;
        let arrived = debuginfod::arrived();
        if std::mem::replace(&mut self.arrived, arrived) != arrived {
            self.places.renew();
            self.known.clear();
            self.edges.forget();
            is_renamed = true;
        }
        self.is_jit_read = false;
        is_renamed | (self.has_generated && self.read_generated())
    }

    /// The index of a module in the profile being made.
    pub(super) fn module(
        &mut self,
        profile: &mut Profile,
        key: Key,
        build_id: Option<&str>,
    ) -> usize {
        let known = self.modules.get(&key).map_or(&[][..], Vec::as_slice);
        // Of one that could not be read it is not known.
        let is_it = |module: &ipath_profile::Module| match (build_id, &module.build_id) {
            (Some(wanted), Some(known)) => wanted == known,
            _ => true,
        };
        if let Some(&index) = known.iter().find(|&&at| is_it(&profile.modules[at])) {
            return index;
        }
        let (path, base) = key.clone();
        if let Some(cause) = self.unread.get(&key) {
            let note = format!("the functions of {path} are not named: {cause}");
            self.notes.push(note);
        }
        if self.split.contains(&key) {
            self.notes.push(lacks_units(&path));
        }
        let build_id = build_id.map(str::to_owned).or_else(|| self.build_id(&path));
        let target = &profile.target;
        let started_as = (path == target.exe)
            .then(|| ipath_profile::started_as(&target.exe, &target.args))
            .flatten();
        profile.modules.push(ipath_profile::Module {
            path,
            started_as,
            build_id,
            base,
        });
        let index = profile.modules.len() - 1;
        self.modules.entry(key).or_default().push(index);
        index
    }

    fn build_id(&self, path: &str) -> Option<String> {
        let id = self.places.image(path)?.image.build_id()?;
        Some(hex(id))
    }

    /// The index of a call site's frame in the profile being made.
    pub(super) fn frame(&mut self, profile: &mut Profile, site: Site) -> usize {
        if let Some(&index) = self.used.get(&site) {
            return index;
        }
        let (mut frame, module) = match self.known.get(&site) {
            Some(known) => known.clone(),
            None => match self.generated(site) {
                // Other code may be there next time.
                Some(found) => found,
                None => {
                    let found = self.look_up(site);
                    if found.1.is_some() {
                        self.known.insert(site, found.clone());
                    }
                    found
                }
            },
        };
        frame.module = module.map(|(key, build)| self.module(profile, key, build.as_deref()));
        profile.frames.push(frame);
        self.used.insert(site, profile.frames.len() - 1);
        profile.frames.len() - 1
    }

    /// The verdict of the code on a call and the frame below it: see [`Edges::judge`].
    pub(super) fn judge(&mut self, outer: Site, below: Below, may_be_none: bool) -> Verdict {
        self.edges
            .judge(&mut self.places, outer, below, may_be_none)
    }

    /// See [`Edges::is_replaced`].
    pub(super) fn is_replaced(&mut self, site: Site) -> bool {
        self.edges.is_replaced(&mut self.places, site)
    }

    /// Reads what has been written of generated code, once for each profile; true where there is something new.
    fn read_generated(&mut self) -> bool {
        if std::mem::replace(&mut self.is_jit_read, true) {
            return false;
        }
        let paths = self.places.paths();
        paths.for_each(|path| self.jit.learn_path(path));
        self.jit.refresh()
    }

    /// A frame of code that the process has made itself and has a name for.
    fn generated(&mut self, site: Site) -> Option<(Frame, Option<Built>)> {
        // Some compilers map what they write from a file that is in memory alone.
        let is_generated = |place: &Place| {
            matches!(place.code, Code::NoImage) || place.path.starts_with("/memfd:")
        };
        let (at, place) = self.places.find(site);
        if !place.is_none_or(is_generated) {
            return None;
        }
        self.has_generated = true;
        self.read_generated();
        let named = self.jit.at(at)?;
        let frame = Frame {
            address: at.0,
            function: Some(named.name.to_string()),
            offset: Some(at.0 - named.start.0),
            ..Frame::default()
        };
        Some((frame, None))
    }

    fn look_up(&mut self, site: Site) -> (Frame, Option<Built>) {
        self.looks_without = 0;
        let unnamed = |address: u64| Frame {
            address,
            ..Frame::default()
        };
        let (at, place) = self.places.find(site);
        let Some(place) = place else {
            return (unnamed(at.0), None);
        };
        let (image, bias) = match &place.code {
            Code::Of(image, bias) if image.is_intact() => (*image, *bias),
            Code::Of(_, bias) => {
                let key = (place.path.clone(), Some(bias.0));
                let cause = "it has been written over since it was opened".to_owned();
                self.unread.insert(key.clone(), cause);
                return (unnamed(bias.to_svma(at).0), Some((key, None)));
            }
            Code::Unread { bias, cause } => {
                let key = (place.path.clone(), Some(bias.0));
                self.unread.insert(key.clone(), cause.clone());
                return (unnamed(bias.to_svma(at).0), Some((key, None)));
            }
            Code::NoImage => return (unnamed(at.0), Some(((place.path.clone(), None), None))),
        };
        let mut svma = bias.to_svma(at);
        let returns_to = svma.plus(1);
        if resumes_builtin(image.image, returns_to) {
            svma = returns_to;
        }
        let path = place.path.clone();
        let mut frame = described::frame(image, svma, &path, self.arrived);
        let key = (path.clone(), Some(bias.0));
        if described::lacks_units(image) && self.split.insert(key.clone()) {
            // Otherwise the note is added when a profile includes the module.
            let is_there = self.modules.contains_key(&key);
            self.notes.extend(is_there.then(|| lacks_units(&path)));
        }
        if frame.offset.is_none() {
            let mut before = self.nameless.range(..=(path.clone(), svma)).rev();
            let found = before
                .next()
                .filter(|((of, _), end)| *of == path && svma < **end);
            frame.offset = found.map(|((_, start), _)| svma.0 - start.0);
        }
        let build_id = image.image.build_id().map(hex);
        (frame, Some(((path, Some(bias.0)), build_id)))
    }
}
