//! The data of one process to send.

use std::io;
use std::path::{Path, PathBuf};

use crate::commands::looked::Looked;
use crate::commands::rank_file::with_rank;
use crate::commands::watch::destination;
use crate::failure::Failure;
use ipath_base::destination::Destination;
use ipath_profile::Profile;

/// The name of the command in messages.
pub(super) const OPERATION: &str = "push";

/// A profile, or a session whose profile grows.
pub(super) struct Part {
    /// `None` for a file.
    looked: Option<Looked>,
    /// The file or the process id.
    pub(super) who: String,
    /// The latest profile. The server lacks only the part in `rest`.
    now: Option<Profile>,
    /// The latest profile that the server has completely.
    accepted: Option<Profile>,
    /// The part that the server does not have.
    pub(super) rest: Option<Profile>,
    /// The number of calls that the server has on paths that have changed since.
    pub(super) lost: u64,
    /// True once nothing remains to be sent, now or later.
    pub(super) is_done: bool,
    /// The file for data that the server does not accept.
    output: Option<(PathBuf, Destination)>,
}

impl Part {
    /// The data of a profile in a file.
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

    /// The data of a session: all of it, or the increase from now on.
    pub(super) fn of_session(
        mut looked: Looked,
        output: Option<&Path>,
        from_now: bool,
    ) -> Result<Self, Failure> {
        let who = looked.pid().to_string();
        let now = looked.profile(OPERATION);
        let now = now.ok_or_else(|| {
            let cause = "the session cannot be read at the moment";
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

    /// True for a session, whose data is in no file.
    pub(super) fn is_session(&self) -> bool {
        self.looked.is_some()
    }

    /// Determines the data to send. Returns true if no more will come.
    pub(super) fn look(&mut self) -> bool {
        let Some(looked) = &mut self.looked else {
            return true;
        };
        // Checked before the profile is read, so that a profile read afterwards is complete.
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

    /// Records that the server has everything.
    pub(super) fn accepted(&mut self) {
        self.rest = None;
        self.accepted = self.now.take();
    }

    /// True once no more data will come.
    pub(super) fn is_over(&self) -> bool {
        self.looked.as_ref().is_none_or(Looked::is_over)
    }

    /// The calls that the server does not have.
    pub(super) fn calls_left(&self) -> u64 {
        self.rest.as_ref().map_or(0, Profile::calls)
    }

    /// Writes the data that the server does not have. Returns the file's name, or `None` if there
    /// is no such data or no file for it. An error has the file's name, too.
    pub(super) fn keep(&mut self) -> Result<Option<String>, (String, io::Error)> {
        let (Some((path, to)), Some(rest)) = (&self.output, &mut self.rest) else {
            return Ok(None);
        };
        if self.accepted.is_some() {
            let note = "this is a part of a session: minimum and maximum values are bounds";
            rest.session.notes.push(note.to_owned());
        }
        let path = path.display().to_string();
        match rest.save_to(to) {
            Ok(()) => Ok(Some(path)),
            Err(error) => Err((path, error)),
        }
    }
}

/// The output file of a profile, opened. `None` if `output` is `None`. An error if it cannot be
/// written.
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
