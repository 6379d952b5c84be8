//! Profiles as files.

use super::{Inconsistent, Profile, SCHEMA};
use ipath_base::destination::Destination;
use ipath_base::error::io_text;
use ipath_base::files::FileBytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A profile could not be read or written.
#[derive(Debug)]
pub enum ProfileError {
    /// The file could not be read.
    Read(PathBuf, io::Error),
    /// The destination could not be written to. A file keeps its previous content.
    Write(PathBuf, io::Error),
    /// The file is not a profile, with the reason.
    NotAProfile(PathBuf, String),
    /// The file is a profile in another version of the format, with its schema.
    OtherSchema(PathBuf, String),
    /// The file is a profile with contradictory parts.
    Inconsistent(PathBuf, Inconsistent),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, cause) => write!(f, "read {}: {}", path.display(), io_text(cause)),
            Self::Write(path, cause) => write!(f, "write {}: {}", path.display(), io_text(cause)),
            Self::NotAProfile(path, cause) => {
                write!(f, "read {}: not a profile: {cause}", path.display())
            }
            Self::OtherSchema(path, schema) => write!(
                f,
                "read {}: it was written by another version of ipath: its schema is {schema}, and \
                this version reads {SCHEMA}",
                path.display()
            ),
            Self::Inconsistent(path, cause) => write!(f, "read {}: {cause}", path.display()),
        }
    }
}

impl std::error::Error for ProfileError {}

impl ProfileError {
    /// Advice for the user on the error. `None` if there is none.
    pub fn hint(&self) -> Option<&'static str> {
        let is_none = match self {
            Self::NotAProfile(..) => true,
            Self::Read(_, cause) => cause.kind() == io::ErrorKind::IsADirectory,
            Self::Write(..) | Self::OtherSchema(..) | Self::Inconsistent(..) => false,
        };
        is_none.then_some(
            "profiles are written by `ipath run -o FILE`, `attach -o`, `snapshot -o` and `merge \
            -o`",
        )
    }
}

impl Profile {
    /// Reads the profile in the file `path`. Checks its structure but not its sums (see
    /// [`Profile::check`]).
    ///
    /// # Errors
    /// The file cannot be read, is not a profile, has another version of the format, or is
    /// inconsistent.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let bytes = FileBytes::open(path).map_err(|e| ProfileError::Read(path.to_owned(), e))?;
        Self::parse(path, bytes.bytes())
    }

    /// Reads a profile from `bytes`, the content of the file `path`. Checks its structure but not
    /// its sums.
    ///
    /// # Errors
    /// The file is not a profile, has another version of the format, or is inconsistent.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ProfileError> {
        let not = |cause: String| ProfileError::NotAProfile(path.to_owned(), cause);
        // Check the schema first: another version may have other fields.
        let schema = schema(bytes).map_err(not)?;
        if schema != SCHEMA {
            let schema = super::printable(&schema).into_owned();
            return Err(if schema.starts_with("ipath-profile/") {
                ProfileError::OtherSchema(path.to_owned(), schema)
            } else {
                not(format!("its schema is {schema}"))
            });
        }
        let profile: Self = serde_json::from_slice(bytes).map_err(|e| not(json(&e)))?;
        profile
            .check_structure()
            .map_err(|e| ProfileError::Inconsistent(path.to_owned(), e))?;
        Ok(profile)
    }

    /// Writes the profile to `path`. A file is replaced as a whole or not at all.
    ///
    /// # Errors
    /// The destination cannot be written to.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let saved = Destination::of(path).and_then(|to| self.save_to(&to));
        saved.map_err(|e| ProfileError::Write(path.to_owned(), e))
    }

    /// Writes the profile to a destination.
    ///
    /// # Errors
    /// The destination cannot be written to.
    pub fn save_to(&self, to: &Destination) -> io::Result<()> {
        to.write(|out| self.put(out))
    }

    /// Writes the profile to a destination, for callers that cannot wait for a reader.
    ///
    /// # Errors
    /// The destination cannot be written to, or its reader does not read.
    pub fn save_soon(&self, to: &Destination) -> io::Result<()> {
        to.write_soon(|out| self.put(out))
    }

    fn put(&self, out: &mut dyn io::Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// The schema stated in the file. The error describes the content of a file that states none.
fn schema(bytes: &[u8]) -> Result<String, String> {
    /// The schema. Its value is read only once it is known to be there.
    #[derive(Deserialize)]
    struct Any {
        schema: Option<IgnoredAny>,
    }
    // Files written by ipath begin with this, so most need not be parsed twice.
    const BEGIN: &[u8] = b"{\"schema\":\"";
    if let Some(rest) = bytes.strip_prefix(BEGIN)
        && let Some(end) = rest.iter().take(100).position(|&b| b == b'"' || b == b'\\')
        && rest[end] == b'"'
        && let Ok(schema) = std::str::from_utf8(&rest[..end])
    {
        return Ok(schema.to_owned());
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".to_owned());
    }
    if bytes.starts_with(b"\x7fELF") {
        return Err("it is a program or a library".to_owned());
    }
    if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) {
        return Err("it is binary, and profiles are JSON".to_owned());
    }
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err("it is other JSON: a list".to_owned());
    }
    let any: Any = serde_json::from_slice(bytes).map_err(|e| json(&e))?;
    let Some(IgnoredAny) = any.schema else {
        return Err("it is JSON without a schema".to_owned());
    };
    #[derive(Deserialize)]
    struct Stated {
        schema: String,
    }
    let stated: Stated = serde_json::from_slice(bytes).map_err(|e| json(&e))?;
    Ok(stated.schema)
}

/// Says in plain terms why JSON could not be parsed.
fn json(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!("it ends too early, at line {}", error.line()),
        Category::Syntax if error.to_string().starts_with("trailing") && error.line() > 1 => {
            "there is more data after the first profile (--format jsonl writes one per line)"
                .to_owned()
        }
        Category::Syntax if (error.line(), error.column()) <= (1, 1) => {
            "it is text, and profiles are JSON".to_owned()
        }
        Category::Syntax => format!("it is not JSON: {error}"),
        Category::Data => format!("it is other JSON: {error}"),
        Category::Io => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    #[test]
    fn what_is_no_profile_is_named() {
        let said = |bytes: &[u8]| {
            let error = Profile::parse(Path::new("f"), bytes)
                .unwrap_err()
                .to_string();
            error.strip_prefix("read f: ").unwrap().to_owned()
        };
        let profile = serde_json::to_vec(&sample()).unwrap();
        let lines = [&profile[..], b"\n", &profile[..]].concat();
        let newer = String::from_utf8(profile.clone()).unwrap();
        let newer = newer.replace("ipath-profile/1", "ipath-profile/2");
        let cases: [(&[u8], &str); 11] = [
            (b"", "not a profile: it is empty"),
            (b" \n", "not a profile: it is empty"),
            (
                b"\x7fELF\x02\x01",
                "not a profile: it is a program or a library",
            ),
            (b"\x1f\x8b\x08\0", "not a profile: it is binary"),
            (b"hello\n", "not a profile: it is text"),
            (b"[1, 2]", "not a profile: it is other JSON"),
            (b"{\"a\": 1}", "not a profile: it is JSON without a schema"),
            (b"{\"schema\": 3}", "not a profile: it is other JSON"),
            (b"{\"schema\": \"x\"}", "not a profile: its schema is x"),
            (
                &profile[..profile.len() / 2],
                "not a profile: it ends too early",
            ),
            (
                newer.as_bytes(),
                "it was written by another version of ipath",
            ),
        ];
        for (bytes, cause) in cases {
            let said = said(bytes);
            assert!(said.starts_with(cause), "{said}");
        }
        let said = said(&lines);
        assert!(said.contains("--format jsonl"), "{said}");
        Profile::parse(
            Path::new("f"),
            &serde_json::to_vec_pretty(&sample()).unwrap(),
        )
        .unwrap();
    }
}
