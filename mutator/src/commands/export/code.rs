//! The instructions of counted functions, decoded from the files of their modules.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ipath_base::error::io_text;
use ipath_base::files::FileBytes;
use ipath_profile::export::{Code, Instruction, Listing};
use ipath_profile::{Block, Inside, Module, Profile};
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::lines::FileLines;
use patcher::Svma;
use patcher::function::demangle_without_arguments;
use patcher::isa::{Insn, Texts, decode};

/// The most instructions of all functions together. A profile may name the same code many times.
const MOST_INSTRUCTIONS: usize = 1 << 18;

/// The instructions of the profile's counted functions. A module whose file is not on this machine,
/// or has another build id, has none.
pub(super) fn code_of(profile: &Profile) -> Code {
    let mut files = Files::default();
    let mut modules: HashMap<usize, Result<File, String>> = HashMap::new();
    let mut room = MOST_INSTRUCTIONS;
    let mut listings = Vec::with_capacity(profile.inside.len());
    for inside in &profile.inside {
        let module = profile.functions[inside.function].module;
        let open = || File::open(&profile.modules[module]);
        let listing = match modules.entry(module).or_insert_with(open) {
            Ok(file) => Listing {
                blocks: file.blocks(inside, &mut files, &mut room),
                modified: Some(file.modified),
            },
            Err(why) => Listing {
                blocks: Err(why.clone()),
                modified: None,
            },
        };
        listings.push(listing);
    }
    Code {
        files: files.paths,
        listings,
    }
}

/// Source files without duplicates.
#[derive(Default)]
struct Files {
    paths: Vec<String>,
    /// The index in `paths` of each path.
    places: HashMap<String, usize>,
}

impl Files {
    fn place(&mut self, path: String) -> usize {
        if let Some(&known) = self.places.get(&path) {
            return known;
        }
        self.paths.push(path.clone());
        self.places.insert(path, self.paths.len() - 1);
        self.paths.len() - 1
    }
}

/// The file of a module.
struct File {
    image: Arc<OpenImage>,
    lines: Option<FileLines>,
    modified: SystemTime,
}

impl File {
    /// Opens the file of a module.
    ///
    /// # Errors
    /// The file cannot be read, or it may not be the file that was measured. Returns the reason.
    fn open(module: &Module) -> Result<Self, String> {
        let name = &module.path;
        let of_file = |why: &dyn std::fmt::Display| format!("{name}: {why}");
        let Some(build_id) = &module.build_id else {
            return Err(of_file(&"it has no build id, so it cannot be recognized"));
        };
        let path = Path::new(name);
        if !path.is_absolute() {
            return Err(of_file(&"it is not a file"));
        }
        let bytes = FileBytes::open(path).map_err(|error| of_file(&io_text(&error)))?;
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|error| of_file(&io_text(&error)))?;
        let image = images::open(&bytes, path).map_err(|error| of_file(&error))?;
        if image.image().build_id().map(hex).as_ref() != Some(build_id) {
            return Err(of_file(&"it has another build id now"));
        }
        let lines = image.lines(path);
        Ok(Self {
            image,
            lines,
            modified,
        })
    }

    /// The instructions of each block. `room` is the number of instructions that may still be
    /// decoded.
    ///
    /// # Errors
    /// A block is not in the file, or there are too many instructions. Returns the reason.
    fn blocks(
        &self,
        inside: &Inside,
        files: &mut Files,
        room: &mut usize,
    ) -> Result<Vec<Vec<Instruction>>, String> {
        let mut texts = Texts::default();
        let mut instructions_of = |block: &Block| {
            let bytes = self.image.image().bytes(Svma(block.address), block.size);
            let bytes = bytes.ok_or("a block is not in the file of its module")?;
            let mut instructions = Vec::new();
            for insn in decode(bytes, Svma(block.address)) {
                *room = room.checked_sub(1).ok_or("there are too many")?;
                instructions.push(Instruction {
                    address: insn.at(),
                    text: texts.of(&insn),
                    callee: self.callee(&insn).unwrap_or_default(),
                    is_call: insn.is_call(),
                    source: self.source(Svma(insn.at()), files),
                });
            }
            Ok::<_, String>(instructions)
        };
        inside.blocks.iter().map(&mut instructions_of).collect()
    }

    /// The source line of the instruction at `at`. `None` if it is not known.
    fn source(&self, at: Svma, files: &mut Files) -> Option<(usize, u32)> {
        let found = self.lines.as_ref()?.with(|lines| lines.lookup(at));
        let place = found.into_iter().next()?;
        Some((files.place(place.file?), place.line?))
    }

    /// The name of the function that an instruction calls. `None` if it calls none, or the name is
    /// not known.
    fn callee(&self, insn: &Insn) -> Option<String> {
        let at = insn.is_direct_call().then(|| Svma(insn.target()))?;
        let image = self.image.image();
        let function = || image.functions().containing(at);
        let linkage = image
            .plt_name(at)
            .or_else(|| function().filter(|f| f.start == at)?.linkage)?;
        Some(demangle_without_arguments(linkage))
    }
}
