//! What of one process is to be sent.

use std::io;
use std::path::{Path, PathBuf};

use crate::commands::looked::Looked;
use crate::commands::rank_file::with_rank;
use crate::commands::watch::destination;
use ipath_base::destination::Destination;
use ipath_base::error::Failure;
use ipath_profile::Profile;

/// The command, as messages have it.
pub(super) const OPERATION: &str = "push";

/// A profile, or a session whose profile grows.
pub(super) struct Part {
    /// None for a file.
    looked: Option<Looked>,
    /// The file, or the process's id.
    pub(super) who: String,
    /// The latest, of which the server has all or what is not in `rest`.
    now: Option<Profile>,
    /// The latest of which the server has all.
    accepted: Option<Profile>,
    /// What it has not.
    pub(super) rest: Option<Profile>,
    /// Calls that it has and that stand on other paths by now.
    pub(super) lost: u64,
    /// True once there is nothing more to be sent, now or later.
    pub(super) is_done: bool,
    /// Where what is not accepted goes.
    output: Option<(PathBuf, Destination)>,
}

impl Part {
    /// That of a profile which stands in a file.
    pub(super) fn of_file(
        file: &Path,
        profile: Profile,
        output: Option<&Path>,
    ) -> Result<Self, Failure> {
        let output = place(output, &profile)?;
        Ok(Self {
            looked: None,
            who: file.display().to_string(),
            now: Some(profile.clone()),
            accepted: None,
            rest: Some(profile),
            lost: 0,
            is_done: false,
            output,
        })
    }

    /// That of a session: of all of it, or of what comes from now on.
    pub(super) fn of_session(
        mut looked: Looked,
        output: Option<&Path>,
        from_now: bool,
    ) -> Result<Self, Failure> {
        let who = looked.pid().to_string();
        let now = looked.profile(OPERATION);
        let now = now.ok_or_else(|| {
            let cause = "the session cannot be read at this moment";
            Failure::new(OPERATION, &who, cause)
        })?;
        Ok(Self {
            looked: Some(looked),
            who,
            output: place(output, &now)?,
            now: None,
            accepted: Some(now).filter(|_| from_now),
            rest: None,
            lost: 0,
            is_done: false,
        })
    }

    /// True for what a process measures, and no file has.
    pub(super) fn is_session(&self) -> bool {
        self.looked.is_some()
    }

    /// Finds what there is to be sent; true if nothing more will come.
    pub(super) fn look(&mut self) -> bool {
        let Some(looked) = &mut self.looked else {
            return true;
        };
        // Before the profile: what is read afterwards is all there is.
        let is_over = looked.is_over();
        let Some(now) = looked.profile(OPERATION) else {
            return is_over;
        };
        let (rest, lost) = match &self.accepted {
            Some(accepted) => now.clone().since(accepted),
            None => (now.clone(), 0),
        };
        self.lost = lost;
        self.now = Some(now);
        self.rest = Some(rest).filter(|rest| !rest.paths.is_empty());
        if self.rest.is_none() {
            self.accepted();
        }
        is_over
    }

    /// The server has all there is.
    pub(super) fn accepted(&mut self) {
        self.rest = None;
        self.accepted = self.now.take();
    }

    /// True once nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.looked.as_ref().is_none_or(Looked::is_over)
    }

    /// The calls that the server does not have.
    pub(super) fn calls_left(&self) -> u64 {
        self.rest.as_ref().map_or(0, Profile::calls)
    }

    /// Writes what the server does not have: where, if anything was to be written.
    pub(super) fn keep(&mut self) -> Result<Option<String>, (String, io::Error)> {
        let (Some((path, to)), Some(rest)) = (&self.output, &mut self.rest) else {
            return Ok(None);
        };
        if self.accepted.is_some() {
            let note = "it is a part of a session: least and largest values are bounds";
            rest.session.notes.push(note.to_owned());
        }
        let path = path.display().to_string();
        match rest.save_to(to) {
            Ok(()) => Ok(Some(path)),
            Err(error) => Err((path, error)),
        }
    }
}

/// The file of a profile, refused where it cannot be written.
fn place(
    output: Option<&Path>,
    profile: &Profile,
) -> Result<Option<(PathBuf, Destination)>, Failure> {
    let Some(output) = output else {
        return Ok(None);
    };
    let rank = profile.target.labels.get("rank");
    let path = with_rank(output, rank.and_then(|rank| rank.parse().ok()))?;
    let to = destination(&path)?;
    Ok(Some((path, to)))
}
