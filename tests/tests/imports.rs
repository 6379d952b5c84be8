//! Imports between modules. Layers of the runtime and of the patcher import only from lower ones,
//! and no module imports from itself through others.
//!
//! A re-export (`pub use`) is not an import. A module that uses the re-exported name imports from
//! the module that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ForeignItem, Ident, Item, ItemUse, Macro, Meta, Token, UseTree, Visibility,
};

/// The runtime's layers, from the lowest to the highest (docs/internals/architecture.md).
const RUNTIME: [&str; 9] = [
    "arch", "os", "sources", "code", "walk", "ledger", "calls", "thread", "probe",
];
/// Entry points from the program, in the folder of a processor. Their layer is above the others.
const ENTRY_POINTS: [&str; 3] = ["quick", "stubs", "trap"];
/// The patcher's layers, from the lowest to the highest.
const PATCHER: [&str; 12] = [
    "addr", "isa", "oracle", "elf", "tables", "function", "image", "flow", "inside", "select",
    "plan", "emit",
];

/// The path of a module from the crate's root.
type Module = Vec<String>;

/// The modules that each module of a crate names.
struct Imports(BTreeMap<Module, BTreeSet<Module>>);

impl Imports {
    /// The imports of the crate whose sources are in this folder of the repository.
    fn of(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder);
        let mut files = BTreeMap::new();
        collect(&root, &mut Vec::new(), &mut files);
        let named = |(module, text): (&Module, &String)| {
            let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{module:?}: {e}"));
            (
                module.clone(),
                Names::of(module, |names| names.visit_file(&file)),
            )
        };
        let modules: BTreeMap<Module, Names> = files.iter().map(named).collect();
        let others = |(module, names): (&Module, &Names)| {
            let found = names.found.iter();
            let by_path = found.filter_map(|path| defined_in(&modules, path));
            let others = by_path.chain(by_symbol(&modules, names));
            (module.clone(), others.filter(|m| m != module).collect())
        };
        let imports: BTreeMap<Module, BTreeSet<Module>> = modules.iter().map(others).collect();
        assert!(imports.len() > 5, "{folder} has modules");
        Self(imports)
    }

    /// The import cycles: sets of modules that reach each other.
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

    /// All modules that a module imports, directly or indirectly.
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

/// The module that defines the item of a path. That is the longest prefix of the path that is a
/// module, or the module from which that prefix re-exports the item. `None` for items of other
/// crates.
fn defined_in(modules: &BTreeMap<Module, Names>, path: &[String]) -> Option<Module> {
    let mut beginnings = (1..=path.len()).rev();
    let len = beginnings.find(|&len| modules.contains_key(&path[..len]))?;
    let (module, rest) = path.split_at(len);
    let from = rest.first().and_then(|n| modules[module].handed_on.get(n));
    match from {
        Some(from) => defined_in(modules, from),
        None => Some(module.to_vec()),
    }
}

/// The modules that define the symbols that a module declares in `extern` blocks.
fn by_symbol(modules: &BTreeMap<Module, Names>, names: &Names) -> Vec<Module> {
    let defines = |(_, other): &(&Module, &Names)| !other.defined.is_disjoint(&names.declared);
    let found = modules.iter().filter(defines);
    found.map(|(module, _)| module.clone()).collect()
}

/// Adds to `files` the text of each module with its own file, except for tests and the crate's
/// root. `at` is the module of the folder.
fn collect(folder: &Path, at: &mut Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("can be read").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        let is_folder = path.is_dir();
        let is_code = is_folder || path.extension().is_some_and(|e| e == "rs");
        if !is_code || ["tests", "lib", "main", "bin"].contains(&stem) {
            continue;
        }
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

/// The paths that a file names, from the crate's root.
struct Names {
    module: Module,
    found: Vec<Vec<String>>,
    /// Re-exported names, with the paths of their definitions.
    handed_on: BTreeMap<String, Vec<String>>,
    /// Symbols that it declares in `extern` blocks.
    declared: BTreeSet<String>,
    /// Symbols that it defines with `no_mangle`.
    defined: BTreeSet<String>,
}

impl Names {
    /// The names that visiting a module finds.
    fn of(module: &Module, visit: impl FnOnce(&mut Self)) -> Self {
        let mut names = Self {
            module: module.clone(),
            found: Vec::new(),
            handed_on: BTreeMap::new(),
            declared: BTreeSet::new(),
            defined: BTreeSet::new(),
        };
        visit(&mut names);
        names
    }

    /// The path from the crate's root, of a path that may lead to another module or to a child of
    /// this one.
    fn whole(&self, path: &[String]) -> Vec<String> {
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
        at
    }

    /// The paths in a tree of imports, each with its name in this module; no name for a glob.
    fn paths(before: &[String], tree: &UseTree) -> Vec<(Vec<String>, Option<String>)> {
        let with = |name: &Ident| [before, &[name.to_string()]].concat();
        let ending = |name: &Ident| {
            if name == "self" {
                before.to_vec()
            } else {
                with(name)
            }
        };
        match tree {
            UseTree::Path(path) => Self::paths(&with(&path.ident), &path.tree),
            UseTree::Group(group) => {
                let trees = group.items.iter();
                trees.flat_map(|tree| Self::paths(before, tree)).collect()
            }
            UseTree::Name(name) => vec![(ending(&name.ident), Some(name.ident.to_string()))],
            UseTree::Rename(name) => vec![(ending(&name.ident), Some(name.rename.to_string()))],
            UseTree::Glob(_) => vec![(before.to_vec(), None)],
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item(&mut self, item: &'a Item) {
        if is_for_tests(item) {
            return;
        }
        let exported = match item {
            Item::Fn(function) => is_exported(&function.attrs).then_some(&function.sig.ident),
            Item::Static(variable) => is_exported(&variable.attrs).then_some(&variable.ident),
            _ => None,
        };
        self.defined.extend(exported.map(Ident::to_string));
        visit::visit_item(self, item);
    }

    fn visit_foreign_item(&mut self, item: &'a ForeignItem) {
        let name = match item {
            ForeignItem::Fn(function) => &function.sig.ident,
            ForeignItem::Static(variable) => &variable.ident,
            _ => return,
        };
        self.declared.insert(name.to_string());
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let is_own = matches!(item.vis, Visibility::Inherited);
        for (path, name) in Self::paths(&[], &item.tree) {
            let path = self.whole(&path);
            match name.filter(|_| !is_own) {
                Some(name) => drop(self.handed_on.insert(name, path)),
                None => self.found.push(path),
            }
        }
    }

    /// Visits the arguments of macros that take expressions, and macros that define stubs.
    fn visit_macro(&mut self, called: &'a Macro) {
        self.defined.extend(stub_of(called));
        let arguments = called.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for argument in arguments.into_iter().flatten() {
            let inner = Self::of(&self.module, |names| names.visit_expr(&argument));
            self.found.extend(inner.found);
        }
        visit::visit_macro(self, called);
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string());
        let path_here = self.whole(&segments.collect::<Vec<_>>());
        self.found.push(path_here);
        visit::visit_path(self, path);
    }
}

/// True with `#[unsafe(no_mangle)]`.
fn is_exported(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("unsafe") && list.tokens.to_string() == "no_mangle"
    })
}

/// The symbol of a stub that a macro defines: the first matching name among its arguments. `None`
/// if it defines no stub.
fn stub_of(called: &Macro) -> Option<String> {
    let name = called.path.segments.last()?.ident.to_string();
    let tokens = called.tokens.to_string();
    let mut words = tokens.split(|c: char| c != '_' && !c.is_alphanumeric());
    let symbol = words.find(|word| word.starts_with("ipath_") && word.ends_with("_stub"))?;
    name.ends_with("_stub").then(|| symbol.to_owned())
}

/// True if the item has `#[cfg(test)]`.
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

/// Checks that each module of the crate imports from its own layer and from lower ones only.
fn check_layers(imports: &Imports, layers: &[&str]) {
    let layer = |module: &Module| {
        if is_entry_point(module) {
            return layers.len();
        }
        let name = module.first().expect("a layer").as_str();
        let place = layers.iter().position(|l| *l == name);
        place.unwrap_or_else(|| panic!("{name} is no layer"))
    };
    for (module, others) in &imports.0 {
        for other in others {
            let (from, to) = (module.join("::"), other.join("::"));
            assert!(layer(other) <= layer(module), "{from} imports from {to}");
        }
    }
}

/// True for `arch::PROCESSOR::stubs` and similar modules.
fn is_entry_point(module: &Module) -> bool {
    let name = module.get(2).map(String::as_str);
    module[0] == "arch" && name.is_some_and(|name| ENTRY_POINTS.contains(&name))
}

/// Checks that a module imports from these layers, which shows that imports are found.
fn check_seen(imports: &Imports, module: [&str; 2], layers: &[&str]) {
    let others = &imports.0[&module.map(str::to_owned).to_vec()];
    for layer in layers {
        assert!(others.iter().any(|o| o[0] == *layer), "{layer}");
    }
}

#[test]
fn the_runtimes_layers_import_from_lower_ones_only() {
    let imports = Imports::of("rtlib/src");
    check_layers(&imports, &RUNTIME);
    check_seen(&imports, ["probe", "entry"], &["calls", "thread", "walk"]);
}

#[test]
fn the_patchers_layers_import_from_lower_ones_only() {
    let imports = Imports::of("patcher/src");
    check_layers(&imports, &PATCHER);
    check_seen(&imports, ["plan", "check"], &["flow", "image", "isa"]);
}

#[test]
fn no_module_of_the_runtime_imports_in_a_circle() {
    for folder in ["rtlib/src", "rtlib/unwind/src", "rtlib/abi/src"] {
        assert_eq!(Imports::of(folder).circles(), BTreeSet::new(), "{folder}");
    }
}

#[test]
fn no_module_of_the_command_imports_in_a_circle() {
    // Cargo does not allow cycles between crates.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = fs::read_dir(root.join("mutator"))
        .expect("a folder of crates")
        .map(|entry| {
            let path = entry.expect("can be read").path();
            let name = path.file_name().and_then(|n| n.to_str());
            name.expect("a name").to_owned()
        });
    let below = crates.map(|name| match name.as_str() {
        "src" => "mutator/src".to_owned(),
        name => format!("mutator/{name}/src"),
    });
    let folders: Vec<String> = below.filter(|folder| root.join(folder).is_dir()).collect();
    assert!(folders.len() > 3, "{folders:?}");
    for folder in folders {
        assert_eq!(Imports::of(&folder).circles(), BTreeSet::new(), "{folder}");
    }
}

#[test]
fn no_module_of_the_patcher_imports_in_a_circle() {
    assert_eq!(Imports::of("patcher/src").circles(), BTreeSet::new());
}

/// The checks can fail: exactly the modules on a cycle are found.
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
}

/// A re-exported name belongs to the module that defines it.
#[test]
fn definitions_are_found() {
    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    let names = |module: &str, text: &str| {
        let file = syn::parse_file(text).expect("Rust");
        let names = Names::of(&path(module), |names| names.visit_file(&file));
        (path(module), names)
    };
    let modules = BTreeMap::from([
        names("a", "pub use b::{C, d as D, inner}; use b::E; mod b;"),
        names("a::b", "use super::F;"),
        names("a::inner", r#"fn g() { h!("{}", super::b::C(1)) }"#),
    ]);
    let defined = |text| defined_in(&modules, &path(text)).map(|m| m.join("::"));
    let expected = [
        ("a::C", Some("a::b")),
        ("a::D::new", Some("a::b")),
        ("a::E", Some("a")),
        ("a::inner::G", Some("a::inner")),
        ("a::b::C", Some("a::b")),
        ("std::fmt", None),
    ];
    for (text, module) in expected {
        assert_eq!(defined(text).as_deref(), module, "{text}");
    }
    assert!(modules[&path("a")].found.contains(&path("a::b::E")));
    assert!(!modules[&path("a")].found.contains(&path("a::b::C")));
    assert_eq!(modules[&path("a::b")].found, [path("a::F")]);
    assert!(modules[&path("a::inner")].found.contains(&path("a::b::C")));
}

/// A module that declares a symbol imports from the one that defines it.
#[test]
fn symbols_are_found() {
    let names = |module: &str, text: &str| {
        let module = vec![module.to_owned()];
        let file = syn::parse_file(text).expect("Rust");
        let names = Names::of(&module, |names| names.visit_file(&file));
        (module, names)
    };
    let modules = BTreeMap::from([
        names("a", "#[unsafe(no_mangle)] pub static ipath_a: u8 = 0;"),
        names("b", "entry_stub!(/** ipath_x */ ipath_b_stub, \"\", {});"),
        names(
            "c",
            r#"unsafe extern "C" { fn ipath_b_stub(); static ipath_a: u8; }"#,
        ),
        names("d", r#"unsafe extern "C" { fn memcpy(); }"#),
    ]);
    let found = |module: &str| by_symbol(&modules, &modules[&vec![module.to_owned()]]);
    assert_eq!(found("c"), [vec!["a".to_owned()], vec!["b".to_owned()]]);
    assert_eq!(found("d"), Vec::<Module>::new());
}
