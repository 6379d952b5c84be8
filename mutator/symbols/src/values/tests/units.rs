//! All forms of debug information, and none.

use super::super::Item::{Argument, Return};
use super::super::{Item, Kind, Reason, Unreadable, Value, ValueRegister, Values};
use super::{Built, Is, Refused, check};
use crate::lines::Lines;
use patcher::Svma;
use patcher::function::Function;
use std::fs;
use std::process::Command;

const C: &str = r#"
#define OUT __attribute__((noipa))
struct pair { int a, b; };
OUT long f(long a, unsigned char b, struct pair p) { return a + b + p.a; }
int main(void) { struct pair p = {3, 4}; return f(-7, 200, p) == 0; }
"#;

const OF_C: &[(&str, Item, super::Expected)] = &[
    ("f", Argument(1), Is(-7)),
    ("f", Argument(2), Is(200)),
    ("f", Argument(3), Is(3 + (4 << 32))),
    ("f", Argument(4), Refused("`f` has 3 arguments")),
    ("f", Return, Is(196)),
];

/// The value that is read without debug information.
fn undescribed(item: Item) -> Value {
    let place = match item {
        Argument(n) => ValueRegister::Integer(n - 1),
        Return => ValueRegister::Integer(0),
    };
    Value {
        place,
        width: 8,
        kind: Kind::Signed,
        name: None,
        type_name: None,
    }
}

/// The result for each value of a function.
fn read(built: &Built, name: &str) -> Vec<(Item, Result<Value, Unreadable>)> {
    let signature = built.signatures(&built.functions(&[name])).remove(0);
    Item::all()
        .map(|item| (item, signature.read(item)))
        .collect()
}

fn refused(built: &Built, name: &str, reason: &Reason) {
    for (item, read) in read(built, name) {
        assert_eq!(read.unwrap_err().reason, *reason, "{item} of {name}");
    }
}

fn is_undescribed(built: &Built, name: &str) {
    for (item, read) in read(built, name) {
        assert_eq!(read, Ok(undescribed(item)), "{item} of {name}");
    }
}

#[test]
fn names_and_types_are_those_of_the_source() {
    const SOURCE: &str = "typedef unsigned size; struct box { long v; }; enum e { A };
        __attribute__((noipa)) const char *f(const char *const *a, size b, struct box c, volatile enum e d,
            int (*g)(void)) { return a[b + c.v + d]; }
        int main(int argc, char **argv) { return f((const char **)argv, 0, (struct box){0}, A, 0) == 0; }";
    let built = Built::new("names", "c", SOURCE, &["-O2"]);
    let read: Vec<_> = read(&built, "f")
        .into_iter()
        .filter_map(|(_, value)| value.ok())
        .map(|value| (value.name.unwrap_or_default(), value.type_name.unwrap()))
        .collect();
    let expected = [
        ("a", "const char * const *"),
        ("b", "size"),
        ("c", "struct box"),
        ("d", "volatile enum e"),
        ("g", "function *"),
        ("", "const char *"),
    ];
    assert_eq!(
        read,
        expected.map(|(name, of)| (name.to_owned(), of.to_owned()))
    );
}

#[test]
fn arguments_that_get_other_values_at_once_are_what_was_passed() {
    const SOURCE: &str = "#define OUT __attribute__((noipa))
        OUT int use(int a, int b) { return a * 2 + b; }
        OUT int f(int a, int b) { a = b; return use(a, b); }
        OUT int g(int a, int b) { int c = a; a = b; b = c; return use(a, b); }
        OUT long h(long a, long b) { a = a > b ? b : a; return use(a, b); }
        OUT double k(double a, double b) { a = b; return use(a, b); }
        int main(void) { return f(-3, 4) + g(-5, 6) + h(-7, 8) + k(-9.5, 10.5); }";
    for flags in [["-O2", "-gdwarf-4"], ["-O2", "-gdwarf-5"]] {
        let built = Built::new(&format!("at-once{}", flags[1]), "c", SOURCE, &flags);
        check(
            &built,
            &[
                ("f", Argument(1), Is(-3)),
                ("f", Argument(2), Is(4)),
                ("g", Argument(1), Is(-5)),
                ("g", Argument(2), Is(6)),
                ("h", Argument(1), Is(-7)),
                ("h", Argument(2), Is(8)),
                ("k", Argument(1), super::Float(-9.5)),
                ("k", Argument(2), super::Float(10.5)),
            ],
        );
    }
}

#[test]
fn a_list_of_arguments_is_a_pointer() {
    const SOURCE: &str = "#include <stdarg.h>
        __attribute__((noipa)) int f(int a, va_list b, int c) { return a + va_arg(b, int) + c; }
        __attribute__((noipa)) int g(int a, ...) { va_list b; va_start(b, a); int c = f(a, b, 7); va_end(b); return c; }
        int main(void) { return g(-3, 4); }";
    let built = Built::new("list", "c", SOURCE, &["-O2", "-gdwarf64"]);
    check(
        &built,
        &[
            ("f", Argument(1), Is(-3)),
            ("f", Argument(2), super::Address),
            ("f", Argument(3), Is(7)),
            ("f", Return, Is(8)),
        ],
    );
}

#[test]
fn separate_and_compressed_debug_information_gives_the_same() {
    let built = Built::new("separate", "c", C, &["-O2", "-Wl,--build-id=0xab12cd"]);
    check(&built, OF_C);
    built.tool("objcopy", &["--compress-debug-sections=zlib", "app"]);
    check(&built, OF_C);
    built.tool("objcopy", &["--only-keep-debug", "app", "app.debug"]);
    built.tool("strip", &["--strip-debug", "app"]);
    is_undescribed(&built, "f");
    built.tool("mkdir", &["-p", "debug/.build-id/ab"]);
    built.tool("mv", &["app.debug", "debug/.build-id/ab/12cd.debug"]);
    check(&built, OF_C);
}

#[test]
fn without_types_the_integer_registers_are_read() {
    let assembly = ".globl main, f\n.type main, @function\n.type f, @function\n.text\n\
                    main: call f\n xor %eax, %eax\n ret\n.size main, .-main\nf: ret\n.size f, .-f\n\
                    .section .note.GNU-stack,\"\",@progbits\n";
    for (name, ending, source, flags) in [
        ("none", "c", C, &["-O2", "-g0"][..]),
        ("g1", "c", C, &["-O2", "-g1"]),
        ("g1cc", "cc", C, &["-O2", "-g1", "-fpermissive"]),
        ("assembly", "S", assembly, &["-O2"]),
    ] {
        let built = Built::new(name, ending, source, flags);
        is_undescribed(
            &built,
            if ending == "cc" {
                "f(long, unsigned char, pair)"
            } else {
                "f"
            },
        );
    }
}

#[test]
fn a_function_with_neither_types_nor_psabi_is_refused() {
    const SOURCE: &str = "#[inline(never)] fn work(a: u64) -> u64 { std::hint::black_box(a) }
        fn main() { work(3); }";
    let rust = Reason::Language("Rust".to_owned());
    for (name, flags) in [
        ("bare", &["-O"][..]),
        ("rust-lines", &["-O", "-Cdebuginfo=line-tables-only"]),
    ] {
        let built = Built::new(name, "rs", SOURCE, flags);
        refused(&built, "app::work", &rust);
    }
}

#[test]
fn functions_of_go_are_refused() {
    const SOURCE: &str = "package main\nimport \"os\"\n//go:noinline\n\
        func work(a int, b string) int { return a + len(b) }\n\
        func main() { os.Exit(work(len(os.Args), \"\")) }\n";
    let built = Built::new("go", "go", SOURCE, &[]);
    refused(&built, "main.work", &Reason::Language("Go".to_owned()));
    built.tool("objcopy", &["--strip-debug", "app"]);
    let unknown = Reason::Language("part of a Go program".to_owned());
    refused(&built, "main.work", &unknown);
}

#[test]
fn another_language_is_refused_by_its_name() {
    let built = assembled("language", C, |line| {
        let number = line.strip_suffix("# DW_AT_language")?.trim();
        assert!(number.starts_with(".byte"), "{line}");
        Some("\t.byte\t0x13".to_owned())
    });
    refused(&built, "f", &Reason::Language("D".to_owned()));
    let error = read(&built, "f").remove(0).1.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`f` is D, which has its own calling convention"
    );
}

#[test]
fn functions_that_do_not_follow_the_convention_are_refused() {
    const SOURCE: &str = "__attribute__((ms_abi, noipa)) int ms(int a, double b) { return a + b; }
        static __attribute__((noinline)) int part(int *a, int unused, int b) { __asm__(\"\"); return *a + b; }
        int main(int argc, char **argv) { int n = 3; (void)argv;
            return ms(argc, 2) + part(&n, 4, argc) + part(&argc, 5, n); }";
    for flags in [&["-O2"], &["-O0"]] {
        let built = Built::new(&format!("ms{}", flags[0]), "c", SOURCE, flags);
        // It is in rcx. Without optimization, it is also in memory that the caller reserved for it.
        refused(&built, "ms", &Reason::Elsewhere("a".to_owned()));
    }
    let built = Built::new("clone", "c", SOURCE, &["-O2"]);
    refused(
        &built,
        "part.constprop.0",
        &Reason::Clone("constprop.0".to_owned()),
    );
    let error = read(&built, "part.constprop.0").remove(0).1.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`part.constprop.0` is a clone (`.constprop.0`), whose arguments do not follow its source"
    );
    // LLVM does not rename functions whose arguments it removes.
    const RUST: &str =
        "#[inline(never)] fn work(unused: u64, a: &u64) -> u64 { std::hint::black_box(*a) }
        fn main() { let n = std::env::args().count() as u64; work(3, &n); work(4, &(n + 1)); }";
    let built = Built::new("nocall", "rs", RUST, &["-g", "-Copt-level=3"]);
    const DW_CC_NOCALL: u8 = 3;
    refused(&built, "app::work", &Reason::Convention(DW_CC_NOCALL));
}

#[test]
fn a_float_without_a_prototype_is_refused() {
    const SOURCE: &str =
        "__attribute__((noipa)) int f(a, b, c) float a; double b; short c; { return a + b + c; }
        int main() { return f(1.5, 2.5, -3); }";
    let built = Built::new("old", "c", SOURCE, &["-O2"]);
    check(
        &built,
        &[
            (
                "f",
                Argument(1),
                Refused(
                    "argument 1 of `f`, `float a`, is declared without a prototype and passed as a double",
                ),
            ),
            ("f", Argument(2), super::Float(2.5)),
            ("f", Argument(3), Is(-3)),
            ("f", Return, Is(1)),
        ],
    );
}

#[test]
fn a_part_of_a_function_has_no_arguments() {
    const SOURCE: &str = "#include <stdlib.h>
        __attribute__((noipa)) int f(int a) { if (__builtin_expect(a == 77, 0)) abort(); return a; }
        int main(int argc, char **argv) { (void)argv; return f(argc) == 0; }";
    let built = Built::new("cold", "c", SOURCE, &["-O2"]);
    let whole = built.functions(&["f"]).remove(0);
    let cold = whole.cold[0].clone();
    let of = |linkage: &str| Function {
        linkage: linkage.to_owned(),
        ..Function::nameless(cold.clone())
    };
    let signatures = built.signatures(&[whole.clone(), of(""), of("g"), of("f.cold")]);
    assert!(signatures[0].read(Argument(1)).is_ok());
    let reason = |n: usize| signatures[n].read(Argument(1)).unwrap_err().reason;
    assert_eq!(reason(1), Reason::Part);
    assert_eq!(reason(2), Reason::Part);
    assert_eq!(reason(3), Reason::Part);
    let nameless = Function::nameless(whole.range.clone());
    let read = built.signatures(&[nameless])[0].read(Return);
    assert_eq!(read.unwrap_err().reason, Reason::NoSymbol);
}

#[test]
fn split_debug_information_is_refused() {
    for flags in [
        &["-O2", "-gsplit-dwarf", "-gdwarf-5"],
        &["-O2", "-gsplit-dwarf", "-gdwarf-4"],
    ] {
        let built = Built::new(&format!("split{}", flags[2]), "c", C, flags);
        refused(&built, "f", &Reason::Split);
    }
}

/// Compiles C to assembly, changes some lines, and assembles the result.
fn assembled(name: &str, source: &str, change: impl Fn(&str) -> Option<String>) -> Built {
    let built = Built::new(name, "c", source, &["-O2", "-gdwarf-4"]);
    built.tool(
        "gcc",
        &[
            "-S",
            "-dA",
            "-g",
            "-gdwarf-4",
            "-O2",
            "-o",
            "app.s",
            "app.c",
        ],
    );
    let text = fs::read_to_string(built.dir.join("app.s")).unwrap();
    let lines = text
        .lines()
        .map(|line| change(line).unwrap_or_else(|| line.to_owned()));
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    fs::write(built.dir.join("app.s"), text).unwrap();
    built.tool("gcc", &["-no-pie", "-o", "app", "app.s"]);
    built
}

#[test]
fn types_are_found_in_the_supplement_of_dwz() {
    // dwz replaces references within the file by references to another file, DW_FORM_GNU_ref_alt.
    let shared = Built::new(
        "supplement",
        "c",
        "int a; int main(void) { return a; }",
        &["-Wl,--build-id=0xab12cd"],
    );
    let listed = Command::new("readelf")
        .arg("--debug-dump=info")
        .arg(&shared.program)
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // <1><2e>: Abbrev Number: 1 (DW_TAG_base_type)
    let of_int = listed
        .lines()
        .find(|line| line.contains("DW_TAG_base_type"))
        .unwrap();
    let at = of_int.split(['<', '>']).nth(3).unwrap();
    let source = "__attribute__((noipa)) int f(int a, int b) { return a - b; }
        int main(void) { return f(-3, 7) + 10; }
        __asm__(\".section .gnu_debugaltlink,\\\"\\\"; .asciz \\\"shared\\\"; .byte 0xab, 0x12, 0xcd; .text\");";
    let state = std::cell::Cell::new((false, false));
    let built = assembled("dwz", source, |line| {
        let (in_parameter, at_form) = state.get();
        let in_parameter = if line.contains("DW_TAG_") {
            line.contains("DW_TAG_formal_parameter")
        } else {
            in_parameter
        };
        state.set((in_parameter, in_parameter && line.contains("(DW_AT_type)")));
        if at_form {
            assert!(line.contains("DW_FORM_ref4"), "{line}");
            return Some("\t.uleb128 0x1f20".to_owned());
        }
        (in_parameter && line.ends_with("# DW_AT_type")).then(|| format!("\t.long 0x{at}"))
    });
    refused_argument(&built, &Reason::Supplement);
    fs::copy(&shared.program, built.dir.join("shared")).unwrap();
    check(
        &built,
        &[
            ("f", Argument(1), Is(-3)),
            ("f", Argument(2), Is(7)),
            ("f", Return, Is(-10)),
        ],
    );
    let value = read(&built, "f").remove(0).1.unwrap();
    assert_eq!(
        (value.name.as_deref(), value.type_name.as_deref()),
        (Some("a"), Some("int"))
    );
}

fn refused_argument(built: &Built, reason: &Reason) {
    let read = read(built, "f").remove(0).1;
    assert_eq!(read.unwrap_err().reason, *reason);
}

#[test]
fn damaged_debug_information_does_no_harm() {
    for flags in [&["-O2", "-gdwarf-4"], &["-O0", "-gdwarf-5"]] {
        let built = Built::new(&format!("damaged{}", flags[1]), "c", C, flags);
        let data = fs::read(&built.program).unwrap();
        let functions = built.functions(&["f", "main"]);
        // Steps of a prime number reach all sections.
        for step in 0..data.len() / 13 {
            let mut damaged = data.clone();
            damaged[step * 13] ^= 1 << (step % 8);
            let lines = Lines::load(&damaged, &built.places());
            let values = Values::new(&damaged, lines.as_ref());
            for function in &functions {
                let signature = values.of(function);
                for item in Item::all() {
                    // Every answer is words in one line.
                    let text = signature
                        .read(item)
                        .map_or_else(|e| e.to_string(), |_| String::new());
                    assert!(!text.contains('\n'), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_function_that_the_debug_information_does_not_know_has_integer_registers() {
    let built = Built::new("unknown", "c", C, &["-O2"]);
    let data = fs::read(&built.program).unwrap();
    let lines = Lines::load(&data, &built.places());
    let values = Values::new(&data, lines.as_ref());
    let start = built.functions(&["_start"]).remove(0);
    let other = Function::nameless(Svma(0x10)..Svma(0x20));
    for function in [start, other] {
        let signature = values.of(&function);
        for item in Item::all() {
            assert_eq!(signature.read(item), Ok(undescribed(item)));
        }
    }
    assert!(matches!(
        read(&built, "main")[0].1.clone().unwrap_err().reason,
        Reason::NoSuchArgument(0)
    ));
}
