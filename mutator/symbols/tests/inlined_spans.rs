//! Spans of inlined copies in programs of other projects. `--nocapture` shows the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipath_symbols::lines::{Copy, Lines, Places};
use patcher::Svma;
use patcher::flow::ModuleContext;
use patcher::image::Image;
use patcher::inside::{
    BlockEnd, BlockId, EdgeKind, InlinedSpan, Inside, NeverReturning, Node, Span, SpanStep,
    Spanless, Transfer,
};
use patcher::plan::{Allowed, Effect, Effects, Hooked, ProbePoint, plan_inside};

/// The steps of the walk through each function.
const STEPS: usize = 600;

#[derive(Debug, Default)]
struct Figures {
    copies: usize,
    timed: usize,
    functions: usize,
    refused: BTreeMap<String, usize>,
    unplanned: BTreeMap<String, usize>,
    gaps: usize,
    outside: usize,
    begun: usize,
    checked: usize,
    thrown: usize,
}

/// The copies that are open, by the hooks that have run.
struct Walk<'a> {
    hooks: BTreeMap<(Svma, Transfer), Vec<(SpanStep, usize)>>,
    open: Vec<usize>,
    inside: &'a Inside,
    /// The call sites whose exceptions arrive at a landing pad, with the pad.
    sites: Vec<(Range<Svma>, Svma)>,
    spans: BTreeMap<usize, &'a InlinedSpan>,
    begun: usize,
    checked: usize,
    thrown: usize,
}

impl Walk<'_> {
    fn run(&mut self, at: Svma, transfer: Transfer) {
        let Some(hooks) = self.hooks.get(&(at, transfer)) else {
            return;
        };
        for (step, of) in hooks {
            if step.begins {
                assert!(!self.open.contains(of), "copy {of} begins at {at} again");
                self.open.push(*of);
                self.begun += 1;
            } else if self.open.contains(of) {
                assert_eq!(self.open.pop(), Some(*of), "at {at}");
            }
        }
    }

    /// Runs the hooks of a block's instructions. True if control left at a call, by an exception.
    fn run_block(&mut self, block: BlockId, throws: bool) -> Option<Svma> {
        let insns = self.inside.graph.block(block).insns.clone();
        for insn in &self.inside.flow.insns[insns] {
            let at = Svma(insn.at());
            self.run(at, Transfer::Reached);
            let pad = self.sites.iter().find(|(range, _)| range.contains(&at));
            if let Some((_, pad)) = pad.filter(|_| throws && insn.is_call()) {
                return Some(*pad);
            }
        }
        None
    }

    /// Exactly the copies whose bodies hold the first instruction are open.
    fn check(&mut self, block: BlockId) {
        let of = self.inside.graph.block(block);
        let (start, first) = (of.range.start, of.first);
        let is_in = |span: &&InlinedSpan| span.blocks.contains(&start);
        let expected = self.spans.iter().filter(|(_, span)| is_in(span));
        let expected: BTreeSet<usize> = expected.map(|(of, _)| *of).collect();
        let (open, begun) = (self.open.clone(), self.begun);
        self.run(first, Transfer::Reached);
        let found: BTreeSet<usize> = self.open.iter().copied().collect();
        // A hook before the only instruction may belong to the way out.
        if of.first != of.last {
            assert_eq!(found, expected, "in the block at {start}");
            self.checked += 1;
        }
        (self.open, self.begun) = (open, begun);
    }

    fn follow(&mut self) {
        let graph = &self.inside.graph;
        let mut node = Node::Entry;
        let mut random = 1_u64;
        for _ in 0..STEPS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if let Node::Block(block) = node
                && let Some(pad) = self.run_block(block, random >> 61 == 0)
            {
                let mut ids = graph.block_ids();
                let pad = ids.find(|&id| graph.block(id).range.start == pad);
                let Some(pad) = pad else { return };
                self.thrown += 1;
                self.check(pad);
                node = Node::Block(pad);
                continue;
            }
            // Exceptions have no edges.
            let leaving = graph.leaving(node).iter();
            let leaving = leaving.filter(|&&id| graph.edge(id).kind != EdgeKind::Arrival);
            let leaving: Vec<_> = leaving.collect();
            let Some(&&edge) = leaving.get((random >> 33) as usize % leaving.len().max(1)) else {
                return;
            };
            let edge = graph.edge(edge);
            if let Node::Block(block) = node {
                // The activation ends inside the call.
                if graph.block(block).end == BlockEnd::NoReturn {
                    self.open.clear();
                }
                let transfer = match (edge.kind, edge.to) {
                    (EdgeKind::Taken, _) => Transfer::Taken,
                    (EdgeKind::Table, Node::Block(to)) => {
                        Transfer::LeadsTo(graph.block(to).range.start)
                    }
                    _ => Transfer::NotTaken,
                };
                self.run(graph.block(block).last, transfer);
            }
            node = edge.to;
            match node {
                Node::Block(block) => self.check(block),
                _ => {
                    assert!(self.open.is_empty(), "{:?} are open at the end", self.open);
                    node = Node::Entry;
                }
            }
        }
    }
}

fn in_words(why: &impl ToString) -> String {
    let text = why.to_string();
    let words = text.split(' ').filter(|word| !word.starts_with("0x"));
    words.collect::<Vec<_>>().join(" ")
}

impl Figures {
    fn of(data: &[u8], path: &Path) -> Self {
        let image = Image::parse(data).expect("an image");
        let context = ModuleContext::new(&image);
        let lines = Lines::load(data, &Places::for_file(path)).expect("lines");
        let mut calls = NeverReturning::default();
        let mut figures = Self::default();
        let copies = lines.copies(|_| true, |_| None);
        let mut functions: BTreeMap<Svma, Vec<&Copy>> = BTreeMap::new();
        for copy in copies.iter().filter(|copy| !copy.is_part) {
            figures.copies += 1;
            let function = image.functions().function_at(copy.ranges[0].start);
            match function {
                Some(function) => functions
                    .entry(function.range.start)
                    .or_default()
                    .push(copy),
                None => *figures.refused.entry("no function".into()).or_default() += 1,
            }
        }
        for (start, own) in &functions {
            figures.functions += 1;
            let function = image.functions().function_at(*start).expect("a function");
            let inside = match Inside::of(&image, &context, &function, &mut calls) {
                Ok(inside) => inside,
                Err(why) => {
                    *figures.refused.entry(why.to_string()).or_default() += own.len();
                    continue;
                }
            };
            let inlined = lines.inlined(own, &copies, &inside.flow.ranges);
            let spans = Span::of_copies(&image, &context, &function, &inside, &inlined);
            assert_eq!(spans.len(), own.len());
            figures.take(&image, &context, (&function, &inside), &spans);
        }
        figures
    }

    fn take(
        &mut self,
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        (function, inside): (&patcher::function::Function, &Inside),
        spans: &[Result<InlinedSpan, Spanless>],
    ) {
        let mut hooks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut timed = BTreeMap::new();
        for (span, of) in spans.iter().zip(0..) {
            match span {
                Err(why) => {
                    *self.refused.entry(in_words(why)).or_default() += 1;
                    continue;
                }
                Ok(span) => {
                    self.timed += 1;
                    self.gaps += usize::from(span.gaps > 0);
                    self.outside += usize::from(span.outside > 0);
                    for &(at, step) in &span.span.hooks {
                        let of_place: &mut Vec<_> = hooks.entry((at, step.transfer)).or_default();
                        of_place.push((step, of));
                    }
                    timed.insert(of, span);
                    let points = span.span.hooks.iter().map(|&(at, step)| ProbePoint {
                        at,
                        effect: Effect::Span(step),
                    });
                    let points: Vec<ProbePoint> = points.collect();
                    let want = Effects {
                        entry: false,
                        exits: false,
                    };
                    let hooked = Hooked {
                        points: &points,
                        regions: &[],
                        arrivals: &[],
                    };
                    let plan = plan_inside(image, context, function, (want, hooked), Allowed::ALL);
                    let outcomes = plan.points.iter();
                    if let Some(why) = outcomes.filter_map(|point| point.outcome.err()).next() {
                        *self.unplanned.entry(why.to_string()).or_default() += 1;
                    }
                }
            }
        }
        for of_place in hooks.values_mut() {
            of_place.sort_unstable();
        }
        let starts = inside.flow.ranges.iter().map(|range| range.start);
        let fdes = starts.filter_map(|start| image.fde(start));
        let mut walk = Walk {
            hooks,
            open: Vec::new(),
            inside,
            sites: fdes.flat_map(|fde| image.exception_sites(&fde)).collect(),
            spans: timed,
            begun: 0,
            checked: 0,
            thrown: 0,
        };
        walk.follow();
        self.begun += walk.begun;
        self.checked += walk.checked;
        self.thrown += walk.thrown;
    }
}

/// The figures of a program with these sources, which this compiler compiles at a level. `None` if
/// a source is missing: `tests/set-up` gets those of other projects.
fn figures(name: &str, compiler: &str, level: &str, sources: &[PathBuf]) -> Option<Figures> {
    if !sources.iter().all(|source| source.exists()) {
        println!("{name}: no sources");
        return None;
    }
    let folder = std::env::temp_dir().join(format!("ipath-inlined-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join(format!("{name}-{compiler}{level}"));
    let mut run = Command::new(compiler);
    run.args(["-w", "-g", level, "-pthread", "-o"])
        .arg(&program);
    let folders = sources.iter().filter_map(|source| source.parent());
    let folders: BTreeSet<&Path> = folders.collect();
    for folder in folders {
        run.arg("-I").arg(folder);
    }
    let done = run.args(sources).arg("-lm").output().expect("a compiler");
    assert!(done.status.success(), "{done:?}");
    let data = std::fs::read(&program).expect("a program");
    let figures = Figures::of(&data, &program);
    std::fs::remove_dir_all(&folder).expect("an own folder");
    println!("{name} {compiler} {level}: {figures:#?}");
    assert!(figures.begun > figures.timed, "{name} {compiler} {level}");
    assert!(figures.checked > 0, "{name} {compiler} {level}");
    Some(figures)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The C sources of a project, by the path of their folder. Those in `left_out` have a `main`.
fn project(folder: &str, left_out: &[&str], more: &str) -> Vec<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| root().join("target"));
    let folder = target.join("tools/sources").join(folder);
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    let is_own = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(".c") && !left_out.contains(&name))
    };
    let mut sources: Vec<PathBuf> = files.filter(is_own).collect();
    if sources.is_empty() {
        sources.push(folder);
    }
    sources.sort();
    if !more.is_empty() {
        sources.push(root().join("tests/programs").join(more));
    }
    sources
}

fn hold(name: &str, sources: &[PathBuf], levels: &[&str]) {
    for compiler in ["gcc", "clang"] {
        for level in levels {
            let Some(figures) = figures(name, compiler, level, sources) else {
                continue;
            };
            let Figures { timed, copies, .. } = figures;
            assert!(timed * 2 >= copies, "{name} {compiler} {level}");
        }
    }
}

#[test]
fn copies_of_the_test_program_begin_and_end() {
    let source = root().join("tests/programs/inlined_spans.cc");
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let sources = std::slice::from_ref(&source);
            let figures = figures("own", compiler, level, sources).expect("a source");
            assert!(figures.thrown > 0, "{compiler} {level}");
        }
    }
}

#[test]
fn copies_of_bzip2_begin_and_end() {
    let others = [
        "bzip2recover.c",
        "dlltest.c",
        "mk251.c",
        "spewG.c",
        "unzcrash.c",
    ];
    hold(
        "bzip2",
        &project("bzip2-sys-0.1.13+1.0.8/bzip2-1.0.8", &others, ""),
        &["-O1", "-O2", "-O3"],
    );
}

#[test]
fn copies_of_zlib_begin_and_end() {
    hold(
        "zlib",
        &project("libz-sys-1.1.22/src/zlib", &[], "drive_zlib.c"),
        &["-O1", "-O2", "-O3"],
    );
}

#[test]
fn copies_of_lua_begin_and_end() {
    let folder = "lua-src-547.0.0/lua-5.4.7";
    let sources = project(folder, &["lua.c", "luac.c"], "drive_lua.c");
    hold("lua", &sources, &["-O2"]);
}

#[test]
fn copies_of_sqlite_begin_and_end() {
    let folder = "libsqlite3-sys-0.35.0/sqlite3";
    let sources = project(folder, &["wasm32-wasi-vfs.c"], "drive_sqlite.c");
    let figures = figures("sqlite", "gcc", "-O2", &sources);
    assert!(figures.is_none_or(|of| of.timed * 2 >= of.copies));
}
