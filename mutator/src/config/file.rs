//! Where the file of defaults is, and whether what it says is the user's own word.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::geteuid;

use ipath_base::error::{Failure, io_text};
use ipath_base::files::open_regular;
use ipath_base::hint::{Hint, Word, hint};

const OPERATION: &str = "read";
/// Names the file, or where it is empty, says that there is none.
const NAMED: &str = "IPATH_CONFIG";
/// Larger files are no lists of defaults.
const MOST: u64 = 1 << 20;

/// Where the file is or would be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its path.
    pub path: PathBuf,
    /// True if the user names it, so that it has to be there.
    is_named: bool,
}

/// Where the environment has it: the XDG Base Directory Specification, with a variable of our own before it.
pub(super) fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<Place> {
    if let Some(path) = variable(NAMED) {
        let is_named = true;
        return (!path.is_empty()).then(|| Place {
            path: path.into(),
            is_named,
        });
    }
    // Relative paths are to be ignored, says the specification of its own variables.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(Place {
        path: folder.join("ipath/config.toml"),
        is_named: false,
    })
}

impl Place {
    /// The text of the file; `None` where there is none and none has to be.
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
        if meta.len() > MOST {
            return Err(failure(format!("larger than {MOST} bytes")));
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(failed)?;
        Ok(Some(text))
    }

    /// False where its folder is not for this user to look into, as another user's `$HOME` that a service manager has passed on.
    fn may_be_known(&self) -> bool {
        let looked = self.path.symlink_metadata();
        !looked.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Why a file of this owner and mode is not the word of a user, and what to do.
fn distrust(owner: u32, mode: u32, user: u32) -> Option<(String, Hint)> {
    if owner != user && owner != 0 {
        let cause = format!("belongs to user {owner}, who is neither you nor root");
        return Some((cause, hint!("{}= has ipath read no file", Word(NAMED))));
    }
    (mode & 0o022 != 0).then(|| {
        let cause = "others than its owner may write to it";
        (cause.to_owned(), "chmod go-w takes that away".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<Place> {
        place(|name| {
            let set = variables.iter().find(|(n, _)| *n == name);
            set.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_environment_says_where_it_is() {
        let at = |path: &str, is_named| {
            let path = path.into();
            Some(Place { path, is_named })
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
