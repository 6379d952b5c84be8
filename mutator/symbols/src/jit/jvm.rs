//! What the HotSpot Java virtual machine says of the code that it generates. libjvm.so has tables of its own data
//! structures for debuggers (`gHotSpotVMStructs`, vmStructs.cpp), by which the code cache is read here from outside.
//!
//! Frames of the interpreter have a frame pointer at all times, those of compiled methods where the virtual machine runs
//! with `-XX:+PreserveFramePointer`. Stubs of the runtime have frames of a fixed size, which stands in their heads.
//! Adapters between the two kinds of code, and what else is generated, have frames that are not told.

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

/// As the beginning of a function with a frame pointer leaves it.
const FRAME_POINTER: Rule = Rule::FRAME_POINTER;

/// Nothing is told, and nothing may be guessed: return addresses of the interpreter follow no call.
const UNKNOWN: Rule = Rule::Stop(Cause::NoRule);

/// A virtual machine whose interpreter is there.
pub struct HotSpot {
    /// The heaps of its code, by address.
    heaps: Vec<Heap>,
    interpreter: Range<Avma>,
    /// Where Java code that native code has called returns to.
    call_stub_return: Avma,
    preserves_frame_pointer: bool,
    fields: Blob,
}

/// A heap of code.
struct Heap {
    range: Range<Avma>,
    /// One byte for each segment: how far back the block begins that it is in.
    segments: Avma,
    log2_segment: u32,
    /// Compiled methods are in it, and nothing else.
    is_of_methods: bool,
}

/// Where the head of a block has what it has.
struct Blob {
    header: u64,
    name: u64,
    frame_size: u64,
}

/// The rules of all return addresses in the code cache: of each from an address to the next.
pub struct Conventions {
    /// The code cache.
    pub range: Range<Avma>,
    /// Ascending.
    pub rows: Vec<(Avma, Rule)>,
}

/// True if the module is a virtual machine of which this may know.
pub fn is_one(module: &Module) -> bool {
    module.file_name() == FILE
}

impl HotSpot {
    /// Of a process that has this module and memory; `None` where it tells nothing, as before it is set up.
    pub fn read(module: &Module, memory: &Memory) -> Option<Self> {
        /// Bytes that are left at the end of a block of code.
        const MOST_SPARE: i32 = 512;
        let tables = Tables::read(module, memory)?;
        let code = tables.pointer("AbstractInterpreter", "_code")?;
        let start = tables.word(code, "StubQueue", "_stub_buffer")?;
        let limit = tables.int(code, "StubQueue", "_buffer_limit")?;
        let end = tables.int(code, "StubQueue", "_queue_end")?;
        // While it is being generated it has more room, which goes to other code afterwards.
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

    /// What holds for all return addresses in its code.
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
        // Of two at one address the later one holds: a heap that begins where another one ends.
        rows.sort_by_key(|row| row.0);
        rows.reverse();
        rows.dedup_by_key(|row| row.0);
        rows.reverse();
        Conventions {
            range: start..end,
            rows,
        }
    }

    /// Return addresses that have another rule than those around them.
    pub fn rules(&self) -> Vec<(Avma, Rule)> {
        vec![(self.call_stub_return, FRAME_POINTER)]
    }

    /// The rule of a return address of which the conventions tell nothing.
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
        // Those without a frame of their own have 0 or less.
        (words > 0).then_some(Rule::FromSp {
            cfa_offset: words.checked_mul(8)?,
            fp_words: -2,
        })
    }

    fn heap_of(&self, after: Avma) -> Option<&Heap> {
        let call = Avma(after.0.checked_sub(1)?);
        self.heaps.iter().find(|heap| heap.range.contains(&call))
    }

    /// The block of code that the call before `after` is in (CodeHeap::find_block_for).
    fn blob_of(&self, after: Avma, memory: &Memory) -> Option<Avma> {
        const FREE: u8 = 0xff;
        /// A step is of up to 254 segments of some 128 bytes.
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
    /// There are three at most.
    const MOST: i32 = 16;
    let list = tables.pointer("CodeCache", "_heaps")?;
    let count = tables.int(list, "GrowableArrayBase", "_len")?.min(MOST);
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
            // Where there is one heap alone, all is in it.
            is_of_methods: !range.contains(&interpreter.start),
            range,
        })
    };
    let mut heaps = (0..count).map(heap).collect::<Option<Vec<_>>>()?;
    heaps.sort_by_key(|heap| heap.range.start);
    let has_interpreter = heaps.iter().any(|heap| !heap.is_of_methods);
    has_interpreter.then_some(heaps)
}

/// Memory that is read by the page, and each page once: what is looked for stands close together.
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

    /// A name that ends with a zero; none that is longer than any there is.
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
    /// By type and field: the offset, or of a static field the address.
    fields: HashMap<(String, String), u64>,
    /// Bytes of types.
    sizes: HashMap<String, u64>,
}

/// The types of which something is needed.
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
        let bias = module.bias(opened.image)?;
        let exported = LinkTables::parse(opened.image.data()).ok()?;
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

    /// Calls `found` for each entry of a table that is about one of the types, up to the entry without a type.
    fn each(
        &mut self,
        first: u64,
        stride: u64,
        kind: u64,
        mut found: impl FnMut(&mut Self, Avma, String) -> Option<()>,
    ) -> Option<()> {
        /// There are some thousands.
        const MOST: u64 = 1 << 16;
        let mut names: HashMap<u64, Option<String>> = HashMap::new();
        for index in 0..MOST {
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

    fn offset(&self, kind: &str, field: &str) -> Option<u64> {
        let key = (kind.to_owned(), field.to_owned());
        self.fields.get(&key).copied()
    }

    /// The value of a static field that is an address.
    fn pointer(&self, kind: &str, field: &str) -> Option<Avma> {
        let at = Avma(self.offset(kind, field)?);
        self.memory.word(at).map(Avma)
    }

    /// A field of eight bytes of the object at `of`.
    fn word(&self, of: Avma, kind: &str, field: &str) -> Option<u64> {
        let at = of.0.checked_add(self.offset(kind, field)?)?;
        self.memory.word(Avma(at))
    }

    /// A field of four bytes of it.
    fn int(&self, of: Avma, kind: &str, field: &str) -> Option<i32> {
        let at = of.0.checked_add(self.offset(kind, field)?)?;
        self.memory.int(Avma(at))
    }

    /// The value of an option that is a bool.
    fn flag(&self, name: &str) -> Option<bool> {
        /// There are some 1,500.
        const MOST: u64 = 1 << 14;
        let first = self.pointer("JVMFlag", "flags")?;
        let count = self.pointer("JVMFlag", "numFlags")?.0.min(MOST);
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
