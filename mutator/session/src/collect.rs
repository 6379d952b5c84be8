//! From the counters in the segment to a profile, while the target writes on.

mod build;
mod counters;
mod described;
mod edges;
mod frames;
mod functions;
mod head;
mod heads;
mod histogram;
mod measured;
mod net;
mod overhead;
mod paths;
mod places;
mod raw;
mod records;
mod rules;
mod stats;
mod threads;
mod totals;

#[cfg(test)]
mod tests;

use crate::session::Session;
use ipath_profile::{Changed, Profile, Unseen};
use ipath_target::process::Process;
use ipath_target::progress::Step;

use build::Build;
use frames::Frames;
use threads::Names;

pub use head::elapsed_ns;
pub use measured::Measured;
pub use overhead::measuring_ns;

/// Turns a session's counters into profiles; keeps what it has found out about addresses from one
/// to the next, and the profile that it has been asked to look at.
#[derive(Default)]
pub struct Collector {
    frames: Frames,
    names: Names,
    remark: Option<String>,
    /// Notes to add to later profiles.
    further: Vec<String>,
    /// Libraries that were loaded later and are not measured, though they have requested functions.
    libraries: u64,
    /// The replacement of the target's program, with its kind of unseen calls.
    left: Option<(Unseen, String)>,
    /// True if the program that replaced the target's program is measured, too.
    is_continued: bool,
    /// The profile of the last look, and the reading of the document that it is by.
    last: Option<(u64, Build)>,
}

impl Collector {
    /// For profiles of this process, which lives.
    pub fn of(process: &Process) -> Self {
        Self {
            frames: Frames::of(process),
            ..Self::default()
        }
    }

    /// Has a remark stand among the notes of the profiles to come, after those of the session.
    pub fn set_remark(&mut self, remark: Option<String>) {
        self.remark = remark;
    }

    /// Adds a note to this profile and to later ones.
    pub fn add_note(&mut self, note: String) {
        self.further.push(note);
    }

    /// Sets the number of libraries that were loaded later and are not measured, though they have
    /// requested functions.
    pub fn set_libraries(&mut self, libraries: u64) {
        self.libraries = libraries;
    }

    /// Makes later profiles report that this was not seen.
    pub fn set_left(&mut self, left: Option<(Unseen, String)>) {
        self.left = left;
    }

    /// Records that the program that replaces the target's program is measured, too.
    pub fn set_continued(&mut self) {
        self.is_continued = true;
    }

    /// Brings the profile up to date with the session: what is read again is what has changed since the look before. New
    /// paths come after the others.
    pub fn look(&mut self, session: &Session) -> (&Profile, Changed) {
        self.look_at(Measured::by(session), session.reading())
    }

    /// The profile of a session as it is now, its paths by function.
    pub fn profile(&mut self, session: &Session) -> Profile {
        self.profile_of(Measured::by(session))
    }

    /// The profile of what was measured so far. Nothing in segment and document is trusted.
    pub fn profile_of(&mut self, measured: Measured<'_>) -> Profile {
        // There need not be memory for both.
        self.last = None;
        let _step = Step::begin("naming the call sites");
        self.learn(measured);
        let mut build = Build::new(measured, &mut self.frames);
        self.refresh(measured, &mut build);
        build.profile
    }

    /// The same as [`Self::look`]; `reading` is another number where the document may be another one.
    fn look_at(&mut self, measured: Measured<'_>, reading: u64) -> (&Profile, Changed) {
        let _step = Step::recurrent("naming the call sites");
        let is_renamed = self.learn(measured);
        let last = self.last.take();
        let last = last.filter(|&(of, _)| of == reading && !is_renamed);
        let looked = last.and_then(|(_, mut build)| {
            let changed = build.look(measured.segment, &mut self.frames)?;
            Some((build, Changed::Paths(changed)))
        });
        let (mut build, changed) = looked.unwrap_or_else(|| {
            let build = Build::new(measured, &mut self.frames);
            (build, Changed::All)
        });
        self.refresh(measured, &mut build);
        let (_, build) = self.last.insert((reading, build));
        (&build.profile, changed)
    }

    /// Takes in what is mapped now; true where frames that are known have other names by that.
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

    /// Brings everything but the paths up to date.
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
