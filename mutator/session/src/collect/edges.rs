//! Checks each pair of adjacent frames against the code: can the call of the outer frame have led
//! to the inner frame?
//!
//! The check does not depend on the unwinding method. It has no cost per call: a path is checked
//! when it is first collected.

use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use abi::arch::signal_frame::{RESTORER, SHORT_RESTORER};
use patcher::flow::{
    Arrivals, CallBefore, call_before, is_injected_by_go, program_main, replaces_frame,
    resumes_builtin,
};
use patcher::{Avma, Bias, Svma};
use self_cell::self_cell;

use super::places::{Code, Places, Site};
use ipath_profile::Verdict;
use ipath_symbols::images::{ImageId, OpenImage};
use ipath_target::process::{Memory, Process};

/// The maximum number of addresses that the search for one call's target passes through.
const MOST_HOPS: usize = 16;

/// An address in the code of a loaded file.
#[derive(Clone)]
pub(super) struct CodeAt {
    image: Arc<OpenImage>,
    bias: Bias,
    /// The link-time address.
    at: Svma,
}

impl CodeAt {
    /// The code at the run-time address `at`. `None` if no readable file is mapped at that address,
    /// or if the file has been overwritten.
    fn find(places: &Places, at: Avma) -> Option<Self> {
        let place = places.at(at)?;
        Self::of(&place.code, at)
    }

    fn of(code: &Code, at: Avma) -> Option<Self> {
        match code {
            Code::Of(image, bias) if image.is_intact() => Some(Self {
                image: Arc::clone(image),
                bias: *bias,
                at: bias.to_svma(at),
            }),
            _ => None,
        }
    }

    /// The link-time address `at` in this module.
    fn moved(&self, at: Svma) -> Self {
        Self { at, ..self.clone() }
    }

    fn key(&self) -> (ImageId, Svma) {
        (self.image.id(), self.at)
    }

    /// True if both are in one file, mapped at one bias.
    fn is_in_module_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.image, &other.image) && self.bias.0 == other.bias.0
    }

    /// True if a function with known bounds contains the address.
    fn is_in_function(&self) -> bool {
        self.image.image().functions().containing(self.at).is_some()
    }

    /// True if the function at this address has this linkage name, with any symbol version.
    fn is_called(&self, name: &str) -> bool {
        let base = |name: &str| name.split('@').next().unwrap_or_default().to_owned();
        let function = self.image.image().functions().function_at(self.at);
        function.is_some_and(|f| {
            let mut names = std::iter::once(&f.linkage).chain(&f.aliases);
            names.any(|of| base(of) == base(name))
        })
    }
}

type ArrivalsOf<'i> = Arrivals<'i, 'i>;

self_cell!(
    /// Arrivals that keep their file open.
    struct FileArrivals {
        owner: Arc<OpenImage>,
        #[not_covariant]
        dependent: ArrivalsOf,
    }
);

/// The known facts about a call site.
#[derive(Clone)]
struct Caller {
    /// The return address; `None` if the code belongs to no file that can be read.
    code: Option<CodeAt>,
    call: CallBefore,
    /// True if the return address is that of a signal frame: it leads to a call of rt_sigreturn.
    is_restorer: bool,
    /// See [`resumes_builtin`].
    resumes_builtin: bool,
    /// See [`replaces_frame`].
    replaces_frame: bool,
}

/// The inner frame of a pair.
#[derive(Clone, Copy)]
pub(super) enum Below {
    /// A measured function, by its address in the process.
    Entry(Avma),
    /// A call site in the inner function.
    Site(Site),
}

impl Below {
    fn key(self) -> (bool, u64) {
        match self {
            Self::Entry(at) => (true, at.0),
            Self::Site(site) => (false, site.0),
        }
    }
}

/// The verdicts on pairs of frames. They are kept from one profile to the next.
#[derive(Default)]
pub(super) struct Edges {
    callers: FxHashMap<Site, Caller>,
    verdicts: FxHashMap<(Site, (bool, u64), bool), Verdict>,
    /// The ranges of the functions that direct calls lead to, by file and address.
    targets: FxHashMap<(ImageId, Svma), Rc<[Range<Svma>]>>,
    arrivals: FxHashMap<(ImageId, Svma), FileArrivals>,
    /// The process, while its memory can be read to find imported functions. Otherwise `None`.
    process: Option<Process>,
    /// The memory of `process`, once it has been opened.
    memory: Option<Memory>,
}

impl Edges {
    /// Resolves calls through linkage tables by reading the memory of a live process.
    pub(super) fn of(process: &Process) -> Self {
        Self {
            process: Some(process.clone()),
            ..Self::default()
        }
    }

    /// Discards all verdicts, because the addresses may now hold other code.
    pub(super) fn forget(&mut self) {
        *self = Self {
            process: self.process.take(),
            ..Self::default()
        };
    }

    /// The verdict on a call site and the frame below it. `may_be_none` is true for the outermost
    /// frame. That frame need not follow a call: it is the root, or the walk stopped there and
    /// reports so.
    pub(super) fn judge(
        &mut self,
        places: &mut Places,
        outer: Site,
        below: Below,
        may_be_none: bool,
    ) -> Verdict {
        let key = (outer, below.key(), may_be_none);
        if let Some(&verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        let verdict = self.find(places, outer, below);
        let verdict = match verdict {
            Verdict::Contradicted if may_be_none && self.follows_none(outer) => Verdict::Possible,
            Verdict::Contradicted if places.is_cut() => Verdict::Possible,
            verdict => verdict,
        };
        self.verdicts.insert(key, verdict);
        verdict
    }

    /// True if the frame of this call site is being replaced by the unwinder. The frame above it
    /// has not called it.
    pub(super) fn is_replaced(&mut self, places: &mut Places, site: Site) -> bool {
        self.caller(places, site).replaces_frame
    }

    /// True if no call precedes the return address of this call site.
    fn follows_none(&self, site: Site) -> bool {
        let caller = self.callers.get(&site);
        caller.is_some_and(|caller| caller.call == CallBefore::None)
    }

    /// The facts about a call site. They are determined once.
    fn caller(&mut self, places: &mut Places, site: Site) -> Caller {
        if let Some(known) = self.callers.get(&site) {
            return known.clone();
        }
        let (at, place) = places.find(site);
        let returns_to = Avma(at.0.wrapping_add(1));
        let code = place.and_then(|place| CodeAt::of(&place.code, at));
        let code = code.map(|code| code.moved(code.bias.to_svma(returns_to)));
        let known = code.as_ref();
        let known = known.map(|code| (code.image.image(), code.at));
        let caller = Caller {
            call: known.map_or(CallBefore::Unclear, |(image, at)| call_before(image, at)),
            is_restorer: code.as_ref().is_some_and(is_restorer),
            resumes_builtin: known.is_some_and(|(image, at)| resumes_builtin(image, at)),
            replaces_frame: known.is_some_and(|(image, at)| replaces_frame(image, at)),
            code,
        };
        self.callers.insert(site, caller.clone());
        caller
    }

    /// The verdict on a call site and the frame below it, before [`Self::judge`] makes exceptions.
    fn find(&mut self, places: &mut Places, outer: Site, below: Below) -> Verdict {
        let to = match below {
            Below::Entry(at) => CodeAt::find(places, at),
            Below::Site(site) => {
                let below = self.caller(places, site);
                if below.is_restorer {
                    // The kernel made this frame: a signal interrupts code at any instruction, not
                    // only after a call.
                    return Verdict::Proven;
                }
                let inside = u64::from(!below.resumes_builtin);
                below.code.map(|code| code.moved(Svma(code.at.0 - inside)))
            }
        };
        if to
            .as_ref()
            .is_some_and(|to| is_injected_by_go(to.image.image(), to.at))
        {
            return Verdict::Possible;
        }
        let Caller {
            code,
            call,
            is_restorer,
            resumes_builtin,
            ..
        } = self.caller(places, outer);
        let (Some(from), Some(to)) = (code, to) else {
            return Verdict::Possible;
        };
        let is_bounded = from.moved(Svma(from.at.0 - 1)).is_in_function() && to.is_in_function();
        match call {
            CallBefore::None if is_restorer || resumes_builtin => Verdict::Possible,
            CallBefore::None => Verdict::Contradicted,
            // The C library calls `main` by the pointer that the program's entry code passes to it.
            CallBefore::Indirect if starts_program(&to) => Verdict::Proven,
            CallBefore::Indirect | CallBefore::Unclear => Verdict::Possible,
            CallBefore::Direct(target) => self.leads(places, from.moved(target), to, is_bounded),
            CallBefore::Through(slot) => {
                let mut way = Way::new(to, is_bounded);
                self.take_slot(places, &mut way, &from, slot);
                self.follow(places, way)
            }
        }
    }

    /// The verdict on a direct call whose target is `from`, and a frame at `to`.
    fn leads(&mut self, places: &Places, from: CodeAt, to: CodeAt, is_bounded: bool) -> Verdict {
        let own = self.ranges_of(&from);
        if from.is_in_module_of(&to) && own.iter().any(|range| range.contains(&to.at)) {
            return Verdict::Proven;
        }
        let mut way = Way::new(to, is_bounded);
        way.work.push(from);
        self.follow(places, way)
    }

    /// The ranges of the function at an address. They are empty if there is no function, for
    /// example at a linkage stub.
    fn ranges_of(&mut self, code: &CodeAt) -> Rc<[Range<Svma>]> {
        let find = || {
            let function = code.image.image().functions().function_at(code.at);
            let ranges = function.map(|f| f.ranges().cloned().collect());
            ranges.unwrap_or_default()
        };
        Rc::clone(self.targets.entry(code.key()).or_insert_with(find))
    }

    /// Searches for the frame from the addresses in `way.work`, and returns the verdict.
    fn follow(&mut self, places: &Places, mut way: Way) -> Verdict {
        let mut hops = 0;
        while let Some(from) = way.work.pop().filter(|_| !way.is_found) {
            hops += 1;
            if hops > MOST_HOPS {
                way.is_open = true;
                break;
            }
            let own = self.ranges_of(&from);
            let is_same_module = from.is_in_module_of(&way.to);
            let is_of_own = is_same_module && own.iter().any(|range| range.contains(&way.to.at));
            // A linkage stub does not count as a function.
            way.is_direct &= is_of_own || own.is_empty();
            let known = self.arrivals.entry(from.key());
            let arrivals = known.or_insert_with(|| {
                let image = Arc::clone(&from.image);
                FileArrivals::new(image, |image| Arrivals::from(image.image(), from.at))
            });
            let slots = arrivals.with_dependent_mut(|_, reached| {
                if is_same_module && reached.reach(way.to.at) {
                    return None;
                }
                way.is_open |= reached.is_open();
                Some(reached.slots().clone())
            });
            let Some(slots) = slots else {
                way.is_found = true;
                break;
            };
            for slot in slots {
                self.take_slot(places, &mut way, &from, slot);
            }
        }
        match (way.is_found, way.is_direct, way.is_open) {
            (true, true, _) => Verdict::Proven,
            (true, false, _) => Verdict::Explained,
            (false, _, true) => Verdict::Possible,
            // The extent of code is unknown if it has neither a symbol nor an unwind entry (V8's
            // built-in handlers).
            (false, _, false) if !way.is_bounded => Verdict::Possible,
            (false, _, false) => Verdict::Contradicted,
        }
    }

    /// Continues the search through a pointer in the module of `from` that the code jumps or calls
    /// through.
    fn take_slot(&mut self, places: &Places, way: &mut Way, from: &CodeAt, slot: Svma) {
        let name = from.image.image().imported_at(slot);
        if name.is_some_and(|name| way.to.is_called(name)) {
            way.is_found = true;
            return;
        }
        let word = self.word(from.bias.to_avma(slot));
        let next = word.and_then(|word| CodeAt::find(places, Avma(word)));
        // Before a function's first call, its slot points to the loader.
        way.is_open |= name.is_none() || next.is_none() || places.is_loader(&way.to.image);
        way.work.extend(next);
    }

    /// A word of the process's memory, while the process is alive. `None` if it cannot be read.
    fn word(&mut self, at: Avma) -> Option<u64> {
        if self.memory.is_none() {
            self.memory = self.process.as_ref()?.open_memory().ok();
        }
        self.memory.as_ref()?.read_word(at).ok()
    }
}

/// The state of a search for a way to a frame.
struct Way {
    /// The frame to find.
    to: CodeAt,
    /// Addresses from which the search is to continue.
    work: Vec<CodeAt>,
    /// True once the search has reached the frame.
    is_found: bool,
    /// True while the search has passed only through linkage stubs.
    is_direct: bool,
    /// True if both the call and the frame are in functions with known bounds.
    is_bounded: bool,
    /// True if the search has met a branch with an unknown target.
    is_open: bool,
}

impl Way {
    fn new(to: CodeAt, is_bounded: bool) -> Self {
        Self {
            to,
            is_bounded,
            work: Vec::new(),
            is_found: false,
            is_direct: true,
            is_open: false,
        }
    }
}

/// True if `to` lies in `main`, the function that the file's entry code passes to the C library.
fn starts_program(to: &CodeAt) -> bool {
    let main = program_main(to.image.image());
    let function = main.and_then(|at| to.image.image().functions().function_at(at));
    function.is_some_and(|f| f.contains(to.at))
}

/// True if the code at this address calls rt_sigreturn.
fn is_restorer(code: &CodeAt) -> bool {
    let is_here =
        |bytes: &[u8]| code.image.image().bytes(code.at, bytes.len() as u64) == Some(bytes);
    is_here(&RESTORER) || is_here(&SHORT_RESTORER)
}
