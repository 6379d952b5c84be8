//! Files in the target, as the document describes them.

use std::ops::Range;

use patcher::{Avma, Bias};
use serde::{Deserialize, Serialize};

use super::addresses;
use ipath_base::files::{Stamp, file_name};
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::OpenImage;
use ipath_target::process::identity::FileId;

/// A file in the target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleDoc {
    /// The module's path as the target sees it.
    pub path: String,
    /// The file's build id, hexadecimal. `None` if it has none.
    pub build_id: Option<String>,
    /// Run-time addresses minus link-time addresses of the file.
    #[serde(with = "addresses::bias")]
    pub bias: Bias,
    /// The range of the module's code in the target.
    #[serde(with = "addresses::range")]
    pub code: Range<Avma>,
    /// The device and inode of the mapping.
    #[serde(default, skip_serializing_if = "is_default")]
    pub file: FileId,
    /// Distinguishes the file from another one with the same device and inode.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stamp: Stamp,
    /// True if something else is now mapped at the module's place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_gone: bool,
}

impl ModuleDoc {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        file_name(&self.path)
    }

    /// True if `image` is this version of the file: by device and inode, and by build id or else by
    /// the modification time. `file` is the device and inode of the image's mapping.
    pub fn is_of(&self, file: &FileId, image: &OpenImage) -> bool {
        let is_same = match (&self.build_id, image.image().build_id()) {
            (Some(known), Some(build_id)) => *known == hex(build_id),
            (None, None) => self.stamp == image.stamp(),
            _ => false,
        };
        is_same && self.file == *file
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
