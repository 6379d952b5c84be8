//! Unwind tables for code whose file has none that the runtime can search. Static programs are linked
//! without `.eh_frame_hdr`; other code has no unwind entries that are loaded with it, but may have some
//! in `.debug_frame`.

use std::sync::atomic::Ordering::{Acquire, Release};

use abi::rule::Rule;
use abi::segment::{AREA_TABLES, TABLE_OF_ENTRIES, TABLE_OF_RULES};
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use goblin::container::Ctx;
use goblin::elf::program_header::{PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use goblin::elf::{Elf, ProgramHeader};
use patcher::flow::{Recipe, frames};
use patcher::{Avma, Bias, Svma};

use super::{Locked, SessionError};
use crate::images::{self, OpenImage};
use crate::lines;
use crate::process::modules::Module;

const DEBUG_FRAME: &str = ".debug_frame";

impl Locked<'_> {
    /// Publishes tables for those of these modules that need them and have none yet.
    pub(super) fn publish_tables(&mut self, modules: &[Module]) -> Result<(), SessionError> {
        for module in modules {
            let key = (module.code_range().start.0, module.path.clone());
            if self.document.tables.contains(&key) {
                continue;
            }
            let lacks = Lacks::of(module);
            if !lacks.index && !lacks.entries {
                continue;
            }
            let Ok(opened) = images::of_module(module) else {
                continue;
            };
            let Some(bias) = module.bias(&opened.image) else {
                continue;
            };
            if lacks.index {
                self.publish(&index(module, opened, bias))?;
            }
            if lacks.entries {
                self.publish(&rules(module, opened, bias))?;
            }
            self.document.tables.push(key);
        }
        Ok(())
    }

    /// Appends a table; nothing where there is no room: paths end there then, and say so.
    fn publish(&self, table: &Table) -> Result<(), SessionError> {
        if table.rows.is_empty() {
            return Ok(());
        }
        let used = &self.segment.header().tables_used;
        let at = used.load(Acquire);
        let bytes: Vec<u8> = table.words().flat_map(u64::to_le_bytes).collect();
        if self.segment.write_bytes(AREA_TABLES, at, &bytes)? {
            used.store(at + bytes.len() as u64, Release);
        }
        Ok(())
    }
}

/// What a module has not.
#[derive(Default)]
struct Lacks {
    /// A sorted table of its unwind entries.
    index: bool,
    /// Loaded unwind entries for most of its code, or for some that is described in `.debug_frame`.
    entries: bool,
}

impl Lacks {
    /// By the headers alone. Nothing where they cannot be read.
    fn of(module: &Module) -> Self {
        /// Bytes of the sorted table's head, and for each function.
        const HEAD: u64 = 12;
        const ENTRY: u64 = 8;
        /// Bytes of code for a function that are more than usual, in a small module and a large one: a
        /// look at a small one is cheap.
        const MANY: (u64, u64) = (200, 1024);
        const SMALL: u64 = 64 << 10;
        let parse = |bytes: &[u8]| {
            let header = Elf::parse_header(bytes).ok()?;
            let context = Ctx::new(header.container().ok()?, header.endianness().ok()?);
            let (at, count) = (header.e_phoff as usize, usize::from(header.e_phnum));
            ProgramHeader::parse(bytes, at, count, context).ok()
        };
        let Ok(bytes) = module.open() else {
            return Self::default();
        };
        let Some(headers) = parse(bytes.bytes()) else {
            return Self::default();
        };
        let size = |kind, flags| -> u64 {
            let of_kind = headers
                .iter()
                .filter(|h| h.p_type == kind && h.p_flags & flags == flags);
            of_kind.map(|h| h.p_memsz).fold(0, u64::saturating_add)
        };
        let (index, code) = (size(PT_GNU_EH_FRAME, 0), size(PT_LOAD, PF_X));
        let many = if code < SMALL { MANY.0 } else { MANY.1 };
        Self {
            index: index == 0,
            entries: (index.saturating_sub(HEAD) / ENTRY).saturating_mul(many) < code
                || lines::section(bytes.bytes(), DEBUG_FRAME).is_some(),
        }
    }
}

/// What the runtime is given.
struct Table {
    kind: u64,
    code: (Avma, Avma),
    frames: (Avma, Avma),
    rows: Vec<(Avma, u64)>,
}

impl Table {
    fn new(kind: u64, module: &Module, mut rows: Vec<(Avma, u64)>) -> Self {
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.0);
        let code = module.code_range();
        Self {
            kind,
            code: (code.start, code.end),
            frames: (Avma(0), Avma(0)),
            rows,
        }
    }

    /// Head and rows as the segment has them.
    fn words(&self) -> impl Iterator<Item = u64> {
        let head = [
            self.kind,
            self.code.0.0,
            self.code.1.0,
            self.frames.0.0,
            self.frames.1.0,
            self.rows.len() as u64,
        ];
        let rows = self.rows.iter().flat_map(|row| [row.0.0, row.1]);
        head.into_iter().chain(rows)
    }
}

/// Where the unwind entries of the module are.
fn index(module: &Module, opened: &OpenImage, bias: Bias) -> Table {
    let Some((start, data)) = opened.image.section(".eh_frame") else {
        return Table::new(TABLE_OF_ENTRIES, module, Vec::new());
    };
    let bases = BaseAddresses::default().set_eh_frame(start.0);
    let frames = EhFrame::new(data, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut rows = Vec::new();
    // What is malformed ends the list, as it would end the search of an unwinder.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            break;
        };
        let at = bias.to_avma(start.plus(fde.offset() as u64));
        rows.push((bias.to_avma(Svma(fde.initial_address())), at.0));
    }
    let frames = bias.to_avma(start);
    Table {
        frames: (frames, frames.plus(data.len() as u64)),
        ..Table::new(TABLE_OF_ENTRIES, module, rows)
    }
}

/// How the frames of calls in code without loaded unwind entries are left.
fn rules(module: &Module, opened: &OpenImage, bias: Bias) -> Table {
    let (image, context) = (&opened.image, &opened.context);
    let described = lines::section(image.data(), DEBUG_FRAME);
    let found = frames(image, context, described.as_deref()).into_iter();
    let rows = found.map(|(after, recipe)| (bias.to_avma(after), rule(recipe).encode()));
    Table::new(TABLE_OF_RULES, module, rows.collect())
}

fn rule(recipe: Recipe) -> Rule {
    match recipe {
        Recipe::FromStackPointer(frame) => Rule::FromRsp {
            cfa_offset: frame.cfa,
            rbp_words: frame.caller_frame_pointer,
        },
        Recipe::FromFramePointer(frame) => Rule::FromRbp {
            cfa_offset: frame.cfa,
            rbp_words: frame.caller_frame_pointer,
        },
        Recipe::Outermost => Rule::Root,
    }
}
