//! Functions with random arguments. The values read from the registers at entry and after the
//! return must be those that the caller passed and the function returned.

use super::super::{Item, Kind, Reason};
use super::{Built, bits, gdb, mask};
use std::fmt::Write as _;

/// The way that values of a type are passed while registers are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    Number(Kind, u8),
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Memory,
    Several,
    NoNumber,
    Empty,
}

use Passed::{Number, Refused};
use Refusal::{Empty, Memory, NoNumber, Several};

/// A C type, the way it is passed, and its initializer. In the initializer, each `#` is a random
/// byte, `$` a random 16-bit number, `@` 32 bits, and `&` 64 bits.
struct Type {
    name: &'static str,
    declared: &'static str,
    passed: Passed,
    initial: &'static str,
}

const fn scalar(name: &'static str, kind: Kind, width: u8, initial: &'static str) -> Type {
    Type {
        name,
        declared: "",
        passed: Number(kind, width),
        initial,
    }
}

const fn made(
    name: &'static str,
    declared: &'static str,
    passed: Passed,
    initial: &'static str,
) -> Type {
    Type {
        name,
        declared,
        passed,
        initial,
    }
}

const TYPES: &[Type] = &[
    scalar("int", Kind::Signed, 4, "(int)@"),
    scalar("long", Kind::Signed, 8, "(long)&"),
    scalar("unsigned long", Kind::Unsigned, 8, "&"),
    scalar("signed char", Kind::Signed, 1, "(signed char)#"),
    scalar("unsigned char", Kind::Unsigned, 1, "#"),
    scalar("short", Kind::Signed, 2, "(short)$"),
    scalar("unsigned", Kind::Unsigned, 4, "@"),
    scalar("const char *", Kind::Unsigned, 8, "(const char *)&"),
    scalar("float", Kind::Float, 4, "#.5f"),
    scalar("double", Kind::Float, 8, "$.25"),
    scalar("double", Kind::Float, 8, "-@.0"),
    scalar("_Bool", Kind::Unsigned, 1, "#&1"),
    scalar("_Float16", Kind::Float, 2, "(_Float16)#.5"),
    scalar("function *", Kind::Unsigned, 8, "(function *)&"),
    made(
        "number",
        "typedef const volatile int number;",
        Number(Kind::Signed, 4),
        "(int)@",
    ),
    made(
        "enum small",
        "enum small { A = 0, B = 255 };",
        Number(Kind::Unsigned, 4),
        "#",
    ),
    made(
        "enum less",
        "enum less { C = -5, D = 255 };",
        Number(Kind::Signed, 4),
        "-5",
    ),
    made(
        "struct one",
        "struct one { char a; };",
        Number(Kind::Signed, 1),
        "{#}",
    ),
    made(
        "struct wrapped",
        "struct wrapped { struct { long a; } b[1]; };",
        Number(Kind::Signed, 8),
        "{{{&}}}",
    ),
    made(
        "struct pair",
        "struct pair { int a, b; };",
        Number(Kind::Unsigned, 8),
        "{@, @}",
    ),
    made(
        "struct mixed",
        "struct mixed { int a; float b; };",
        Number(Kind::Unsigned, 8),
        "{@, #.5f}",
    ),
    made(
        "struct four",
        "struct four { char a[4]; };",
        Number(Kind::Unsigned, 4),
        "{{#, #, #, #}}",
    ),
    made(
        "struct two",
        "struct two { unsigned char a, b; };",
        Number(Kind::Unsigned, 2),
        "{#, #}",
    ),
    made(
        "union either",
        "union either { float a; unsigned b; };",
        Number(Kind::Unsigned, 4),
        "{.b = @}",
    ),
    made(
        "struct bits",
        "struct bits { unsigned a : 3, b : 20, c : 9; };",
        Number(Kind::Unsigned, 4),
        "{#&7, $, #}",
    ),
    made(
        "struct far",
        "struct far { long a : 40; int b : 24; };",
        Number(Kind::Unsigned, 8),
        "{@, $}",
    ),
    made(
        "struct real",
        "struct real { double a; };",
        Number(Kind::Float, 8),
        "{$.25}",
    ),
    made(
        "struct three",
        "struct three { char a[3]; };",
        Refused(NoNumber),
        "{{1, 2, 3}}",
    ),
    made(
        "struct floats",
        "struct floats { float a, b; };",
        Refused(NoNumber),
        "{1.5f, 2.5f}",
    ),
    made(
        "struct longs",
        "struct longs { long a, b; };",
        Refused(Several),
        "{&, &}",
    ),
    made(
        "struct both",
        "struct both { double a; long b; };",
        Refused(Several),
        "{1.5, &}",
    ),
    made(
        "struct other",
        "struct other { long a; double b; };",
        Refused(Several),
        "{&, 1.5}",
    ),
    made(
        "struct wide",
        "struct wide { double a; float b, c; };",
        Refused(Several),
        "{1.5, 2, 3}",
    ),
    made(
        "struct tail",
        "struct tail { float a, b, c; };",
        Refused(Several),
        "{1.5, 2, 3}",
    ),
    made(
        "struct spread",
        "struct spread { long a : 40; long b : 40; };",
        Refused(Several),
        "{@, @}",
    ),
    made(
        "struct big",
        "struct big { long a, b, c; };",
        Refused(Memory),
        "{1, 2, 3}",
    ),
    made(
        "struct packed",
        "struct __attribute__((packed)) packed { char a; int b; };",
        Refused(Memory),
        "{1, 2}",
    ),
    made(
        "struct aligned",
        "struct aligned { _Alignas(16) long a; };",
        Refused(NoNumber),
        "{1}",
    ),
    made("struct none", "struct none { };", Refused(Empty), "{}"),
    made("long double", "", Refused(Memory), "1.5L"),
    made(
        "struct x87",
        "struct x87 { long double a; };",
        Refused(Memory),
        "{1.5L}",
    ),
    made(
        "union x87u",
        "union x87u { long double a; long b; };",
        Refused(Memory),
        "{1.5L}",
    ),
    made("__int128", "", Refused(Several), "7"),
    made("_Float128", "", Refused(NoNumber), "1.5"),
    made("_Decimal64", "", Refused(NoNumber), "1.5dd"),
    made("_Complex float", "", Refused(NoNumber), "1.5f"),
    made("_Complex double", "", Refused(Several), "1.5"),
    made("_Complex long double", "", Refused(Memory), "1.5L"),
    made(
        "vector",
        "typedef int vector __attribute__((vector_size(16)));",
        Refused(NoNumber),
        "{1, 2, 3, 4}",
    ),
];

/// xorshift64: the same programs each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn initializer(&mut self, form: &str) -> String {
        let mut text = String::new();
        for c in form.chars() {
            let bits = match c {
                '#' => 8,
                '$' => 16,
                '@' => 32,
                '&' if form != "#&1" && form != "{#&7, $, #}" => 64,
                _ => {
                    text.push(c);
                    continue;
                }
            };
            let number = self.next() >> (64 - bits);
            let suffix = if form.contains('.') && bits <= 32 && !form.contains("= @") {
                ""
            } else {
                "u"
            };
            let suffix = if bits == 64 { "ul" } else { suffix };
            write!(text, "{number}{suffix}").unwrap();
        }
        text
    }
}

struct Made {
    arguments: Vec<&'static Type>,
    returned: Option<&'static Type>,
}

/// A program of functions that main calls once each. They print the number and the bytes of each
/// argument and of the return value.
fn program(random: &mut Random, count: usize) -> (String, Vec<Made>) {
    let mut text = String::from("#include <stdio.h>\ntypedef int function(int);\n");
    for of in TYPES {
        writeln!(text, "{}", of.declared).unwrap();
    }
    text += "static void show(const char *what, int n, const void *at, unsigned long size) {\n\
             unsigned long bits = 0; const unsigned char *bytes = at;\n\
             for (unsigned long i = 0; i < size && i < 8; i++) bits |= (unsigned long)bytes[i] << 8 * i;\n\
             printf(\"%s %d %lx\\n\", what, n, bits); }\n";
    let (mut main, mut all) = (String::new(), Vec::new());
    for n in 0..count {
        let arguments: Vec<_> = (0..random.below(9))
            .map(|_| &TYPES[random.below(TYPES.len())])
            .collect();
        let returned = Some(&TYPES[random.below(TYPES.len())]).filter(|_| random.below(8) > 0);
        let mut list = Vec::new();
        for (index, of) in arguments.iter().enumerate() {
            let initial = random.initializer(of.initial);
            writeln!(text, "{} v{n}_{index} = {initial};", of.name).unwrap();
            writeln!(
                main,
                "show(\"a{n}\", {index}, (void *)&v{n}_{index}, sizeof v{n}_{index});"
            )
            .unwrap();
            list.push(format!("{} p{index}", of.name));
        }
        let list = if list.is_empty() {
            "void".to_owned()
        } else {
            list.join(", ")
        };
        let result = returned.map_or("void", |of| of.name);
        if let Some(of) = returned {
            let initial = random.initializer(of.initial);
            writeln!(text, "{} r{n} = {initial};", of.name).unwrap();
            writeln!(main, "show(\"r{n}\", 0, (void *)&r{n}, sizeof r{n});").unwrap();
        }
        let body = returned.map_or(String::new(), |_| format!(" return r{n};"));
        writeln!(
            text,
            "__attribute__((noipa)) {result} f{n}({list}) {{ __asm__(\"\");{body} }}"
        )
        .unwrap();
        let passed: Vec<_> = (0..arguments.len()).map(|i| format!("v{n}_{i}")).collect();
        writeln!(main, "f{n}({});", passed.join(", ")).unwrap();
        all.push(Made {
            arguments,
            returned,
        });
    }
    writeln!(text, "int main(void) {{\n{main}return 0; }}").unwrap();
    (text, all)
}

/// Checks all functions of a program. Returns the number of values read.
fn check(seed: u64, flags: &[&str]) -> usize {
    const FUNCTIONS: usize = 64;
    let (source, made) = program(&mut Random(seed), FUNCTIONS);
    let name = format!("generated{seed}{}", flags.concat().replace('/', ""));
    let built = Built::new(&name, "c", &source, flags);
    let names: Vec<_> = (0..FUNCTIONS).map(|n| format!("f{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let functions = built.functions(&names);
    let addresses: Vec<_> = functions.iter().map(|f| f.range.start.0).collect();
    let calls = gdb::calls(&built.program, &addresses);
    let out = std::process::Command::new(&built.program).output().unwrap();
    let shown = String::from_utf8(out.stdout).unwrap();
    let truth = |key: String| {
        let line = shown
            .lines()
            .find_map(|line| line.strip_prefix(&key))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let mut read = 0;
    for (n, (made, signature)) in made.iter().zip(built.signatures(&functions)).enumerate() {
        let call = &calls[&addresses[n]];
        let arguments = made.arguments.iter().enumerate();
        let arguments =
            arguments.map(|(i, of)| (Item::Argument(i as u8 + 1), *of, format!("a{n} {i} ")));
        let returned = made
            .returned
            .map(|of| (Item::Return, of, format!("r{n} 0 ")));
        for (item, of, key) in arguments.chain(returned) {
            let truth = truth(key);
            let what = format!("{item} of f{n}, {}, {flags:?}", of.name);
            match (signature.read(item), of.passed) {
                (Ok(value), Number(kind, width)) => {
                    assert_eq!((value.kind, value.width), (kind, width), "{what}");
                    assert_eq!(
                        bits(&value, item, call),
                        truth,
                        "{what}: {value:?} {call:x?}"
                    );
                    read += 1;
                }
                // No registers were left, so it is on the stack.
                (Err(error), Number(_, width)) => {
                    assert_eq!(error.reason, Reason::InMemory, "{what}: {error}");
                    let is_there = |word: &u64| word & mask(width) == truth;
                    assert!(call.stack.iter().any(is_there), "{what}: {call:x?}");
                }
                (Err(error), Refused(refusal)) => {
                    let reason = match refusal {
                        Memory if item == Item::Return && of.name.contains("87") => Reason::X87,
                        Memory if item == Item::Return && of.name.contains("long double") => {
                            Reason::X87
                        }
                        Memory => Reason::InMemory,
                        Several => Reason::SeveralRegisters,
                        NoNumber => Reason::NoNumber,
                        Empty => Reason::Empty,
                    };
                    let expected = [reason, Reason::InMemory];
                    assert!(expected.contains(&error.reason), "{what}: {error}");
                }
                (Ok(value), Refused(_)) => panic!("{what}: {value:?}"),
            }
        }
        let item = Item::Argument(made.arguments.len() as u8 + 1);
        let none = signature.read(item).unwrap_err();
        assert_eq!(none.reason, Reason::NoSuchArgument(made.arguments.len()));
        if made.returned.is_none() {
            let none = signature.read(Item::Return).unwrap_err();
            assert_eq!(none.reason, Reason::ReturnsNothing);
        }
    }
    read
}

#[test]
fn random_functions_have_their_values_where_gdb_finds_them() {
    let all: [&[&str]; 6] = [
        &["-O2"],
        &["-O1", "-fno-var-tracking"],
        &["-O0"],
        &["-O2", "-gdwarf-4"],
        &["-O1", "-gdwarf-2"],
        &["-O2", "-flto"],
    ];
    for (seed, flags) in all.into_iter().enumerate() {
        let read = check(0x9e37_79b9_7f4a_7c15 + seed as u64, flags);
        assert!(read >= 120, "{read}");
    }
}
