//! Compares values of programs compiled here with the registers that gdb sees.

mod gdb;
mod generated;
mod programs;
mod units;

use super::{Item, Kind, Signature, Unreadable, Value, ValueRegister, Values};
use crate::lines::{Lines, Places};
use gdb::Call;
use patcher::function::Function;
use patcher::image::Image;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in a folder of its own.
struct Built {
    dir: PathBuf,
    program: PathBuf,
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Built {
    /// Compiles `source` at a fixed address. The ending of the file name selects the language.
    fn new(name: &str, ending: &str, source: &str, flags: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("ipath-values-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join(format!("app.{ending}"));
        fs::write(&file, source).unwrap();
        let program = dir.join("app");
        let usual: &[&str] = match ending {
            "go" => &["go", "build"],
            "rs" => &["rustc", "--edition=2024", "-Crelocation-model=static"],
            "f90" => &["gfortran", "-no-pie", "-g"],
            "cc" => &["g++", "-no-pie", "-g"],
            _ => &["gcc", "-no-pie", "-g"],
        };
        let out = Command::new(usual[0])
            .args(&usual[1..])
            .arg("-o")
            .arg(&program)
            .arg(&file)
            .args(flags)
            .env("GOCACHE", dir.join("cache"))
            .current_dir(&dir)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{errors}\n{source}");
        Self { dir, program }
    }

    fn tool(&self, name: &str, arguments: &[&str]) {
        let mut command = Command::new(name);
        let status = command
            .args(arguments)
            .current_dir(&self.dir)
            .status()
            .unwrap();
        assert!(status.success(), "{name} {arguments:?}");
    }

    fn places(&self) -> Places {
        Places {
            beside: Some(self.dir.clone()),
            roots: vec![self.dir.join("debug")],
            ..Places::default()
        }
    }

    fn functions(&self, names: &[&str]) -> Vec<Function> {
        functions(&self.program, names)
    }

    fn signatures(&self, functions: &[Function]) -> Vec<Signature> {
        let data = fs::read(&self.program).unwrap();
        let lines = Lines::load(&data, &self.places());
        let values = Values::new(&data, lines.as_ref());
        functions.iter().map(|f| values.of(f)).collect()
    }
}

/// The functions with these names: linkage names, or names without arguments.
fn functions(program: &Path, names: &[&str]) -> Vec<Function> {
    let data = fs::read(program).unwrap();
    let image = Image::parse(&data).unwrap();
    let found = |name: &&str| {
        let pattern = patcher::select::Pattern::parse(name).unwrap();
        let mut found = pattern.select(&image, "app");
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.remove(0)
    };
    names.iter().map(found).collect()
}

/// The bits that a reader of the profile sees for a value.
fn bits(value: &Value, item: Item, call: &Call) -> u64 {
    let register = match (value.place, item) {
        (ValueRegister::Integer(n), Item::Argument(_)) => call.integers[usize::from(n)],
        (ValueRegister::Vector(n), Item::Argument(_)) => call.vectors[usize::from(n)],
        (ValueRegister::Integer(0), Item::Return) => call.rax,
        (ValueRegister::Vector(0), Item::Return) => call.xmm0,
        (place, Item::Return) => panic!("{place:?}"),
    };
    register & mask(value.width)
}

fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * u32::from(width))
}

/// The expectation for a value.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// This number, as in the source.
    Is(i64),
    Float(f64),
    /// An address: only its kind and width are known.
    Address,
    /// A refusal with these words.
    Refused(&'static str),
}

use Expected::{Address, Float, Is, Refused};

/// Compares the values of a program's functions with those in gdb.
fn check(built: &Built, expected: &[(&str, Item, Expected)]) {
    let mut names: Vec<_> = expected.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let functions = built.functions(&names);
    let addresses: Vec<_> = functions.iter().map(|f| f.range.start.0).collect();
    let calls = gdb::calls(&built.program, &addresses);
    let signatures = built.signatures(&functions);
    for &(name, item, expected) in expected {
        let index = names.iter().position(|n| *n == name).unwrap();
        let call = &calls[&addresses[index]];
        let read = signatures[index].read(item);
        check_one(&format!("{item} of {name}"), &read, item, expected, call);
    }
}

fn check_one(
    what: &str,
    read: &Result<Value, Unreadable>,
    item: Item,
    expected: Expected,
    call: &Call,
) {
    let value = match (read, expected) {
        (Err(error), Refused(text)) => {
            assert_eq!(error.to_string(), text, "{what}");
            return;
        }
        (Err(error), _) => panic!("{what}: {error}"),
        (Ok(value), _) => value,
    };
    let found = bits(value, item, call);
    let as_signed = |width: u8| {
        let unused = 64 - 8 * u32::from(width);
        ((found << unused) as i64) >> unused
    };
    match (expected, value.kind, value.width) {
        (Is(number), Kind::Signed, width) => {
            assert_eq!(as_signed(width), number, "{what}: {value:?} {call:x?}");
        }
        (Is(number), Kind::Unsigned, _) => {
            assert_eq!(found, number as u64, "{what}: {value:?} {call:x?}");
        }
        (Float(number), Kind::Float, 8) => {
            assert_eq!(f64::from_bits(found), number, "{what}: {value:?} {call:x?}");
        }
        (Float(number), Kind::Float, 4) => {
            let found = f64::from(f32::from_bits(found as u32));
            assert_eq!(found, number, "{what}: {value:?} {call:x?}");
        }
        (Address, Kind::Unsigned, 8) => {
            // An address on the stack, on the heap or in the program is no small number.
            assert!(found > 0x1000, "{what}: {value:?} {call:x?}");
        }
        _ => panic!("{what}: {value:?} is not {expected:?}"),
    }
}
