//! The location of the file of defaults, and checks that the user controls its contents.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::geteuid;

use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_base::files::open_regular;
use ipath_base::hint::{Hint, Word, hint};

const OPERATION: &str = "read";
/// The variable that names the file. If it is empty, no file is read.
const NAMED: &str = "IPATH_CONFIG";
/// Larger files are rejected, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The location of the file, which may not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigFile {
    /// The path of the file.
    pub path: PathBuf,
    /// True if the user named the file. It must exist if so.
    is_named: bool,
}

/// Determines the location from the environment: by `IPATH_CONFIG`, else by the XDG Base Directory
/// Specification. `None` if `IPATH_CONFIG` is empty, or the user has no home directory.
pub(super) fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<ConfigFile> {
    if let Some(path) = variable(NAMED) {
        let is_named = true;
        return (!path.is_empty()).then(|| ConfigFile {
            path: path.into(),
            is_named,
        });
    }
    // The specification requires that relative paths in its variables be ignored.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(ConfigFile {
        path: folder.join("ipath/config.toml"),
        is_named: false,
    })
}

impl ConfigFile {
    /// Reads the file. `None` if it does not exist and need not.
    ///
    /// # Errors
    /// It cannot be read, is too large, or could be changed by other users.
    pub(super) fn read(&self) -> Result<Option<String>, Failure> {
        let failure = |cause: String| Failure::new(OPERATION, self.path.display(), cause);
        let failed = |e: io::Error| failure(io_text(&e));
        let file = match open_regular(&self.path) {
            Err(e) if !self.is_named && (is_absence(&e) || !self.may_be_known()) => {
                return Ok(None);
            }
            opened => opened.map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        if let Some((cause, hint)) = distrust(meta.uid(), meta.mode(), geteuid().as_raw()) {
            return Err(failure(cause).hint(hint));
        }
        if meta.len() > MAX_BYTES {
            return Err(failure(format!("larger than {MAX_BYTES} bytes")));
        }
        let mut text = String::new();
        file.take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(failed)?;
        Ok(Some(text))
    }

    /// False if this user may not access the folder, for example another user's `$HOME` passed on
    /// by a service manager.
    fn may_be_known(&self) -> bool {
        let looked = self.path.symlink_metadata();
        !looked.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The reason not to trust a file with this owner and mode, and the remedy. `None` if the file is
/// trusted.
fn distrust(owner: u32, mode: u32, user: u32) -> Option<(String, Hint)> {
    if owner != user && owner != 0 {
        let cause = format!("belongs to user {owner}, who is neither you nor root");
        return Some((cause, hint!("with {}= ipath reads no file", Word(NAMED))));
    }
    (mode & 0o022 != 0).then(|| {
        let cause = "users other than its owner may write to it";
        (
            cause.to_owned(),
            "chmod go-w removes that permission".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<ConfigFile> {
        place(|name| {
            let set = variables.iter().find(|(n, _)| *n == name);
            set.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_environment_says_where_it_is() {
        let at = |path: &str, is_named| {
            let path = path.into();
            Some(ConfigFile { path, is_named })
        };
        let home = ("HOME", "/h");
        let by_default = at("/h/.config/ipath/config.toml", false);
        assert_eq!(found(&[home]), by_default);
        for ignored in ["", "relative"] {
            assert_eq!(found(&[home, ("XDG_CONFIG_HOME", ignored)]), by_default);
        }
        let xdg = ("XDG_CONFIG_HOME", "/x");
        assert_eq!(found(&[home, xdg]), at("/x/ipath/config.toml", false));
        assert_eq!(found(&[home, xdg, (NAMED, "f")]), at("f", true));
        assert_eq!(found(&[home, xdg, (NAMED, "")]), None);
        assert_eq!(found(&[("HOME", "relative")]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn only_the_user_and_root_are_trusted() {
        for (owner, mode, is_trusted) in [
            (7, 0o100_644, true),
            (7, 0o100_600, true),
            (0, 0o100_644, true),
            (8, 0o100_600, false),
            (7, 0o100_664, false),
            (7, 0o100_646, false),
            (0, 0o100_666, false),
        ] {
            let distrusted = distrust(owner, mode, 7);
            assert_eq!(
                distrusted.is_none(),
                is_trusted,
                "{owner} {mode:o}: {distrusted:?}"
            );
        }
        assert!(distrust(7, 0o100_600, 0).is_some());
    }
}
