//! Frames of return addresses: module, function and line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use patcher::flow::resumes_builtin;
use patcher::{Avma, Svma};
use rustc_hash::FxHashMap;

use super::described;
use super::edges::{Below, Edges};
use super::places::{Code, CodeMapping, Places, Site};
use crate::segment::{Document, ModuleDoc, Segment};
use ipath_profile::{Frame, FrameLoop, Profile, Verdict};
use ipath_symbols::debuginfod::{self, hex};
use ipath_symbols::jit::JitNames;
use ipath_target::process::Process;

/// A module: its path and its bias (the address in the process minus the one in the file), if
/// known.
pub(super) type FrameKey = (String, Option<u64>);

/// A module with its build id, if known. A module with another build id may have replaced it.
type Built = (FrameKey, Option<String>);

/// Knowledge about addresses that is kept from profile to profile.
#[derive(Default)]
pub(super) struct Frames {
    places: Places,
    edges: Edges,
    /// Names of code that belongs to no file.
    jit: JitNames,
    /// True once `jit` has been read for the current profile.
    is_jit_read: bool,
    /// True if the current profile has frames in code that belongs to no file.
    has_generated: bool,
    /// The frame of each call site, with its module.
    known: HashMap<Site, (Frame, Option<Built>)>,
    /// Modules whose file cannot be read, with the reason.
    unread: HashMap<FrameKey, String>,
    /// Modules with debug information in separate files that were not found.
    split: BTreeSet<FrameKey>,
    /// The index of each call site's frame in the current profile.
    used: FxHashMap<Site, usize>,
    /// The indexes, in the current profile, of the modules with each path and bias.
    modules: HashMap<FrameKey, Vec<usize>>,
    /// Notes on modules of the current profile.
    notes: Vec<String>,
    /// Functions of the session without a name, by path and first address, with the address after
    /// the last. The file alone may not show where they start.
    nameless: BTreeMap<(String, Svma), Svma>,
    /// The number of debug files that had arrived when frames were last looked up.
    arrived: u64,
    /// The number of looks at the process since a new address was looked up.
    looks_without: u32,
}

/// The note on a file whose split debug information is not found.
fn lacks_units(path: &str) -> String {
    format!(
        "{path}: lines may belong to inlined functions, because its split debug information \
        (.dwo, .dwp) is not found"
    )
}

impl Frames {
    /// For a process that is running.
    pub(super) fn of(process: &Process) -> Self {
        Self {
            jit: JitNames::of(process),
            edges: Edges::of(process),
            ..Self::default()
        }
    }

    /// Learns the current mappings of the process. True if known frames may have other names now.
    pub(super) fn learn_maps(&mut self, process: &Process) -> bool {
        /// After this number of looks without a new address, source positions are freed.
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

    /// Learns the runtime's module entries, the only record of what a target that has ended had
    /// mapped. True if known frames may have other names now.
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
        for (_, function) in document.rows().filter(|(_, f)| f.linkage.is_empty()) {
            if let Some(module) = document.modules.get(function.module) {
                let start = function.address;
                let end = Svma(start.0.saturating_add(function.size));
                self.nameless.insert((module.path.clone(), start), end);
            }
        }
    }

    /// The source file and line of an instruction in a module of the session. `None` if they are
    /// not known.
    pub(super) fn position(&self, module: &ModuleDoc, at: Svma) -> Option<(String, u32)> {
        let image = self.places.image(module)?;
        let frame = described::frame(image, at, &module.path, &module.file, self.arrived)?;
        frame.file.zip(frame.line)
    }

    /// The frame of the call of an inlined copy, in the function that contains it. The copy begins
    /// at `at`, and `depth` other copies contain it.
    pub(super) fn caller_of_copy(
        &mut self,
        profile: &mut Profile,
        module: &ModuleDoc,
        at: Svma,
        (entry, depth): (u64, usize),
    ) -> Option<usize> {
        let image = Arc::clone(self.places.image(module)?);
        let (path, file) = (&module.path, &module.file);
        let mut frame = described::frame(&image, at, path, file, self.arrived)?;
        // The call of a copy is in the scope around it. The scopes of its own code are left out.
        let inner = frame.inlined.len().saturating_sub(depth);
        frame.inlined.drain(..inner);
        // The copy may begin with a loop of its own.
        frame.loops = described::loops(&image, at, path, file, usize::MAX);
        frame.loops.retain(|of| of.inlined <= depth);
        frame.copy = Some(entry);
        let key = (path.clone(), Some(module.bias.0));
        frame.module = Some(self.module(profile, key, module.build_id.as_deref()));
        profile.frames.push(frame);
        Some(profile.frames.len() - 1)
    }

    /// The loop whose header begins in the first `len` bytes from an address in a module of the
    /// session. `None` if it is not known.
    pub(super) fn loop_at(&self, module: &ModuleDoc, at: Svma, len: u64) -> Option<FrameLoop> {
        let image = self.places.image(module)?;
        let around = described::loops(image, at, &module.path, &module.file, usize::MAX);
        let mut around = around.into_iter();
        around.find(|of| of.header.wrapping_sub(at.0) < len)
    }

    /// Notes on modules of the current profile.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Learns the debug files that have arrived, and new names of generated code. True if known
    /// frames may have other names now.
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

    /// The index of a module in the current profile. Adds the module, and notes on it, if it is
    /// missing. A module without a known build id matches any build id.
    pub(super) fn module(
        &mut self,
        profile: &mut Profile,
        key: FrameKey,
        build_id: Option<&str>,
    ) -> usize {
        let known = self.modules.get(&key).map_or(&[][..], Vec::as_slice);
        // The build id of a file that could not be read is unknown.
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
        let build_id = build_id
            .map(str::to_owned)
            .or_else(|| self.places.build_id(&path));
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

    /// The index of a call site's frame in the current profile. Adds the frame if it is missing.
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

    /// Reads the names of generated code, once per profile. True if any of them are new.
    fn read_generated(&mut self) -> bool {
        if std::mem::replace(&mut self.is_jit_read, true) {
            return false;
        }
        let paths = self.places.paths();
        paths.for_each(|path| self.jit.learn_path(path));
        self.jit.refresh()
    }

    /// The frame of code that the process has generated. `None` if the code is from a file or has
    /// no name.
    fn generated(&mut self, site: Site) -> Option<(Frame, Option<Built>)> {
        // Some compilers map generated code from a file that exists only in memory.
        let is_generated = |place: &CodeMapping| {
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

    /// The frame of a call site in a file, with its module. Without a module if no mapping contains
    /// the call site.
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
            Code::Of(image, bias) => (Arc::clone(image), *bias),
            Code::Unread { bias, cause } => {
                let key = (place.path.clone(), Some(bias.0));
                self.unread.insert(key.clone(), cause.clone());
                return (unnamed(bias.to_svma(at).0), Some((key, None)));
            }
            Code::NoImage => return (unnamed(at.0), Some(((place.path.clone(), None), None))),
        };
        let mut svma = bias.to_svma(at);
        let returns_to = svma.plus(1);
        if image.is_intact() && resumes_builtin(image.image(), returns_to) {
            svma = returns_to;
        }
        let path = place.path.clone();
        let key = (path.clone(), Some(bias.0));
        let described = described::frame(&image, svma, &path, &place.file, self.arrived);
        let Some(mut frame) = described else {
            let cause = "it has been overwritten since it was opened".to_owned();
            self.unread.insert(key.clone(), cause);
            return (unnamed(bias.to_svma(at).0), Some((key, None)));
        };
        frame.loops = described::loops(&image, svma, &path, &place.file, frame.inlined.len());
        if described::lacks_units(&image) && self.split.insert(key.clone()) {
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
        let build_id = image.image().build_id().map(hex);
        (frame, Some(((path, Some(bias.0)), build_id)))
    }
}
