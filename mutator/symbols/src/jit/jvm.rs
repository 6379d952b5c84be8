//! Unwind rules for the code that the HotSpot Java virtual machine generates. libjvm.so has tables
//! of its own data structures for debuggers (`gHotSpotVMStructs`, vmStructs.cpp). The code cache is
//! read from outside by these tables.
//!
//! Frames of the interpreter always have a frame pointer. Those of compiled methods have one if the
//! virtual machine runs with `-XX:+PreserveFramePointer`. Stubs of the runtime have frames of a
//! fixed size, which is in their headers. The frames of adapters between the two kinds of code, and
//! of other generated code, are unknown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use abi::cause::Cause;
use patcher::Avma;
use patcher::elf::LinkTables;
use unwind::Rule;

use crate::images;
use ipath_target::process::Memory;
use ipath_target::process::modules::Module;

/// The file of the virtual machine.
const FILE: &str = "libjvm.so";

/// The rule after the prologue of a function with a frame pointer.
const FRAME_POINTER: Rule = Rule::FRAME_POINTER;

/// No rule, and no guess: return addresses of the interpreter follow no call.
const UNKNOWN: Rule = Rule::Stop(Cause::NoRule);

/// A virtual machine with an interpreter.
pub struct HotSpot {
    /// The heaps of its code, by address.
    heaps: Vec<Heap>,
    /// The code of the interpreter.
    interpreter: Range<Avma>,
    /// The return address of Java code that native code called.
    call_stub_return: Avma,
    /// True if the virtual machine runs with `-XX:+PreserveFramePointer`.
    preserves_frame_pointer: bool,
    fields: Blob,
}

/// A heap of code.
struct Heap {
    range: Range<Avma>,
    /// The address of a table with one byte per segment: the number of segments to go back towards
    /// the start of its block, 0 at the start, 255 if the segment is free.
    segments: Avma,
    /// The binary logarithm of the size of a segment in bytes.
    log2_segment: u32,
    /// True if it contains only compiled methods.
    is_of_methods: bool,
}

/// Offsets in bytes at the start of a block of code.
struct Blob {
    /// The size of the block's header. The other offsets are relative to its end.
    header: u64,
    /// The pointer to the name of the kind of code.
    name: u64,
    /// The frame size, in words.
    frame_size: u64,
}

/// The rules of all return addresses in the code cache. Each holds from its address to the next.
pub struct Conventions {
    /// The code cache.
    pub range: Range<Avma>,
    /// The first address of each rule, ascending.
    pub rows: Vec<(Avma, Rule)>,
}

/// True if the module's file name is that of the virtual machine.
pub fn is_one(module: &Module) -> bool {
    module.file_name() == FILE
}

impl HotSpot {
    /// Reads the virtual machine of a process with this module and memory. `None` if its tables are
    /// unusable, for example before it is initialized.
    pub fn read(module: &Module, memory: &Memory) -> Option<Self> {
        /// The most unused bytes at the end of a block of code.
        const MOST_SPARE: i32 = 512;
        let tables = Tables::read(module, memory)?;
        let code = tables.pointer("AbstractInterpreter", "_code")?;
        let start = tables.word(code, "StubQueue", "_stub_buffer")?;
        let limit = tables.int(code, "StubQueue", "_buffer_limit")?;
        let end = tables.int(code, "StubQueue", "_queue_end")?;
        // A block has more room while its code is generated. Other code gets the rest afterwards.
        let is_whole = end > 0 && (0..MOST_SPARE).contains(&limit.checked_sub(end)?);
        let interpreter = Avma(start)..Avma(start).plus(u64::try_from(limit).ok()?);
        let call_stub_return = tables.pointer("StubRoutines", "_call_stub_return_address")?;
        let fields = Blob {
            header: *tables.sizes.get("HeapBlock")?,
            name: tables.offset("CodeBlob", "_name")?,
            frame_size: tables.offset("CodeBlob", "_frame_size")?,
        };
        let heaps = heaps(&tables, &interpreter)?;
        let preserves_frame_pointer = tables.flag("PreserveFramePointer")?;
        let is_set_up = is_whole && call_stub_return.0 != 0;
        is_set_up.then_some(Self {
            heaps,
            interpreter,
            call_stub_return,
            preserves_frame_pointer,
            fields,
        })
    }

    /// The rules for all return addresses in its code.
    pub fn conventions(&self) -> Conventions {
        let start = self.heaps.first().map_or(Avma(0), |heap| heap.range.start);
        let end = self.heaps.last().map_or(Avma(0), |heap| heap.range.end);
        let mut rows = Vec::new();
        for heap in &self.heaps {
            let rule = if heap.is_of_methods && self.preserves_frame_pointer {
                FRAME_POINTER
            } else {
                UNKNOWN
            };
            rows.extend([(heap.range.start, rule), (heap.range.end, UNKNOWN)]);
        }
        rows.push((self.interpreter.start, FRAME_POINTER));
        rows.push((self.interpreter.end, UNKNOWN));
        // At equal addresses the later rule holds: a heap that begins at the end of another.
        rows.sort_by_key(|row| row.0);
        rows.reverse();
        rows.dedup_by_key(|row| row.0);
        rows.reverse();
        Conventions {
            range: start..end,
            rows,
        }
    }

    /// The return addresses whose rules differ from those around them.
    pub fn rules(&self) -> Vec<(Avma, Rule)> {
        vec![(self.call_stub_return, FRAME_POINTER)]
    }

    /// The rule of a return address that the conventions do not cover. `None` if it is unknown, or
    /// not in a block of code.
    pub fn rule_at(&self, after: Avma, memory: &Memory) -> Option<Rule> {
        if after == self.call_stub_return {
            return Some(FRAME_POINTER);
        }
        let blob = self.blob_of(after, memory)?;
        let memory = Pages::of(memory);
        let name = memory.word(blob.plus(self.fields.name))?;
        let name = memory.text(Avma(name))?;
        if matches!(name.as_str(), "nmethod" | "native nmethod") {
            return self.preserves_frame_pointer.then_some(FRAME_POINTER);
        }
        let words = memory.int(blob.plus(self.fields.frame_size))?;
        // Blobs without a frame have 0 or less.
        (words > 0).then_some(Rule::FromSp {
            cfa_offset: words.checked_mul(8)?,
            fp_words: -2,
        })
    }

    /// The heap that the call before `after` is in. `None` if it is in none.
    fn heap_of(&self, after: Avma) -> Option<&Heap> {
        let call = Avma(after.0.checked_sub(1)?);
        self.heaps.iter().find(|heap| heap.range.contains(&call))
    }

    /// The address after the header of the block of code that the call before `after` is in
    /// (CodeHeap::find_block_for). `None` if it is in no block.
    fn blob_of(&self, after: Avma, memory: &Memory) -> Option<Avma> {
        const FREE: u8 = 0xff;
        /// Each step covers up to 254 segments of about 128 bytes.
        const MOST_STEPS: usize = 1 << 14;
        let heap = self.heap_of(after)?;
        let mut segment = (after.0 - 1 - heap.range.start.0) >> heap.log2_segment;
        for _ in 0..MOST_STEPS {
            let mut back = [0];
            let at = heap.segments.plus(segment);
            memory.read(at, &mut back).ok()?;
            match back[0] {
                0 => {
                    let block = heap.range.start.plus(segment << heap.log2_segment);
                    return Some(block.plus(self.fields.header));
                }
                FREE => return None,
                back => segment = segment.checked_sub(back.into())?,
            }
        }
        None
    }
}

/// The heaps of code, by address.
fn heaps(tables: &Tables<'_>, interpreter: &Range<Avma>) -> Option<Vec<Heap>> {
    /// HotSpot has three at most.
    const MAX_HEAPS: i32 = 16;
    let list = tables.pointer("CodeCache", "_heaps")?;
    let count = tables
        .int(list, "GrowableArrayBase", "_len")?
        .min(MAX_HEAPS);
    let data = tables.word(list, "GrowableArray<int>", "_data")?;
    let heap = |index: i32| {
        let at = Avma(tables.memory.word(Avma(data).plus(8 * index as u64))?);
        let memory = at.plus(tables.offset("CodeHeap", "_memory")?);
        let map = at.plus(tables.offset("CodeHeap", "_segmap")?);
        let bound = |name| tables.word(memory, "VirtualSpace", name).map(Avma);
        let range = bound("_low_boundary")?..bound("_high_boundary")?;
        let log2 = tables.int(at, "CodeHeap", "_log2_segment_size")?;
        Some(Heap {
            segments: Avma(tables.word(map, "VirtualSpace", "_low")?),
            log2_segment: u32::try_from(log2).ok().filter(|&log2| log2 < 32)?,
            // A single heap contains everything.
            is_of_methods: !range.contains(&interpreter.start),
            range,
        })
    };
    let mut heaps = (0..count).map(heap).collect::<Option<Vec<_>>>()?;
    heaps.sort_by_key(|heap| heap.range.start);
    let has_interpreter = heaps.iter().any(|heap| !heap.is_of_methods);
    has_interpreter.then_some(heaps)
}

/// Memory that is read by page, each page once. The data to read are close together.
struct Pages<'m> {
    memory: &'m Memory,
    pages: RefCell<HashMap<u64, [u8; Pages::LEN]>>,
}

impl<'m> Pages<'m> {
    const LEN: usize = abi::PAGE as usize;

    fn of(memory: &'m Memory) -> Self {
        let pages = RefCell::default();
        Self { memory, pages }
    }

    fn byte(&self, at: u64) -> Option<u8> {
        let start = at & !(abi::PAGE - 1);
        let mut pages = self.pages.borrow_mut();
        let page = match pages.entry(start) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(place) => {
                let mut page = [0; Self::LEN];
                self.memory.read(Avma(start), &mut page).ok()?;
                place.insert(page)
            }
        };
        Some(page[(at - start) as usize])
    }

    fn bytes<const N: usize>(&self, at: Avma) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (byte, at) in bytes.iter_mut().zip(at.0..) {
            *byte = self.byte(at)?;
        }
        Some(bytes)
    }

    fn word(&self, at: Avma) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    fn int(&self, at: Avma) -> Option<i32> {
        self.bytes(at).map(i32::from_le_bytes)
    }

    /// A string with a final zero. `None` if it cannot be read, is no UTF-8, or is longer than any
    /// known one.
    fn text(&self, at: Avma) -> Option<String> {
        const LONGEST: u64 = 96;
        let mut name = Vec::new();
        for at in at.0..at.0.checked_add(LONGEST)? {
            match self.byte(at)? {
                0 => return String::from_utf8(name).ok(),
                byte => name.push(byte),
            }
        }
        None
    }
}

/// The virtual machine's tables of its own structures.
struct Tables<'m> {
    memory: Pages<'m>,
    /// By type and field: the offset, or the address of a static field.
    fields: HashMap<(String, String), u64>,
    /// The sizes of types in bytes.
    sizes: HashMap<String, u64>,
}

/// The types to look up.
const TYPES: [&str; 11] = [
    "AbstractInterpreter",
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "JVMFlag",
    "StubQueue",
    "StubRoutines",
    "VirtualSpace",
];

impl<'m> Tables<'m> {
    fn read(module: &Module, memory: &'m Memory) -> Option<Self> {
        let opened = images::of_module(module).ok()?;
        let bias = module.bias(opened.image())?;
        let exported = LinkTables::parse(opened.image().data()).ok()?;
        let mut symbols = HashMap::new();
        for symbol in exported.dynamic_symbols() {
            if let Some(name) = exported.name(&symbol)
                && name.starts_with("gHotSpotVM")
            {
                symbols.insert(name, bias.to_avma(patcher::Svma(symbol.value)));
            }
        }
        let mut tables = Self {
            memory: Pages::of(memory),
            fields: HashMap::new(),
            sizes: HashMap::new(),
        };
        let values: HashMap<&str, u64> = symbols
            .into_iter()
            .filter_map(|(name, at)| Some((name, tables.memory.word(at)?)))
            .collect();
        let value = |name: &str| values.get(name).copied();
        let structs = |what: &str| value(&format!("gHotSpotVMStructEntry{what}"));
        let [kind, field, is_static] = [
            structs("TypeNameOffset")?,
            structs("FieldNameOffset")?,
            structs("IsStaticOffset")?,
        ];
        let (offset, address) = (structs("OffsetOffset")?, structs("AddressOffset")?);
        let first = value("gHotSpotVMStructs")?;
        tables.each(first, structs("ArrayStride")?, kind, |tables, at, name| {
            let field = tables
                .memory
                .text(Avma(tables.memory.word(at.plus(field))?))?;
            let place = match tables.memory.int(at.plus(is_static))? {
                0 => offset,
                _ => address,
            };
            let place = tables.memory.word(at.plus(place))?;
            tables.fields.insert((name, field), place);
            Some(())
        })?;
        let types = |what: &str| value(&format!("gHotSpotVMTypeEntry{what}"));
        let (kind, size) = (types("TypeNameOffset")?, types("SizeOffset")?);
        let first = value("gHotSpotVMTypes")?;
        tables.each(first, types("ArrayStride")?, kind, |tables, at, name| {
            let size = tables.memory.word(at.plus(size))?;
            tables.sizes.insert(name, size);
            Some(())
        })?;
        Some(tables)
    }

    /// Calls `found` with the address and the type of each entry of a table about one of [`TYPES`].
    /// The table ends with an entry without a type. `kind` is the offset of the type's name in an
    /// entry. `None` if an entry cannot be read, `found` returns `None`, or there is no end.
    fn each(
        &mut self,
        first: u64,
        stride: u64,
        kind: u64,
        mut found: impl FnMut(&mut Self, Avma, String) -> Option<()>,
    ) -> Option<()> {
        /// HotSpot has some thousands.
        const MAX_ROWS: u64 = 1 << 16;
        let mut names: HashMap<u64, Option<String>> = HashMap::new();
        for index in 0..MAX_ROWS {
            let at = Avma(first.checked_add(stride.checked_mul(index)?)?);
            let name = self.memory.word(at.plus(kind))?;
            if name == 0 {
                return Some(());
            }
            let wanted = names.entry(name).or_insert_with(|| {
                let name = self.memory.text(Avma(name));
                name.filter(|name| TYPES.contains(&name.as_str()))
            });
            if let Some(name) = wanted.clone() {
                found(self, at, name)?;
            }
        }
        None
    }

    /// The offset of a field, or the address of a static field. `None` if the tables lack it.
    fn offset(&self, kind: &str, field: &str) -> Option<u64> {
        let key = (kind.to_owned(), field.to_owned());
        self.fields.get(&key).copied()
    }

    /// The value of a static field that holds an address.
    fn pointer(&self, kind: &str, field: &str) -> Option<Avma> {
        let at = Avma(self.offset(kind, field)?);
        self.memory.word(at).map(Avma)
    }

    /// An eight-byte field of the object at `of`.
    fn word(&self, of: Avma, kind: &str, field: &str) -> Option<u64> {
        let at = of.0.checked_add(self.offset(kind, field)?)?;
        self.memory.word(Avma(at))
    }

    /// A four-byte field of the object at `of`.
    fn int(&self, of: Avma, kind: &str, field: &str) -> Option<i32> {
        let at = of.0.checked_add(self.offset(kind, field)?)?;
        self.memory.int(Avma(at))
    }

    /// The value of a boolean option of the virtual machine. `None` if there is no such option, or
    /// if it cannot be read.
    fn flag(&self, name: &str) -> Option<bool> {
        /// HotSpot has about 1,500.
        const MAX_FLAGS: u64 = 1 << 14;
        let first = self.pointer("JVMFlag", "flags")?;
        let count = self.pointer("JVMFlag", "numFlags")?.0.min(MAX_FLAGS);
        let size = *self.sizes.get("JVMFlag")?;
        let mut flags = (0..count).map(|index| first.plus(size.saturating_mul(index)));
        let flag = flags.find(|&flag| {
            let at = self.word(flag, "JVMFlag", "_name");
            at.is_some_and(|at| self.memory.text(Avma(at)).as_deref() == Some(name))
        })?;
        let at = self.word(flag, "JVMFlag", "_addr")?;
        self.memory.byte(at).map(|value| value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(preserves_frame_pointer: bool) -> HotSpot {
        let heap = |start, end, is_of_methods| Heap {
            range: Avma(start)..Avma(end),
            segments: Avma(0),
            log2_segment: 7,
            is_of_methods,
        };
        HotSpot {
            heaps: vec![
                heap(0x1000, 0x2000, true),
                heap(0x2000, 0x4000, false),
                heap(0x4000, 0x6000, true),
            ],
            interpreter: Avma(0x2100)..Avma(0x2400),
            call_stub_return: Avma(0x2080),
            preserves_frame_pointer,
            fields: Blob {
                header: 16,
                name: 96,
                frame_size: 28,
            },
        }
    }

    #[test]
    fn conventions_are_of_the_interpreter_and_of_methods_with_frame_pointers() {
        let rows = |preserves| machine(preserves).conventions().rows;
        let of = |at, rule| (Avma(at), rule);
        let expected = |methods| {
            vec![
                of(0x1000, methods),
                of(0x2000, UNKNOWN),
                of(0x2100, FRAME_POINTER),
                of(0x2400, UNKNOWN),
                of(0x4000, methods),
                of(0x6000, UNKNOWN),
            ]
        };
        assert_eq!(rows(true), expected(FRAME_POINTER));
        assert_eq!(rows(false), expected(UNKNOWN));
    }

    #[test]
    fn calls_at_the_end_of_a_heap_are_in_it() {
        let machine = machine(true);
        assert!(machine.heap_of(Avma(0x6000)).is_some());
        assert!(machine.heap_of(Avma(0x1000)).is_none());
        assert!(machine.heap_of(Avma(0)).is_none());
    }
}
