//! Results that are folders of files. A folder is created with all of its files or not at all.

use super::{descriptor, make_beside};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// The path of a folder to write. The folder does not exist yet, or it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`. It must not exist or must be empty, so that no file is replaced.
    ///
    /// # Errors
    /// `path` names a descriptor, a folder that is not empty, or a file of another kind, or it
    /// cannot be looked up.
    pub fn of(path: &Path) -> io::Result<Self> {
        if descriptor(path).is_some() {
            return Err(io::Error::other(
                "a folder cannot be written to a descriptor",
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

    /// Creates a temporary folder in the parent folder of this one. [`Unfinished::finish`] renames
    /// it.
    ///
    /// # Errors
    /// The temporary folder cannot be created.
    pub fn begin(self) -> io::Result<Unfinished> {
        let ((), temporary) = make_beside(&self.0, |path| fs::create_dir(path))?;
        Ok(Unfinished {
            temporary,
            path: self.0,
        })
    }
}

/// A folder that is being written. Dropping it without [`Unfinished::finish`] removes the folder
/// with its files.
#[derive(Debug)]
pub struct Unfinished {
    /// The path of the folder until it is finished.
    temporary: PathBuf,
    /// Its final path.
    path: PathBuf,
}

impl Unfinished {
    /// Creates a file in the folder. `name` may be a path. Missing folders on it are created.
    ///
    /// # Errors
    /// The file exists already, or the file or a folder cannot be created.
    pub fn file(&mut self, name: &str) -> io::Result<BufWriter<File>> {
        let path = self.temporary.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(BufWriter::new(File::create_new(path)?))
    }

    /// Renames the folder to its final name.
    ///
    /// # Errors
    /// The folder cannot be renamed, for example because its final path is now a file or a folder
    /// that is not empty. The temporary folder is then removed.
    pub fn finish(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A finished folder is no longer at this path.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
