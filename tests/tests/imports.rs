//! Which module imports from which: the runtime's layers from lower ones only, and no module from one that
//! imports from it in turn, however many lie between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// The runtime's layers, from the lowest to the highest (docs/architecture.md).
const LAYERS: [&str; 8] = [
    "arch", "os", "code", "walk", "ledger", "calls", "thread", "probe",
];

/// A module by its path from the crate on.
type Module = Vec<String>;

/// Which modules of a crate each of them names.
struct Imports(BTreeMap<Module, BTreeSet<Module>>);

impl Imports {
    /// Of the crate whose sources are in a folder of the repository.
    fn of(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder);
        let mut files = BTreeMap::new();
        collect(&root, &mut Vec::new(), &mut files);
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let named = |(module, text): (&Module, &String)| {
            let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{module:?}: {e}"));
            let mut names = Names {
                module,
                found: Vec::new(),
            };
            names.visit_file(&file);
            let found = names.found.iter();
            let others = found.filter_map(|path| Some(longest(&modules, path)?.clone()));
            (module.clone(), others.filter(|m| m != module).collect())
        };
        let imports: BTreeMap<Module, BTreeSet<Module>> = files.iter().map(named).collect();
        assert!(imports.len() > 10, "{folder} has modules");
        Self(imports)
    }

    /// The modules that lie on a circle with others, each circle by itself.
    fn circles(&self) -> BTreeSet<BTreeSet<Module>> {
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.0.keys().map(|m| (m, self.reached(m))).collect();
        let on_one = reached.iter().filter(|(m, all)| all.contains(**m));
        let circle = |(module, all): (&&Module, &BTreeSet<Module>)| {
            let back = all.iter().filter(|other| reached[other].contains(*module));
            back.cloned().collect()
        };
        on_one.map(circle).collect()
    }

    /// What is imported by a module, by what it imports from, and so on.
    fn reached(&self, from: &Module) -> BTreeSet<Module> {
        let mut found = BTreeSet::new();
        let mut next: Vec<&Module> = self.0[from].iter().collect();
        while let Some(module) = next.pop() {
            if found.insert(module.clone()) {
                next.extend(&self.0[module]);
            }
        }
        found
    }
}

/// The longest beginning of a path that is a module.
fn longest<'m>(modules: &'m BTreeSet<Module>, path: &[String]) -> Option<&'m Module> {
    let beginnings = (1..=path.len()).rev();
    beginnings
        .filter_map(|len| modules.get(&path[..len]))
        .next()
}

/// The text of each module that has a file of its own, but for tests and the crate's root.
fn collect(folder: &Path, at: &mut Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("can be read").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        if stem == "tests" || stem == "lib" || stem == "main" {
            continue;
        }
        let is_folder = path.is_dir();
        if stem != "mod" {
            at.push(stem.to_owned());
        }
        if is_folder {
            collect(&path, at, files);
        } else {
            files.insert(at.clone(), fs::read_to_string(&path).expect("text"));
        }
        if stem != "mod" {
            at.pop();
        }
    }
}

/// The paths from the crate on that a file names.
struct Names<'m> {
    module: &'m Module,
    found: Vec<Vec<String>>,
}

impl Names<'_> {
    /// A path that may lead to another module, of which this one may be the parent.
    fn note(&mut self, path: &[String]) {
        let mut at = self.module.clone();
        let mut rest = path;
        match rest.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = &rest[1..];
            }
            Some("self") => rest = &rest[1..],
            _ => {}
        }
        while rest.first().is_some_and(|s| s == "super") {
            at.pop();
            rest = &rest[1..];
        }
        at.extend_from_slice(rest);
        self.found.push(at);
    }

    fn note_tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(before, tree);
                }
            }
            UseTree::Name(name) => self.note_ending(before, &name.ident.to_string()),
            UseTree::Rename(name) => self.note_ending(before, &name.ident.to_string()),
            UseTree::Glob(_) => self.note(before),
        }
    }

    fn note_ending(&mut self, before: &[String], name: &str) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        self.note(&path);
    }
}

impl<'a> Visit<'a> for Names<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.note_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string());
        self.note(&segments.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(module) => &module.attrs,
        Item::Use(import) => &import.attrs,
        Item::Fn(function) => &function.attrs,
        _ => &[],
    };
    let is_test = |a: &Attribute| {
        a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|i| i == "test")
    };
    attributes.iter().any(is_test)
}

#[test]
fn the_runtimes_layers_import_from_lower_ones_only() {
    let layer = |module: &Module| {
        let name = module.first().expect("a layer").as_str();
        let place = LAYERS.iter().position(|l| *l == name);
        place.unwrap_or_else(|| panic!("{name} is no layer"))
    };
    let imports = Imports::of("rtlib/src").0;
    for (module, other) in imports
        .iter()
        .flat_map(|(m, o)| o.iter().map(move |o| (m, o)))
    {
        let (from, to) = (module.join("::"), other.join("::"));
        assert!(layer(other) <= layer(module), "{from} imports from {to}");
    }
    let expected = ["calls", "thread", "walk"].map(|layer| vec![layer.to_owned()]);
    let entry = &imports[&["probe", "entry"].map(str::to_owned).to_vec()];
    assert!(
        expected
            .iter()
            .all(|m| entry.iter().any(|o| o.starts_with(m)))
    );
}

#[test]
fn no_module_of_the_runtime_imports_in_a_circle() {
    assert_eq!(Imports::of("rtlib/src").circles(), BTreeSet::new());
}

/// That the two above can fail: of what imports in a circle, exactly that is found.
#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_owned()];
    let imports = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "")];
    let mut all: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in imports {
        let others = all.entry(module(from)).or_default();
        others.extend((!to.is_empty()).then(|| module(to)));
    }
    let expected = BTreeSet::from([BTreeSet::from([module("b"), module("c")])]);
    assert_eq!(Imports(all).circles(), expected);
    let known: BTreeSet<Module> = ["x", "y"].map(module).into();
    assert_eq!(
        longest(&known, &[module("y"), module("z")].concat()),
        Some(&module("y"))
    );
}
