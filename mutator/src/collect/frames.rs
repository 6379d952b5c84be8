//! Return addresses as frames: which file they are in, which function, which line.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use patcher::{Avma, Svma};

use super::places::{Code, Places};
use crate::images::OpenImage;
use crate::lines::{self, Lines};
use crate::process::Process;
use crate::profile::{self, Frame, Profile};
use crate::segment::{Document, Segment};

/// A module: its path, and the address in the process minus that in the file where it is known.
pub(super) type Key = (String, Option<u64>);

/// What is known of addresses, kept from profile to profile.
#[derive(Default)]
pub(super) struct Frames {
    places: Places,
    /// What each return address is, with its module.
    known: HashMap<Avma, (Frame, Option<Key>)>,
    /// Modules whose file cannot be read, with the reason.
    unread: HashMap<Key, String>,
    /// Of the profile being made: the frame of each return address.
    used: HashMap<Avma, usize>,
    /// Of the profile being made: the index of each module.
    modules: HashMap<Key, usize>,
    /// Of the profile being made: which of its modules cannot be read.
    notes: Vec<String>,
    /// The functions of the session that have no name, by path and first address, with the address after them: the
    /// file alone may not tell where they start.
    nameless: BTreeMap<(String, Svma), Svma>,
    /// Source positions, by path; `None` where a file has none.
    lines: HashMap<String, Option<Lines<'static>>>,
    /// How often has been looked at the process since one was asked for.
    looks_without: u32,
}

impl Frames {
    /// Takes in what the process has mapped now; true where frames that are known may have other names by that.
    pub(super) fn learn_maps(&mut self, process: &Process) -> bool {
        /// After so many looks without a new address no memory is spent on source positions.
        const ENOUGH: u32 = 10;
        self.looks_without = self.looks_without.saturating_add(1);
        if self.looks_without == ENOUGH {
            self.lines.clear();
        }
        let known = self.known.len();
        let mut is_renamed = false;
        for new in self.places.learn_maps(process) {
            self.known.retain(|&ra, _| ra <= new.start || ra > new.end);
            let file = self.places.file(new.start);
            is_renamed |=
                file.is_some_and(|file| self.modules.keys().any(|(path, _)| path == file));
        }
        is_renamed || self.known.len() != known
    }

    /// Takes in what the runtime has seen: the only witness of what a target that has ended had
    /// mapped.
    pub(super) fn learn_published(
        &mut self,
        segment: &Segment,
        document: &Document,
        process: &Process,
    ) {
        self.places
            .learn_published(segment, &document.modules, process);
    }

    /// Begins another profile, of a session with this document.
    pub(super) fn begin(&mut self, document: &Document) {
        self.used.clear();
        self.modules.clear();
        self.notes.clear();
        for (_, function) in document.measured().filter(|(_, f)| f.linkage.is_empty()) {
            if let Some(module) = document.modules.get(function.module) {
                let start = function.address;
                let end = Svma(start.0.saturating_add(function.size));
                self.nameless.insert((module.path.clone(), start), end);
            }
        }
    }

    /// What is to be said of the modules of the profile being made.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
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
        if let Some(cause) = self.unread.get(&key) {
            let note = format!("the functions of {path} are not named: {cause}");
            self.notes.push(note);
        }
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
        let id = self.places.image(path)?.image.build_id()?;
        Some(id.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The index of a return address's frame in the profile being made.
    pub(super) fn frame(&mut self, profile: &mut Profile, ra: Avma) -> usize {
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

    fn look_up(&mut self, ra: Avma) -> (Frame, Option<Key>) {
        self.looks_without = 0;
        let at = Avma(ra.0.wrapping_sub(1));
        let unnamed = |address: u64| Frame {
            address,
            ..Frame::default()
        };
        let Some(place) = self.places.find(at) else {
            return (unnamed(at.0), None);
        };
        let (image, bias) = match &place.code {
            Code::Of(image, bias) => (*image, *bias),
            Code::Unread { bias, cause } => {
                let key = (place.path.clone(), Some(bias.0));
                self.unread.insert(key.clone(), cause.clone());
                return (unnamed(bias.to_svma(at).0), Some(key));
            }
            Code::NoImage => return (unnamed(at.0), Some((place.path.clone(), None))),
        };
        let svma = bias.to_svma(at);
        let mut frame = image.frame(svma);
        let path = place.path.clone();
        if frame.offset.is_none() {
            let mut before = self.nameless.range(..=(path.clone(), svma)).rev();
            let found = before
                .next()
                .filter(|((of, _), end)| *of == path && svma < **end);
            frame.offset = found.map(|((_, start), _)| svma.0 - start.0);
        }
        let lines = self.lines.entry(path.clone()).or_insert_with(|| {
            Lines::load(
                image.image.data(),
                &lines::Places::for_file(Path::new(&path)),
            )
        });
        if let Some(lines) = lines {
            lines.describe(svma, &mut frame);
        }
        (frame, Some((path, Some(bias.0))))
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
