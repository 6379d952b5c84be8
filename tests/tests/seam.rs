//! Processor-specific code is in folders named `arch`: names of registers, assembly, and code as
//! bytes. A port only adds to these folders.
//!
//! All other files of the runtime and the command are the same for every processor.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprArray, ExprLit, Item, Lit, Macro, Pat, PatSlice, Token};

/// A field of the kernel's `struct perf_event_mmap_page`, which every processor has, and a file of
/// the driver of counters.
const KERNELS: [&str; 2] = ["cap_user_rdpmc", "devices/cpu/rdpmc"];

/// Files with bytes that are not code: the encodings of addresses in an index of unwind tables (LSB
/// 10.6).
const FORMATS: [&str; 1] = ["mutator/target/src/process/unread.rs"];

/// Folders of the runtime's crates.
const CRATES: [&str; 3] = ["rtlib/src", "rtlib/abi/src", "rtlib/unwind/src"];

/// Folders of the command's crates.
const COMMAND: [&str; 8] = [
    "mutator/base/src",
    "mutator/profile/src",
    "mutator/sampling/src",
    "mutator/session/src",
    "mutator/src",
    "mutator/symbols/src",
    "mutator/target/src",
    "mutator/view/src",
];

/// Instructions that compiled code uses only through functions, or not at all.
const INSTRUCTIONS: [&str; 9] = [
    "rdtsc",
    "rdtscp",
    "rdpmc",
    "rdfsbase",
    "wrfsbase",
    "lfence",
    "cpuid",
    "cmpxchg",
    "prefetchw",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below these folders that are outside `arch`, with their text.
fn files_below(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|c| root().join(c)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("can be read").path();
            if path.is_dir() {
                folders.extend((!path.ends_with("arch")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    found
}

/// The text of a file without its tests, and the paths of its test modules. The command's tests
/// work on real code, which needs registers and bytes.
fn without_tests(path: &Path, text: &str) -> (String, Vec<PathBuf>) {
    let is_root = path.ends_with("lib.rs") || path.ends_with("main.rs");
    let folder = if is_root {
        path.parent().expect("a folder").to_owned()
    } else {
        path.with_extension("")
    };
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let item = lines.next().unwrap_or_default();
        let module = item
            .split_once("mod ")
            .and_then(|(_, rest)| rest.strip_suffix(';'));
        if let Some(module) = module {
            modules.push(folder.join(module));
        } else if item.ends_with('{') {
            // Skip to the end of the item.
            let _ = lines.find(|line| *line == "}");
        }
    }
    (kept, modules)
}

/// The files of the command without tests.
fn files_of_command() -> Vec<(PathBuf, String)> {
    let all = files_below(&COMMAND);
    let (mut found, mut tests) = (Vec::new(), BTreeSet::new());
    for (path, text) in all {
        let (kept, modules) = without_tests(&path, &text);
        tests.extend(modules);
        found.push((path, kept));
    }
    found.retain(|(path, _)| {
        let path = path.with_extension("");
        !path.ancestors().any(|above| tests.contains(above))
    });
    assert!(found.len() > 200, "the command has files");
    found
}

/// The files of the runtime outside `arch`, and those of the command, with their text.
fn files() -> Vec<(PathBuf, String)> {
    let mut found = files_below(&CRATES);
    assert!(found.len() > 50, "the runtime has files");
    found.extend(files_of_command());
    found
}

/// True for the name of a register of x86-64, in either case.
fn is_register(word: &str) -> bool {
    const LEGACY: [&str; 9] = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip"];
    let word = word.to_ascii_lowercase();
    let rest = word.strip_prefix(['r', 'e']).unwrap_or("");
    let number = rest.trim_end_matches(['b', 'd', 'w']).parse::<u8>();
    let vector = word
        .strip_prefix(['x', 'y', 'z'])
        .and_then(|w| w.strip_prefix("mm"));
    LEGACY.contains(&rest)
        || word.starts_with('r') && number.is_ok_and(|number| (8..16).contains(&number))
        || vector.is_some_and(|number| number.is_empty() || number.parse::<u8>().is_ok())
        || ["rflags", "eflags"].contains(&word.as_str())
}

/// The words that are allowed in a processor's folder only.
fn foreign_words(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|w| is_register(w) || INSTRUCTIONS.contains(w))
        .collect()
}

#[test]
fn registers_and_instructions_are_named_in_their_folder() {
    let mut places = Vec::new();
    for (path, text) in files() {
        for (number, line) in (1..).zip(text.lines()) {
            let line = KERNELS
                .iter()
                .fold(line.to_owned(), |line, name| line.replace(name, ""));
            let found = foreign_words(&line);
            if !found.is_empty() {
                places.push(format!("{}:{number}: {found:?}", path.display()));
            }
        }
    }
    assert!(places.is_empty(), "{}", places.join("\n"));
}

#[test]
fn assembly_stands_in_its_folder() {
    for (path, text) in files() {
        for word in [
            "asm!",
            "core::arch",
            "std::arch",
            "framehop::x86_64",
            "unsafe(naked)",
            "user_regs_struct",
        ] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}

/// Finds arrays and patterns that look like code: at least two bytes in hexadecimal.
struct Bytes(usize);

impl Bytes {
    fn count<'a>(&mut self, elements: impl Iterator<Item = &'a Lit>) {
        let is_byte = |lit: &&Lit| matches!(lit, Lit::Int(int) if int.to_string().starts_with("0x") && int.base10_parse::<u8>().is_ok());
        self.0 += usize::from(elements.filter(is_byte).count() > 1);
    }
}

impl<'a> Visit<'a> for Bytes {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_array(&mut self, array: &'a ExprArray) {
        self.count(array.elems.iter().filter_map(|element| match element {
            Expr::Lit(ExprLit { lit, .. }) => Some(lit),
            _ => None,
        }));
        visit::visit_expr_array(self, array);
    }

    fn visit_pat_slice(&mut self, slice: &'a PatSlice) {
        self.count(slice.elems.iter().filter_map(|element| match element {
            Pat::Lit(ExprLit { lit, .. }) => Some(lit),
            _ => None,
        }));
        visit::visit_pat_slice(self, slice);
    }

    /// Visits macros whose arguments are expressions, and `matches!`.
    fn visit_macro(&mut self, called: &'a Macro) {
        let parsed = called.parse_body_with(|input: syn::parse::ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<Token![,]>()?;
            let pattern = Pat::parse_multi(input)?;
            input.parse::<proc_rest::Rest>()?;
            Ok((value, pattern))
        });
        if let Ok((_, pattern)) = parsed {
            let mut inner = Bytes(0);
            inner.visit_pat(&pattern);
            self.0 += inner.0;
        }
    }
}

mod proc_rest {
    //! The rest of a macro's arguments.

    use syn::parse::{Parse, ParseStream, Result};

    /// Accepts any remaining tokens.
    pub struct Rest;

    impl Parse for Rest {
        fn parse(input: ParseStream<'_>) -> Result<Self> {
            input.step(|cursor| {
                let mut rest = *cursor;
                while let Some((_, next)) = rest.token_tree() {
                    rest = next;
                }
                Ok((Self, rest))
            })
        }
    }
}

/// True for a module with `#[cfg(test)]`.
fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(module) => &module.attrs,
        _ => &[],
    };
    let is_test = |a: &Attribute| {
        a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|i| i == "test")
    };
    attributes.iter().any(is_test)
}

/// The number of arrays and patterns in a file's text that look like code.
fn bytes_in(text: &str) -> usize {
    let mut found = Bytes(0);
    found.visit_file(&syn::parse_file(text).expect("Rust"));
    found.0
}

#[test]
fn code_as_bytes_stands_in_its_folder() {
    for (path, text) in files() {
        // Tests contain hand-written unwind tables.
        let is_format = FORMATS.iter().any(|format| path.ends_with(format));
        if !path.ends_with("tests.rs") && !is_format {
            assert_eq!(bytes_in(&text), 0, "{}", path.display());
        }
    }
}

/// The checks can fail.
#[test]
fn what_belongs_to_a_processor_is_found() {
    let registers = ["rax", "RBP", "esi", "r9", "r15d", "xmm", "zmm31", "rflags"];
    assert!(registers.into_iter().all(is_register));
    let others = ["r", "r7", "r16", "rd", "mmx", "sp", "fp", "resp", "summ"];
    assert!(!others.into_iter().any(is_register));
    assert_eq!(foreign_words("entry_rbp of `rdtsc`"), ["rbp", "rdtsc"]);
    let codes = [
        "const CALL: [u8; 2] = [0xff, 0xd0];",
        "fn f(b: [u8; 8]) -> bool { matches!(b, [0xb8, _, 0xff, ..] | []) }",
        "fn f(b: &[u8]) { if let [0x0f, 0x05] = b {} }",
    ];
    assert_eq!(codes.map(bytes_in), [1; 3]);
    let others = [
        "const MASKS: [u64; 2] = [0xff00, 0xff];",
        "fn f(b: u8) -> bool { matches!(b, 0x0f | 0x16) }",
        "#[cfg(test)] mod tests { const CALL: [u8; 2] = [0xff, 0xd0]; }",
    ];
    assert_eq!(others.map(bytes_in), [0; 3]);
}

#[test]
fn tests_of_the_command_are_left_out() {
    let text =
        "fn f() {}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    g\n}\nfn h() {}\n";
    let kept = (
        "fn f() {}\nfn h() {}\n".to_owned(),
        vec!["a/b/tests".into()],
    );
    assert_eq!(without_tests(Path::new("a/b.rs"), text), kept);
    let (_, modules) = without_tests(Path::new("a/lib.rs"), text);
    assert_eq!(modules, [PathBuf::from("a/tests")]);
}

/// At least nine in ten lines of assembly have a comment about their purpose.
#[test]
fn assembly_carries_its_intent() {
    let script = root().join("tests/assembly.py");
    let mut command = Command::new("python3");
    let ran = command
        .arg(script)
        .args(["--least", "90", "--missing"])
        .output();
    let ran = ran.expect("python3 runs");
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Compiles the runtime's crates to metadata with these options. Returns the compiler's messages.
fn compiled(options: &[&str], image: bool) -> String {
    let folder = tempfolder(options, image);
    let mut said = String::new();
    for (krate, path, others) in [
        ("abi", "rtlib/abi/src/lib.rs", &[][..]),
        ("unwind", "rtlib/unwind/src/lib.rs", &["abi"][..]),
        ("rtlib", "rtlib/src/lib.rs", &["abi", "unwind"][..]),
    ] {
        let mut rustc = Command::new("rustc");
        rustc.arg(root().join(path)).args(["--crate-name", krate]);
        rustc.args([
            "--crate-type",
            "rlib",
            "--emit",
            "metadata",
            "--edition",
            "2024",
        ]);
        rustc.args(["--deny", "warnings"]).args(options);
        rustc.arg("--out-dir").arg(&folder).arg("-L").arg(&folder);
        for other in others {
            // By its path, because the standard library also has a crate named `unwind`.
            let library = folder.join(format!("lib{other}.rmeta"));
            rustc.args(["--extern", &format!("{other}={}", library.display())]);
        }
        if image {
            rustc.args(["--cfg", "ipath_image"]);
        }
        let ran = rustc.output().expect("rustc runs");
        said += &String::from_utf8_lossy(&ran.stderr);
        if !ran.status.success() {
            said += &format!("{krate}: {}", ran.status);
        }
    }
    fs::remove_dir_all(folder).expect("ours");
    said
}

/// A new folder below the folder for temporary files.
fn tempfolder(options: &[&str], image: bool) -> PathBuf {
    let name = format!("seam-{}-{image}-{}", std::process::id(), options.join(""));
    let folder = std::env::temp_dir().join(name.replace(' ', "-"));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// True if the core library of a target is installed.
fn is_installed(target: &str) -> bool {
    let ran = Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = String::from_utf8_lossy(&ran.expect("rustc runs").stdout).into_owned();
    let libraries = Path::new(root.trim()).join("lib/rustlib").join(target);
    libraries.join("lib").is_dir()
}

#[test]
fn the_runtime_compiles_without_a_port() {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    for image in [false, true] {
        assert_eq!(compiled(&["--cfg", "ipath_unported"], image), "");
        if is_installed(TARGET) {
            assert_eq!(compiled(&["--target", TARGET], image), "");
        }
    }
}

/// The page about porting names each file of a processor's folders.
#[test]
fn porting_names_every_file() {
    let page = fs::read_to_string(root().join("docs/internals/porting.md")).expect("the page");
    let crates = CRATES.iter().chain(&COMMAND);
    let mut folders: Vec<PathBuf> = crates
        .map(|c| root().join(c).join("arch/x86_64"))
        // A small module is a single file.
        .filter(|folder| folder.is_dir())
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("can be read").path();
            let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
            let is_folder = path.is_dir();
            let quoted = if is_folder {
                format!("`{name}/`")
            } else {
                format!("`{name}`")
            };
            let has_folder = !is_folder && path.with_extension("").is_dir();
            assert!(has_folder || page.contains(&quoted), "{name}");
            folders.extend(is_folder.then_some(path));
        }
    }
}
