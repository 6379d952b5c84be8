//! Profiles as files.

use super::{Inconsistent, Profile, SCHEMA};
use crate::destination::Destination;
use crate::error::io_text;
use crate::files::FileBytes;
use serde::Deserialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a profile could not be read or written.
#[derive(Debug)]
pub enum ProfileError {
    /// The file could not be read.
    Read(PathBuf, io::Error),
    /// The file could not be written; what stood there before still does.
    Write(PathBuf, io::Error),
    /// The file holds something else.
    NotAProfile(PathBuf, String),
    /// A profile in another version of the format.
    OtherSchema(PathBuf, String),
    /// A profile whose parts contradict each other.
    Inconsistent(PathBuf, Inconsistent),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, cause) => write!(f, "read {}: {}", path.display(), io_text(cause)),
            Self::Write(path, cause) => write!(f, "write {}: {}", path.display(), io_text(cause)),
            Self::NotAProfile(path, cause) => {
                write!(f, "read {}: not an ipath profile: {cause}", path.display())
            }
            Self::OtherSchema(path, schema) => write!(
                f,
                "read {}: its schema is {schema}, this ipath reads {SCHEMA}",
                path.display()
            ),
            Self::Inconsistent(path, cause) => write!(f, "read {}: {cause}", path.display()),
        }
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// Reads the profile in `path`; its structure is checked, its sums are not (see
    /// [`Profile::check`]).
    ///
    /// # Errors
    /// The file cannot be read, is no profile, or one of another version.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let bytes = FileBytes::open(path).map_err(|e| ProfileError::Read(path.to_owned(), e))?;
        Self::parse(path, bytes.bytes())
    }

    /// Reads the profile that the file at `path` holds.
    ///
    /// # Errors
    /// It is no profile, or one of another version.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ProfileError> {
        let not = |cause: String| ProfileError::NotAProfile(path.to_owned(), cause);
        // The schema is looked at by itself first: another version may have other fields.
        #[derive(Deserialize)]
        struct Any {
            schema: String,
        }
        let any: Any = serde_json::from_slice(bytes).map_err(|e| not(e.to_string()))?;
        if any.schema != SCHEMA {
            let schema = super::printable(&any.schema).into_owned();
            return Err(if schema.starts_with("ipath-profile/") {
                ProfileError::OtherSchema(path.to_owned(), schema)
            } else {
                not(format!("its schema is {schema}"))
            });
        }
        let profile: Self = serde_json::from_slice(bytes).map_err(|e| not(e.to_string()))?;
        profile
            .check_structure()
            .map_err(|e| ProfileError::Inconsistent(path.to_owned(), e))?;
        Ok(profile)
    }

    /// Writes the profile to what `path` names, a file whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let saved = Destination::of(path).and_then(|to| self.save_to(&to));
        saved.map_err(|e| ProfileError::Write(path.to_owned(), e))
    }

    /// The same.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_to(&self, to: &Destination) -> io::Result<()> {
        to.write(|out| {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }
}
