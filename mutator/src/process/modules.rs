//! The ELF files a process has loaded.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use patcher::image::Image;
use patcher::{Avma, Bias, Svma};

use super::{Mapping, Process};

/// What the kernel calls its own code in every process.
pub const VDSO: &str = "[vdso]";

/// A loaded file: where it is mapped and where its text can be read.
#[derive(Clone, Debug)]
pub struct Module {
    /// Path as the process sees it; `[vdso]` for the kernel's own.
    pub path: String,
    /// From its first to its last mapping.
    pub range: Range<Avma>,
    /// Its executable mappings.
    pub code: Vec<Mapping>,
    /// Paths through which this process can open the very file that is mapped.
    sources: Vec<PathBuf>,
}

/// The bytes of a file, mapped.
#[derive(Clone)]
pub struct FileBytes(Arc<Mmap>);

impl FileBytes {
    /// Maps a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // SAFETY: the map is private and read only. A file that is overwritten in place while it
        // is analysed would change under us, as it would under the program that runs from it.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(Arc::new(map)))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Module {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The file's bytes.
    pub fn open(&self) -> io::Result<FileBytes> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no file");
        for source in &self.sources {
            match FileBytes::open(source) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What the loader added to the file's addresses; `None` where the file's segments do not
    /// match the mappings.
    pub fn bias(&self, image: &Image<'_>) -> Option<Bias> {
        self.code
            .iter()
            .find_map(|mapping| bias_of(image, mapping.range.start, mapping.offset.0))
    }

    /// The whole code as one range.
    pub fn code_range(&self) -> Range<Avma> {
        let start = self
            .code
            .iter()
            .map(|m| m.range.start)
            .min()
            .unwrap_or_default();
        let end = self
            .code
            .iter()
            .map(|m| m.range.end)
            .max()
            .unwrap_or_default();
        start..end
    }
}

/// The bias under which the executable segment of `image` that holds file offset `offset` lies at
/// `start`.
pub fn bias_of(image: &Image<'_>, start: Avma, offset: u64) -> Option<Bias> {
    let segment = image.segments().iter().find(|s| {
        let first = s.offset.0 & !0xfff;
        s.execute && first <= offset && offset < s.offset.0 + s.file_size
    })?;
    // The kernel maps whole pages: offset and address agree modulo the page.
    let svma = segment
        .range
        .start
        .0
        .wrapping_sub(segment.offset.0)
        .wrapping_add(offset);
    Some(Bias::between(Svma(svma), start))
}

/// The modules of a process, in the order of their addresses. A file mapped twice (dlmopen) is two
/// modules.
pub fn modules(process: &Process, maps: &[Mapping]) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let mut current: Option<(&(String, u64), usize)> = None;
    for mapping in maps {
        if mapping.name.is_empty() {
            // .bss and gaps lie between a file's mappings.
            continue;
        }
        let is_vdso = mapping.name == VDSO;
        if mapping.path().is_none() && !is_vdso {
            current = None;
            continue;
        }
        let starts_anew =
            mapping.offset.0 == 0 && modules.last().is_some_and(|m| !m.code.is_empty());
        match current {
            Some((file, at)) if *file == mapping.file && !starts_anew && !is_vdso => {
                if let Some(module) = modules.get_mut(at) {
                    module.range.end = mapping.range.end;
                    if mapping.execute {
                        module.code.push(mapping.clone());
                    }
                }
            }
            _ => {
                current = Some((&mapping.file, modules.len()));
                modules.push(Module {
                    path: mapping
                        .name
                        .strip_suffix(" (deleted)")
                        .unwrap_or(&mapping.name)
                        .to_owned(),
                    range: mapping.range.clone(),
                    code: if mapping.execute {
                        vec![mapping.clone()]
                    } else {
                        Vec::new()
                    },
                    sources: sources(process, mapping),
                });
            }
        }
    }
    modules.retain(|m| !m.code.is_empty());
    modules
}

/// Ways to the mapped file: by the mapping itself, which holds for deleted and replaced files and
/// other mount namespaces but needs privilege; by the path in the process's own root.
fn sources(process: &Process, mapping: &Mapping) -> Vec<PathBuf> {
    let Range { start, end } = &mapping.range;
    let pid = process.entry();
    let mut sources = vec![PathBuf::from(format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        start.0, end.0
    ))];
    if let Some(path) = mapping.path().filter(|_| !mapping.is_deleted()) {
        sources.push(PathBuf::from(format!("/proc/{pid}/root{}", path.display())));
        sources.push(path);
    }
    sources
}
