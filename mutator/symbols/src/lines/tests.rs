//! Lookups against binutils' addr2line, over programs compiled here.

use super::{FileLines, Lines, Places, SourceFrame};
use ipath_base::files::FileBytes;
use patcher::Svma;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) int innermost(int n) {
    if (n & 1)
        puts("odd");
    return n * 3;
}
static inline __attribute__((always_inline)) int middle(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += innermost(i ^ rand());
    return sum;
}
__attribute__((noinline)) int outer(int n) {
    int x = middle(n);
    putchar(x & 0x7f);
    return x + middle(n + 1);
}
int main(int argc, char **argv) {
    (void)argv;
    return outer(argc) & innermost(argc);
}
"#;

const CPP: &str = r#"
#include <cstdio>
#include <map>
#include <string>
#include <vector>
namespace store {
template <class T> struct Box {
    std::vector<T> items;
    void put(T item) { items.push_back(item); }
    T sum() const { T all{}; for (auto &i : items) all = all + i; return all; }
};
struct Base { virtual ~Base() = default; virtual int run(int n) const = 0; };
struct Derived : Base {
    int run(int n) const override {
        Box<int> box;
        for (int i = 0; i < n; i++) box.put(i);
        auto show = [&](int k) { std::printf("%d\n", k + box.sum()); return k; };
        return show(n) + show(n + 1);
    }
};
}
int main(int argc, char **) {
    std::map<std::string, int> names;
    for (int i = 0; i < argc + 3; i++) names[std::to_string(i)] += i;
    store::Derived d;
    const store::Base &b = d;
    try { if (names.size() > 100) throw std::string("many"); } catch (const std::string &s) { std::puts(s.c_str()); }
    return b.run(static_cast<int>(names.size()));
}
"#;

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
    fn new(name: &str, compiler: &str, source: &str, flags: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("ipath-lines-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join(if compiler == "g++" { "app.cc" } else { "app.c" });
        fs::write(&file, source).unwrap();
        let program = dir.join("app");
        let status = Command::new(compiler)
            .args(["-O2", "-g", "-o"])
            .args([&program, &file])
            .args(flags)
            .status()
            .unwrap();
        assert!(status.success());
        Self { dir, program }
    }

    fn tool(&self, name: &str, arguments: &[&str]) {
        let status = Command::new(name)
            .args(arguments)
            .current_dir(&self.dir)
            .status()
            .unwrap();
        assert!(status.success(), "{name} {arguments:?}");
    }

    fn lookup(&self, places: &Places, at: Svma) -> Vec<SourceFrame> {
        let data = fs::read(&self.program).unwrap();
        Lines::load(&data, places).map_or_else(Vec::new, |lines| lines.lookup(at))
    }

    fn here(&self) -> Places {
        Places {
            beside: Some(self.dir.clone()),
            roots: vec![self.dir.join("debug")],
            ..Places::default()
        }
    }
}

/// The address of every instruction after a call. Return addresses minus 1 are there.
fn call_sites(program: &Path) -> Vec<Svma> {
    let out = Command::new("objdump")
        .args(["-d", "-j", ".text"])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut sites = Vec::new();
    let mut after_call = false;
    for line in text.lines() {
        let Some((address, code)) = line.trim_start().split_once(":\t") else {
            continue;
        };
        let at = u64::from_str_radix(address, 16).unwrap();
        if after_call {
            sites.push(Svma(at - 1));
        }
        after_call = code.contains("call ");
    }
    sites
}

/// The answers of binutils, in our form.
fn oracle(program: &Path, sites: &[Svma]) -> Vec<Vec<SourceFrame>> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-f", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let list: String = sites.iter().map(|at| format!("{at}\n")).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(list.as_bytes()).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut all: Vec<Vec<SourceFrame>> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines
            .next()
            .unwrap()
            .split(" (discriminator")
            .next()
            .unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        all.last_mut().unwrap().push(SourceFrame {
            // It prefers the symbol, which differs from the function for a cold part.
            function: (line != "??").then(|| line.trim_end_matches(".cold").to_owned()),
            file: (file != "??").then(|| file.to_owned()),
            line: number.parse().ok().filter(|&n| n != 0),
        });
    }
    all
}

/// Compares every call site of the program. Returns the number of call sites, and of those with
/// inlined functions.
fn compare(built: &Built, oracle_on: &Path, places: &Places) -> (usize, usize) {
    let sites = call_sites(oracle_on);
    let expected = oracle(oracle_on, &sites);
    assert_eq!(expected.len(), sites.len());
    let data = fs::read(&built.program).unwrap();
    let lines = Lines::load(&data, places).expect("the program has DWARF");
    let (mut known, mut inlined) = (0, 0);
    for (at, expected) in sites.iter().zip(expected) {
        let found = lines.lookup(*at);
        if expected.iter().all(|f| f.line.is_none()) {
            // The start-up files have no DWARF; binutils then falls back on symbols.
            assert_eq!(found, [], "{at}");
            continue;
        }
        assert_eq!(found, expected, "{at} of {}", built.program.display());
        known += 1;
        inlined += usize::from(found.len() > 1);
    }
    (known, inlined)
}

#[test]
fn every_call_site_of_c_agrees_with_binutils() {
    for flags in [&["-gdwarf-5"], &["-gdwarf-4"]] {
        let built = Built::new(&format!("c{}", flags[0]), "gcc", C, flags);
        let (known, inlined) = compare(&built, &built.program, &Places::default());
        assert!(known >= 6 && inlined >= 4, "{known} {inlined}");
    }
}

#[test]
fn every_call_site_of_cpp_agrees_with_binutils() {
    let built = Built::new("cpp", "g++", CPP, &[]);
    let (known, inlined) = compare(&built, &built.program, &Places::default());
    assert!(known >= 20 && inlined >= 10, "{known} {inlined}");
}

#[test]
fn compressed_sections_give_the_same() {
    for how in ["zlib", "zstd"] {
        let built = Built::new(how, "gcc", C, &[]);
        built.tool("cp", &["app", "plain"]);
        let option = format!("--compress-debug-sections={how}");
        if !Command::new("objcopy")
            .arg(&option)
            .arg(&built.program)
            .status()
            .unwrap()
            .success()
        {
            // Binutils built without zstd cannot make the input.
            assert_eq!(how, "zstd");
            continue;
        }
        let (known, inlined) = compare(&built, &built.dir.join("plain"), &Places::default());
        assert!(known >= 6 && inlined >= 4, "{how}: {known} {inlined}");
    }
}

const FAR: &str = r#"
int far(int n);
static inline __attribute__((always_inline)) int step(int n) { return n < 3 ? n : far(n - 1) * 2; }
__attribute__((noinline)) int near(int n) { return step(n) + step(n + 1); }
"#;

const FARTHER: &str = r#"
int near(int n);
__attribute__((noinline)) int far(int n) { return n < 2 ? 1 : near(n - 2) + near(n - 1); }
int main(int argc, char **argv) { (void)argv; return near(argc) + far(argc); }
"#;

#[test]
fn units_are_read_without_the_others_and_say_the_same() {
    // If functions are inlined across units, entries of one unit refer to another. binutils then
    // uses the wrong table of files. It also does not read 64-bit DWARF.
    for (name, flags, with_code, is_apart) in [
        ("dwarf5", &["-gdwarf-5"][..], 2, true),
        ("dwarf4", &["-gdwarf-4"], 2, true),
        ("zlib", &["-gz=zlib"], 2, true),
        ("dwarf64", &["-gdwarf64"], 2, true),
        ("types", &["-fdebug-types-section"], 2, true),
        ("lto", &["-flto", "-flto-partition=none"], 1, false),
        ("no-aranges", &[], 2, false),
    ] {
        let built = Built::new(&format!("units-{name}"), "gcc", C, &[]);
        fs::write(built.dir.join("far.c"), FAR).unwrap();
        fs::write(built.dir.join("farther.c"), FARTHER).unwrap();
        let sources = ["-O2", "-g", "-o", "app", "farther.c", "far.c"];
        built.tool("gcc", &[&sources, flags].concat());
        if name == "no-aranges" {
            built.tool("objcopy", &["--remove-section=.debug_aranges", "app"]);
        }
        let data = fs::read(&built.program).unwrap();
        let load = || Lines::load(&data, &Places::default()).unwrap();
        let (units, whole) = (load(), load());
        assert!(whole.whole().is_some());
        let mut sites = call_sites(&built.program);
        sites.retain(|&at| !whole.lookup(at).is_empty());
        if !["dwarf64", "lto"].contains(&name) {
            let found: Vec<_> = sites.iter().map(|&at| whole.lookup(at)).collect();
            assert_eq!(found, oracle(&built.program, &sites), "{name}");
        }
        let mut seen = HashSet::new();
        for at in sites {
            assert_eq!(units.lookup(at), whole.lookup(at), "{name}: {at}");
            assert_eq!(units.unit_at(at), whole.unit_at(at), "{name}: {at}");
            seen.extend(whole.unit_at(at));
        }
        assert_eq!(seen.len(), with_code, "{name}");
        assert_eq!(units.whole.get().is_none(), is_apart, "{name}");
    }
}

#[test]
fn a_damaged_index_of_units_takes_no_lines() {
    let built = Built::new("index", "gcc", C, &[]);
    fs::write(built.dir.join("far.c"), FAR).unwrap();
    fs::write(built.dir.join("farther.c"), FARTHER).unwrap();
    built.tool("gcc", &["-O2", "-g", "-o", "app", "farther.c", "far.c"]);
    built.tool("objcopy", &["--dump-section=.debug_aranges=index", "app"]);
    let index = fs::read(built.dir.join("index")).unwrap();
    let mut data = fs::read(&built.program).unwrap();
    let at = memchr::memmem::find(&data, &index).unwrap();
    let lines = |data: &[u8], at| Lines::load(data, &Places::default()).unwrap().lookup(at);
    let sites = call_sites(&built.program);
    let whole: Vec<_> = sites.iter().map(|&site| lines(&data, site)).collect();
    for byte in at..at + index.len() {
        data[byte] ^= 0xff;
        let damaged: Vec<_> = sites.iter().map(|&site| lines(&data, site)).collect();
        assert_eq!(damaged, whole, "byte {} of the index", byte - at);
        data[byte] ^= 0xff;
    }
}

fn separate(name: &str, link_flags: &[&str]) -> Built {
    let built = Built::new(name, "gcc", C, link_flags);
    built.tool("cp", &["app", "full"]);
    built.tool("objcopy", &["--only-keep-debug", "app", "app.debug"]);
    built.tool("strip", &["--strip-all", "app"]);
    assert_eq!(
        built.lookup(&built.here(), call_sites(&built.dir.join("full"))[0]),
        []
    );
    built
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let built = separate("buildid", &["-Wl,--build-id=0xab12cd"]);
    built.tool("mkdir", &["-p", "debug/.build-id/ab"]);
    built.tool("mv", &["app.debug", "debug/.build-id/ab/12cd.debug"]);
    let (known, inlined) = compare(&built, &built.dir.join("full"), &built.here());
    assert!(known >= 6 && inlined >= 4, "{known} {inlined}");
}

#[test]
fn a_debug_file_is_found_by_its_link_and_only_if_it_belongs() {
    for flags in [["-Wl,--build-id=0xab12cd"], ["-Wl,--build-id=none"]] {
        let built = separate(&format!("link{}", flags[0].len()), &flags);
        built.tool("objcopy", &["--add-gnu-debuglink=app.debug", "app"]);
        compare(&built, &built.dir.join("full"), &built.here());
        built.tool("mkdir", &[".debug"]);
        built.tool("mv", &["app.debug", ".debug/app.debug"]);
        let (known, inlined) = compare(&built, &built.dir.join("full"), &built.here());
        assert!(known >= 6 && inlined >= 4, "{known} {inlined}");
        // Another program's debug file under the same name must not be believed.
        let other = Built::new("other", "gcc", C, &["-O1", "-Wl,--build-id=0xeeee"]);
        other.tool("objcopy", &["--only-keep-debug", "app", "app.debug"]);
        fs::copy(
            other.dir.join("app.debug"),
            built.dir.join(".debug/app.debug"),
        )
        .unwrap();
        assert_eq!(
            built.lookup(&built.here(), call_sites(&built.dir.join("full"))[0]),
            []
        );
    }
}

#[test]
fn what_is_no_elf_file_or_is_cut_short_gives_nothing_and_does_not_fail() {
    let built = Built::new("cut", "gcc", C, &[]);
    let data = fs::read(&built.program).unwrap();
    let sites = call_sites(&built.program);
    assert!(Lines::load(b"#!/bin/sh\n", &Places::default()).is_none());
    assert!(Lines::load(&[], &Places::default()).is_none());
    // Damage in steps of a prime reaches headers, names and every debug section.
    for step in 0..data.len() / 61 {
        let mut damaged = data.clone();
        damaged[step * 61] ^= 0xff;
        if let Some(lines) = Lines::load(&damaged, &Places::default()) {
            lines.lookup(sites[step % sites.len()]);
        }
        if step % 16 == 0
            && let Some(lines) = Lines::load(&data[..step * 61], &Places::default())
        {
            lines.lookup(sites[0]);
        }
    }
}

/// The file is truncated after a part of the unit has been read.
#[test]
fn a_file_that_is_truncated_while_it_is_read_does_not_fail() {
    let built = Built::new("truncated", "gcc", C, &[]);
    let sites = call_sites(&built.program);
    let len = fs::metadata(&built.program).unwrap().len();
    let copy = built.dir.join("copy");
    for size in (0..len).step_by(61) {
        fs::copy(&built.program, &copy).unwrap();
        let lines = FileLines::load(FileBytes::open(&copy).unwrap(), &Places::default()).unwrap();
        let first = lines.with(|lines| lines.lookup(*sites.last().unwrap()));
        assert!(!first.is_empty());
        let file = fs::File::options().write(true).open(&copy).unwrap();
        file.set_len(size).unwrap();
        for &site in &sites {
            lines.with(|lines| lines.lookup(site));
        }
    }
}

#[test]
fn the_innermost_function_comes_first_and_the_frame_keeps_the_outermost() {
    let built = Built::new("order", "gcc", C, &[]);
    let data = fs::read(&built.program).unwrap();
    let lines = Lines::load(&data, &Places::default()).unwrap();
    let sites = call_sites(&built.program);
    let site = sites
        .into_iter()
        .find(|&at| lines.lookup(at).len() == 3)
        .unwrap();
    let names: Vec<_> = lines
        .lookup(site)
        .into_iter()
        .filter_map(|f| f.function)
        .collect();
    assert_eq!(names, ["innermost", "middle", "outer"]);
    let mut frame = ipath_profile::Frame::default();
    lines.describe(site, &mut frame);
    assert!(frame.file.unwrap().ends_with("/app.c"));
    let inlined: Vec<_> = frame
        .inlined
        .into_iter()
        .filter_map(|f| f.function)
        .collect();
    assert_eq!(inlined, ["innermost", "middle"]);
}

#[test]
fn inlined_copies_are_those_readelf_lists() {
    const SOURCE: &str = r#"
static inline __attribute__((always_inline)) int twice(int x) { return x * 2 + 1; }
int (*volatile pointer)(int) = twice;
__attribute__((noinline)) int one(int x) { return twice(x) + twice(x + 3); }
int main(int argc, char **argv) { (void)argv; return twice(argc) + one(argc) + pointer(argc); }
"#;
    for flags in [&["-gdwarf-4"][..], &["-gdwarf-5"]] {
        let built = Built::new(&format!("inlined{}", flags[0]), "gcc", SOURCE, flags);
        let listed = Command::new("readelf")
            .arg("--debug-dump=info")
            .arg(&built.program)
            .output()
            .unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let entries = listed.matches("DW_TAG_inlined_subroutine").count() as u64;
        let data = fs::read(&built.program).unwrap();
        let lines = Lines::load(&data, &built.here()).unwrap();
        let copies = lines.inlined_copies(usize::MAX, |_| true, |_| None);
        assert_eq!(entries, 3, "{listed}");
        assert_eq!(copies, [("twice".to_owned(), entries)].into());
        assert_eq!(
            lines.inlined_copies(usize::MAX, |name| name == b"twice", |_| None),
            copies
        );
        assert!(
            lines
                .inlined_copies(usize::MAX, |name| name == b"one", |_| None)
                .is_empty()
        );
    }
}

/// The statements of a file are those that binutils lists, by line and address.
#[test]
fn statements_are_those_that_objdump_lists() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let built = Built::new("statements", "gcc", C, &[version]);
        let out = Command::new("objdump")
            .arg("--dwarf=decodedline")
            .arg(&built.program)
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let mut listed = BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // File name, line number, starting address, view, and `x` for a statement.
            if let ["app.c", line, address, .., "x"] = words[..]
                && let Ok(line) = line.parse::<u32>()
            {
                let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
                listed.insert((line, Svma(address)));
            }
        }
        assert!(listed.len() > 20, "{version}: {text}");
        let data = fs::read(&built.program).unwrap();
        let lines = Lines::load(&data, &built.here()).unwrap();
        assert_eq!(
            lines.statements(|path| path.ends_with("/app.c")),
            listed,
            "{version}"
        );
        assert!(
            lines
                .statements(|path| path.ends_with("/other.c"))
                .is_empty()
        );
    }
}
