//! A result that is a folder of files: it is there as a whole or not at all.

use super::{descriptor, make_beside};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Where a folder is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// What `path` names: nothing yet, or an empty folder. What others have written is not replaced.
    ///
    /// # Errors
    /// A descriptor, or what is there already.
    pub fn of(path: &Path) -> io::Result<Self> {
        if descriptor(path).is_some() {
            return Err(io::Error::other(
                "a folder of files cannot be written there",
            ));
        }
        path.file_name().ok_or(io::ErrorKind::AlreadyExists)?;
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self(path.to_owned())),
            Err(e) => Err(e),
            Ok(metadata) if !metadata.is_dir() => Err(io::Error::other("is not a folder")),
            Ok(_) => match fs::read_dir(path)?.next() {
                None => Ok(Self(path.to_owned())),
                Some(_) => Err(io::Error::other("is a folder that is not empty")),
            },
        }
    }

    /// A new folder beside it, which takes its place at the end.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(self) -> io::Result<Unfinished> {
        let ((), temporary) = make_beside(&self.0, |path| fs::create_dir(path))?;
        Ok(Unfinished {
            temporary,
            path: self.0,
        })
    }
}

/// A folder that is being written, and that is removed unless it is finished.
#[derive(Debug)]
pub struct Unfinished {
    temporary: PathBuf,
    path: PathBuf,
}

impl Unfinished {
    /// A new file in it, whose name may begin with a folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn file(&mut self, name: &str) -> io::Result<BufWriter<File>> {
        let path = self.temporary.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(BufWriter::new(File::create_new(path)?))
    }

    /// Puts it where it is to be.
    ///
    /// # Errors
    /// Something has come there meanwhile.
    pub fn finish(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It is not there any more where it has been finished.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
