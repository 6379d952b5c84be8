//! Files in the target, as the document has them.

use std::ops::Range;

use patcher::{Avma, Bias};
use serde::{Deserialize, Serialize};

use super::addresses;
use ipath_base::files::{Stamp, file_name};
use ipath_target::process::identity::FileId;

/// A file in the target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleDoc {
    /// Path as the target sees it.
    pub path: String,
    /// Build id, hexadecimal.
    pub build_id: Option<String>,
    /// Address in the target minus address in the file.
    #[serde(with = "addresses::bias")]
    pub bias: Bias,
    /// Its code in the target.
    #[serde(with = "addresses::range")]
    pub code: Range<Avma>,
    /// The file as the kernel has it mapped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub file: FileId,
    /// What tells it from another one of that device and inode.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stamp: Stamp,
    /// True if something else has come to its place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_gone: bool,
}

impl ModuleDoc {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        file_name(&self.path)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
