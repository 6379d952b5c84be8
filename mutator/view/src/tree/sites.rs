//! The elements of paths, numbered consistently over all samples: functions, threads and call
//! sites.

use std::rc::Rc;

use patcher::select::MEANING;
use rustc_hash::FxHashMap;

use ipath_profile::folding::Fold;
use ipath_profile::report::Titles;
use ipath_profile::{Frame, FramePart, FunctionPart, Label, Module, Process, Profile, printable};

/// A function, thread or call site. The number is valid as long as the view.
pub(crate) type SiteId = u32;

/// The identity of a site. Modules are numbered over all samples.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SiteKey {
    Function {
        module: u32,
        address: u64,
        /// The part of the function that begins there.
        part: FunctionPart,
    },
    /// A thread, by its id.
    Thread(u32),
    /// A process, by the key of its entry in the profile.
    Process((u32, u64)),
    Caller {
        module: u32,
        address: u64,
        /// The meaning of the frame at the address.
        part: FramePart,
    },
    /// The text for unknown callers.
    Unknown(&'static str),
    /// What keeps paths with the same call sites apart, by its number.
    Apart(u32),
}

/// A line that shows a site, or an inlined scope at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The source position, or the module if the position is not known.
    pub(crate) place: String,
    /// True for an inlined copy inside the next line's function.
    pub(crate) inlined: bool,
    /// The source file as the debug information names it, and the line.
    pub(crate) source: Option<(Rc<str>, u32)>,
    /// The reason to fold the line in a chain. `None` if it is shown.
    pub(crate) fold: Option<Fold>,
    /// True if the function is the program's own.
    pub(crate) is_own: bool,
    /// The loops of the function around the call, innermost first.
    pub(crate) loops: Vec<String>,
}

/// A site.
pub(crate) struct Site {
    /// The lines that show the site, at least one: the functions inlined at the site, innermost
    /// first, then the function itself.
    pub(crate) lines: Rc<[Line]>,
    /// True for sites with a row of their own regardless of the caller: measured functions, threads
    /// and processes.
    pub(crate) is_alone: bool,
    /// True for a measured function.
    pub(crate) is_function: bool,
    /// A pattern that matches the site's function. `None` if there is none.
    pub(crate) pattern: Option<String>,
    /// The file name of the site's module.
    pub(crate) module: Rc<str>,
}

impl Site {
    /// True for a thread or a process.
    pub(crate) fn is_thread(&self) -> bool {
        self.is_alone && !self.is_function
    }
}

/// The sites seen so far.
#[derive(Default)]
pub(crate) struct Sites {
    all: Vec<Site>,
    /// The numbers of texts that keep paths with the same call sites apart.
    parts: FxHashMap<String, u32>,
    ids: FxHashMap<SiteKey, SiteId>,
    /// True if at least one site is a process.
    has_processes: bool,
    /// The number of each module, by its path and its base address.
    modules: FxHashMap<(String, Option<u64>), u32>,
    /// The number and the file name of each module of the sample, by the module's index.
    numbers: Vec<(u32, Rc<str>)>,
    /// The sites of the sample's functions, by index.
    functions: Vec<SiteId>,
    /// The sites of the sample's frames, by index.
    frames: Vec<SiteId>,
}

impl Sites {
    pub(crate) fn get(&self, id: SiteId) -> &Site {
        &self.all[id as usize]
    }

    /// Takes in the functions and frames of a sample. Unless `anew`, those of the previous sample
    /// have kept their indexes.
    pub(super) fn learn(&mut self, profile: &Profile, anew: bool) {
        if anew {
            self.numbers.clear();
            self.functions.clear();
            self.frames.clear();
        }
        for index in self.numbers.len()..profile.modules.len() {
            let number = self.module(&profile.modules[index]);
            let name = profile.module_name(Some(index)).into_owned().into();
            self.numbers.push((number, name));
        }
        for index in self.functions.len()..profile.functions.len() {
            let site = self.function(profile, index);
            self.functions.push(site);
        }
        for index in self.frames.len()..profile.frames.len() {
            let site = self.caller(profile, &profile.frames[index]);
            self.frames.push(site);
        }
    }

    /// The site of a function of the sample.
    pub(super) fn of_function(&self, index: usize) -> SiteId {
        self.functions[index]
    }

    /// The site of a frame of the sample.
    pub(super) fn of_frame(&self, index: usize) -> SiteId {
        self.frames[index]
    }

    /// The index in the sample of the function with this site. `None` if the sample does not have
    /// it.
    pub(super) fn function_index(&self, site: SiteId) -> Option<usize> {
        self.functions.iter().position(|&of| of == site)
    }

    fn module(&mut self, module: &Module) -> u32 {
        let new = self.modules.len() as u32;
        let key = (module.path.clone(), module.base);
        *self.modules.entry(key).or_insert(new)
    }

    fn id(&mut self, key: SiteKey, site: impl FnOnce() -> Site) -> SiteId {
        let new = self.all.len() as SiteId;
        let id = *self.ids.entry(key).or_insert(new);
        if id == new {
            self.all.push(site());
        }
        id
    }

    fn function(&mut self, profile: &Profile, index: usize) -> SiteId {
        let function = &profile.functions[index];
        let (number, module) = self.numbers[function.module].clone();
        let key = SiteKey::Function {
            module: number,
            address: function.address,
            part: function.part(),
        };
        self.id(key, || {
            let line = Line {
                name: printable(&function.name).into_owned(),
                place: match profile.distinction(index) {
                    none if none.is_empty() && function.is_span() => {
                        function.position().unwrap_or_default()
                    }
                    none if none.is_empty() => {
                        profile.module_name(Some(function.module)).into_owned()
                    }
                    part => part.trim_matches([' ', '(', ')']).to_owned(),
                },
                inlined: false,
                source: function.file.as_deref().map(Rc::from).zip(function.line),
                fold: None,
                is_own: true,
                loops: Vec::new(),
            };
            Site {
                lines: [line].into(),
                is_alone: true,
                is_function: true,
                pattern: pattern(&module, &function.linkage),
                module,
            }
        })
    }

    fn caller(&mut self, profile: &Profile, frame: &Frame) -> SiteId {
        let found = frame.module.map(|index| self.numbers[index].clone());
        let (number, module) = found.unwrap_or((u32::MAX, "".into()));
        let key = SiteKey::Caller {
            module: number,
            address: frame.address,
            part: frame.part(),
        };
        self.id(key, || {
            let source = |file: &Option<String>, line: Option<u32>| {
                Some((Rc::from(file.as_deref()?), line?))
            };
            let inlined = frame.inlined.iter().map(|i| source(&i.file, i.line));
            let sources = inlined.chain([source(&frame.file, frame.line)]);
            let labels = profile.labels(frame).into_iter();
            let lines = labels
                .zip(sources)
                .map(|(label, source)| line(label, source));
            let linkage = frame.function.as_deref().unwrap_or_default();
            Site {
                lines: lines.collect(),
                is_alone: false,
                is_function: false,
                pattern: pattern(&module, linkage),
                module,
            }
        })
    }

    /// The site of a thread. Updates its name, which can change. `name` is `None` if it is not
    /// known.
    pub(super) fn thread(&mut self, tid: u32, name: Option<&str>) -> SiteId {
        let by_number = format!("thread {tid}");
        let (name, place) = match name {
            Some(name) => (printable(name).into_owned(), by_number),
            None => (by_number, String::new()),
        };
        self.alone(SiteKey::Thread(tid), name, place)
    }

    /// The site of what keeps paths with the same call sites apart.
    pub(super) fn apart(&mut self, text: String) -> SiteId {
        let new = self.parts.len() as u32;
        let number = *self.parts.entry(text.clone()).or_insert(new);
        self.alone(SiteKey::Apart(number), text, String::new())
    }

    /// The site of one of several processes, by its index in the profile. Updates its title.
    pub(super) fn process(
        &mut self,
        profile: &Profile,
        titles: &Titles<'_>,
        index: usize,
    ) -> SiteId {
        let key = profile.processes.get(index).map(Process::key);
        let title = titles.title(index).unwrap_or_default();
        self.has_processes = true;
        self.alone(
            SiteKey::Process(key.unwrap_or_default()),
            title,
            String::new(),
        )
    }

    /// True if at least one site is a process.
    pub(super) fn has_processes(&self) -> bool {
        self.has_processes
    }

    /// The site of a thread or process, whose name may change.
    fn alone(&mut self, key: SiteKey, name: String, place: String) -> SiteId {
        let lines: Rc<[Line]> = [line(
            Label {
                name,
                place,
                inlined: false,
                fold: None,
                is_own: false,
                loops: Vec::new(),
            },
            None,
        )]
        .into();
        let id = self.id(key, || Site {
            lines: Rc::clone(&lines),
            is_alone: true,
            is_function: false,
            pattern: None,
            module: "".into(),
        });
        if self.all[id as usize].lines != lines {
            self.all[id as usize].lines = lines;
        }
        id
    }

    /// The site that replaces unknown callers.
    pub(super) fn unknown(&mut self, text: &'static str) -> SiteId {
        self.id(SiteKey::Unknown(text), || {
            let label = Label {
                name: text.to_owned(),
                place: String::new(),
                inlined: false,
                fold: None,
                is_own: false,
                loops: Vec::new(),
            };
            Site {
                lines: [line(label, None)].into(),
                is_alone: false,
                is_function: false,
                pattern: None,
                module: "".into(),
            }
        })
    }
}

fn line(label: Label, source: Option<(Rc<str>, u32)>) -> Line {
    Line {
        fold: label.fold,
        is_own: label.is_own,
        loops: label.loops,
        name: label.name,
        place: label.place,
        inlined: label.inlined,
        source,
    }
}

/// A pattern that matches only this function, as long as names are unique. `None` if a name is
/// empty or has special characters. `linkage` is the mangled name.
fn pattern(module: &str, linkage: &str) -> Option<String> {
    let has_meaning = |c: char| MEANING.contains(&c) || c.is_whitespace() || c.is_control();
    let is_plain = !linkage.is_empty() && !module.is_empty();
    (is_plain && !linkage.contains(has_meaning) && !module.contains(has_meaning))
        .then(|| format!("{module}!{linkage}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_no_second_meaning() {
        for (module, linkage, expected) in [
            ("app", "_ZN5Store4loadEi", Some("app!_ZN5Store4loadEi")),
            ("app", "", None),
            ("", "work", None),
            ("app", "main.(*T).run", None),
            ("my app", "work", None),
        ] {
            assert_eq!(pattern(module, linkage).as_deref(), expected);
        }
    }
}
