//! Any function that `ipath list` calls patchable can be instrumented: functions of libc, libm,
//! libstdc++ and the loader, chosen at random, alone, by the thousand and all at once. The programs
//! call as many of them as possible. Their output and status must not change.
//!
//! Each test prints the seed of its choice; `IPATH_TEST_SEED` repeats it.

use ipath_tests::compare::assert_equal;
use ipath_tests::compile::program_with;
use ipath_tests::instrument::{
    Driver, Random, Target, calls, ldd, libraries, patchable, patchable_of,
};
use ipath_tests::oracle;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::symbols::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const LIBC: &str = "libc.so.";
const LIBM: &str = "libm.so.";
const LIBSTDCXX: &str = "libstdc++.so.";
const LIBGCC: &str = "libgcc_s.so.";
const LOADER: &str = "ld-linux";

/// A driver, and the libraries that it exercises.
struct Case {
    driver: Driver,
    libraries: Vec<&'static str>,
    /// True if the number of calls of each function is reproducible.
    steady: bool,
}

impl Case {
    fn new(source: &str, flags: &[&str], libraries: &[&'static str]) -> Self {
        Self::of(
            source,
            Program::new(&compiled(source, flags), FOLDER),
            libraries,
        )
    }

    /// Simulates a processor without vectors of more than 128 bits, for which libc and libm have
    /// separate functions.
    fn small_vectors(source: &str, flags: &[&str], libraries: &[&'static str]) -> Self {
        let program = Program::new(&compiled(source, flags), FOLDER).env(
            "GLIBC_TUNABLES",
            "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX,-FMA,-ERMS",
        );
        Self::of(source, program, libraries)
    }

    fn of(source: &str, program: Program, libraries: &[&'static str]) -> Self {
        let name = source.split('.').next().unwrap_or_default();
        Self {
            driver: Driver::new(name, program),
            libraries: libraries.to_vec(),
            steady: true,
        }
    }

    /// Marks the numbers of calls as not reproducible.
    fn unsteady(mut self) -> Self {
        self.steady = false;
        self
    }

    /// Functions whose number of calls is random. Names of temporary files are random, and some are
    /// drawn again after a collision (glibc, sysdeps/posix/tempname.c).
    fn by_chance(&self) -> Vec<Target> {
        let libc = libraries(self.driver.path(), &[LIBC]);
        let drawn = libc.iter().map(|file| patchable_of(file, &["getrandom"]));
        drawn.flatten().collect()
    }

    /// The functions of each library that can be instrumented.
    fn targets(&self) -> Vec<Vec<Target>> {
        libraries(self.driver.path(), &self.libraries)
            .iter()
            .map(|file| patchable(file))
            .collect()
    }
}

const FOLDER: [&str; 1] = ["{folder}"];

/// Compiles without builtins, so that the program calls the library's functions.
fn compiled(source: &str, flags: &[&str]) -> PathBuf {
    program_with(source, &[&["-fno-builtin"], flags].concat())
}

fn cases() -> Vec<Case> {
    let old_strings = &["-D_GLIBCXX_USE_CXX11_ABI=0"];
    vec![
        Case::new("drive_libc.c", &[], &[LIBC, LOADER]),
        Case::small_vectors("drive_libc.c", &[], &[LIBC]),
        Case::new("drive_stdio.c", &[], &[LIBC, LOADER]),
        Case::new("drive_system.c", &[], &[LIBC, LOADER]).unsteady(),
        Case::new("drive_libm.c", &["-lm"], &[LIBM]),
        Case::small_vectors("drive_libm.c", &["-lm"], &[LIBM]),
        Case::new("drive_libstdcxx.cc", &[], &[LIBSTDCXX, LIBM]),
        Case::new("drive_libstdcxx.cc", old_strings, &[LIBSTDCXX]),
        Case::new("drive_exceptions.cc", &[], &[LIBSTDCXX, LIBGCC]),
        Case::new(
            "drive_exceptions.cc",
            &[],
            &[LIBSTDCXX, LIBGCC, LIBC, LIBM, LOADER],
        )
        .unsteady(),
    ]
}

/// The number of calls of every function in one run of a driver.
fn count_all(case: &Case) -> BTreeMap<Target, u64> {
    let targets = case.targets().concat();
    let profile = case.driver.run(&targets, &[]);
    assert_eq!(profile.losses.overflow, 0, "{}", case.driver.name);
    let calls = calls(&profile);
    let called = calls.values().filter(|&&calls| calls > 0).count();
    println!("{}: {called} of {} called", case.driver.name, targets.len());
    calls
}

/// [`count_all`] of all cases, computed once for all tests.
fn counted() -> &'static [BTreeMap<Target, u64>] {
    static COUNTED: OnceLock<Vec<BTreeMap<Target, u64>>> = OnceLock::new();
    COUNTED.get_or_init(|| cases().iter().map(count_all).collect())
}

/// All functions that can be instrumented are instrumented at once.
#[test]
fn everything_at_once() {
    counted();
}

/// A thousand functions of each library, chosen at random, are instrumented at once.
#[test]
fn a_thousand_at_once() {
    let mut random = Random::seeded();
    for case in cases() {
        for all in case.targets() {
            let chosen = random.choose(&all, 1000);
            let calls = calls(&case.driver.run(&chosen, &[]));
            let called = calls.values().filter(|&&calls| calls > 0).count();
            let (name, module) = (&case.driver.name, &chosen[0].module);
            println!("{name}: {called} of {} of {module} called", chosen.len());
        }
    }
}

/// A function instrumented alone has the same count as among all others.
#[test]
fn three_hundred_in_turn() {
    const CALLED: usize = 260;
    const NOT_CALLED: usize = 40;
    let mut random = Random::seeded();
    let cases = cases();
    let mut called = Vec::new();
    let mut not_called = Vec::new();
    for (index, counted) in counted().iter().enumerate() {
        for (target, &calls) in counted {
            let list = if calls > 0 {
                &mut called
            } else {
                &mut not_called
            };
            list.push((index, target.clone(), calls));
        }
    }
    let mut chosen = random.choose(&called, CALLED);
    chosen.extend(random.choose(&not_called, NOT_CALLED));
    let mut really_called = 0;
    for (index, target, together) in &chosen {
        let case = &cases[*index];
        let profile = case.driver.run(std::slice::from_ref(target), &[]);
        let alone = count(&profile.functions[0].totals);
        really_called += usize::from(alone > 0);
        if case.steady && alone != *together && !case.by_chance().contains(target) {
            let shown = format!("calls of {} in {}", target.pattern(), case.driver.name);
            panic!("{alone} and {together} {shown}, alone and among all");
        }
    }
    println!("{really_called} of {} functions were called", chosen.len());
    assert!(really_called >= CALLED * 9 / 10);
}

/// For some functions, gdb's calls and paths equal those of the profile.
#[test]
fn counts_are_those_of_gdb() {
    const MANY: usize = 25;
    const MOST_CALLS: u64 = 60;
    let mut random = Random::seeded();
    let cases = cases();
    let all = cases.iter().zip(counted());
    for (case, counted) in all.filter(|(case, _)| case.steady) {
        let driver = &case.driver;
        let by_chance = case.by_chance();
        let few: Vec<Target> = counted
            .iter()
            .filter(|(_, calls)| (1..=MOST_CALLS).contains(calls))
            .filter(|(target, _)| !by_chance.contains(target))
            .map(|(target, _)| target.clone())
            .collect();
        let own = file_name(driver.path());
        let below_main = below_main(&driver.run(&few, &[]), driver.path());
        let chosen = random.choose(&below_main, MANY);
        let profile = driver.run(&chosen, &[]);
        let sites: Vec<Site> = chosen.iter().map(Target::site).collect();
        driver.refresh();
        let mut found = oracle::run(driver.program(), &sites);
        // The loader calls some functions before the program's first instruction, which ipath does
        // not see.
        let is_own = |frame: &oracle::Frame| frame.0 == own;
        found
            .paths
            .retain(|path| path.stack.last().is_some_and(is_own));
        found.assert_like(driver.plain());
        println!("{}: {}", driver.name, found.summary());
        assert_equal(&profile, &found);
        assert!(found.hits() >= chosen.len() as u64);
    }
}

/// The functions of a profile that were called only from below the program's `_start`, and never
/// through the loader or a library that is unloaded.
///
/// The loader runs functions without unwind tables, for which gdb takes a wrong word for the return
/// address. gdb's script may also confuse libraries that were mapped at the same address.
fn below_main(profile: &Profile, program: &Path) -> Vec<Target> {
    let mut known: Vec<String> = ldd(program).iter().map(|l| file_name(l)).collect();
    known.retain(|name| !name.starts_with(LOADER));
    known.push(file_name(program));
    let module = |&frame: &usize| {
        let module = profile.frames[frame].module?;
        Some(file_name(Path::new(&profile.modules[module].path)))
    };
    let is_left_out = |path: &CallPath| {
        let mut modules = path.stack.iter().map(module);
        let root = modules.clone().next_back().flatten();
        root != known.last().cloned() || modules.any(|m| m.is_none_or(|m| !known.contains(&m)))
    };
    let left_out: BTreeSet<usize> = profile
        .paths
        .iter()
        .filter(|path| count(&path.metrics) > 0 && is_left_out(path))
        .map(|path| path.function)
        .collect();
    (0..profile.functions.len())
        .filter(|index| !left_out.contains(index))
        .map(|index| Target::of(profile, &profile.functions[index]))
        .collect()
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
