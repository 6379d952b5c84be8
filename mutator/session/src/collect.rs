//! Builds profiles from the counters in the segment while the target keeps writing to them.

mod apart;
mod build;
mod callers;
mod counters;
mod described;
mod edges;
mod frames;
mod functions;
mod head;
mod heads;
mod histogram;
mod inside;
mod load;
mod loops;
mod measured;
mod net;
mod overhead;
mod paths;
mod places;
mod raw;
mod records;
mod rules;
mod single;
mod stats;
mod threads;
mod totals;

#[cfg(test)]
mod tests;

use crate::session::Session;
use ipath_profile::timeline::Timeline;
use ipath_profile::{Changed, Profile, Unseen};
use ipath_target::process::Process;
use ipath_target::progress::Step;

use build::Build;
use frames::Frames;
use threads::Names;

pub use head::elapsed_ns;
pub use load::{FunctionLoad, Load, LoadReader};
pub use measured::Measured;
pub use overhead::measuring_ns;

/// Turns a session's counters into profiles. Keeps its findings about addresses for later profiles,
/// and the profile that [`look`](Self::look) updates.
#[derive(Default)]
pub struct Collector {
    frames: Frames,
    names: Names,
    timeline: Timeline,
    /// See [`Self::set_remark`].
    remark: Option<String>,
    /// Notes to add to later profiles.
    further: Vec<String>,
    /// Libraries that were loaded later and are not measured, though they contain requested
    /// functions.
    libraries: u64,
    /// The kind of unseen calls and the note on the program that replaced the target's program.
    /// `None` if the target's program was not replaced, or if nothing is unseen.
    left: Option<(Unseen, String)>,
    /// True if the program that replaced the target's program is measured, too.
    is_continued: bool,
    /// The profile of the last look, with the number of the document's reading that it is based on.
    /// `None` if there is none to update.
    last: Option<(u64, Build)>,
}

impl Collector {
    /// A collector for a process that is running.
    pub fn of(process: &Process) -> Self {
        Self {
            frames: Frames::of(process),
            ..Self::default()
        }
    }

    /// Sets a remark that later profiles contain after the session's own notes. `None` removes it.
    pub fn set_remark(&mut self, remark: Option<String>) {
        self.remark = remark;
    }

    /// Adds a note to all later profiles.
    pub fn add_note(&mut self, note: String) {
        self.further.push(note);
    }

    /// Sets the number of libraries that were loaded later and are not measured, though they have
    /// requested functions.
    pub fn set_libraries(&mut self, libraries: u64) {
        self.libraries = libraries;
    }

    /// Makes later profiles contain this note, and count one more loss of this kind. `None` removes
    /// both.
    pub fn set_left(&mut self, left: Option<(Unseen, String)>) {
        self.left = left;
    }

    /// Records that the program that replaces the target's program is measured, too.
    pub fn set_continued(&mut self) {
        self.is_continued = true;
    }

    /// Updates the kept profile, and returns it with its changes. Reads only records that have
    /// changed since the last look, unless the document has changed. New paths are appended.
    pub fn look(&mut self, session: &Session) -> (&Profile, Changed) {
        self.look_at(Measured::by(session), session.reading())
    }

    /// The profile of a session as it is now, its paths ordered by function. Discards the profile
    /// that [`look`](Self::look) updates, so the next look builds it again.
    pub fn profile(&mut self, session: &Session) -> Profile {
        self.profile_of(Measured::by(session))
    }

    /// The profile so far, from a segment and a document that are not trusted. Discards the profile
    /// that [`look`](Self::look) updates.
    pub fn profile_of(&mut self, measured: Measured<'_>) -> Profile {
        // Memory may not suffice for two profiles.
        self.last = None;
        let _step = Step::begin("naming the call sites");
        self.learn(measured);
        let mut build = Build::new(measured, &mut self.frames, &mut self.timeline);
        self.refresh(measured, &mut build);
        build.profile
    }

    /// Implements [`Self::look`]. `reading` differs whenever the document may have changed.
    fn look_at(&mut self, measured: Measured<'_>, reading: u64) -> (&Profile, Changed) {
        let _step = Step::recurrent("naming the call sites");
        let is_renamed = self.learn(measured);
        let last = self.last.take();
        let last = last.filter(|&(of, _)| of == reading && !is_renamed);
        let looked = last.and_then(|(_, mut build)| {
            let changed = build.look(measured.segment, &mut self.frames, &mut self.timeline)?;
            Some((build, Changed::Paths(changed)))
        });
        let (mut build, changed) = looked.unwrap_or_else(|| {
            let build = Build::new(measured, &mut self.frames, &mut self.timeline);
            (build, Changed::All)
        });
        self.refresh(measured, &mut build);
        let (_, build) = self.last.insert((reading, build));
        (&build.profile, changed)
    }

    /// Learns the current mappings. True if that renames frames that are known already.
    fn learn(&mut self, measured: Measured<'_>) -> bool {
        let Measured {
            segment,
            document,
            process,
            is_in_target,
            ..
        } = measured;
        let is_renewed = self.frames.renew();
        let is_renamed = is_in_target && self.frames.learn_maps(process) || is_renewed;
        self.frames.learn_published(segment, document, process) || is_renamed
    }

    /// Updates everything except the paths.
    fn refresh(&mut self, measured: Measured<'_>, build: &mut Build) {
        let measured = Measured {
            is_replaced: measured.is_replaced && self.left.is_none() && !self.is_continued,
            ..measured
        };
        let left = self.left.as_ref();
        let remarks = self.frames.notes().iter().chain(&self.remark);
        let remarks = remarks.chain(&self.further);
        let remarks = remarks.chain(left.map(|(_, note)| note));
        head::refresh(&mut build.profile, measured, remarks);
        build.note_frames();
        let unseen = &mut build.profile.losses.unseen;
        Unseen::Libraries.count(unseen, self.libraries);
        if let Some((kind, _)) = left {
            kind.count(unseen, 1);
        }
        if measured.document.per_thread {
            if measured.is_in_target {
                self.names.learn(measured.process);
            }
            self.names.learn_told(measured.segment);
            build.profile.threads = self.names.of(&build.threads);
        }
    }
}
