//! Debian's own programs, with a thousand functions of them and of their libraries instrumented at
//! once, and a few alone. Their behavior must not change.

use ipath_tests::instrument::{Driver, Random, calls, ldd, patchable};
use ipath_tests::program::Program;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Paths are cut short: whole paths up to `main` would not fit.
const OPTIONS: [&str; 2] = ["--depth", "3"];

/// Runs a program with up to a thousand functions of each of its files `names` instrumented, and
/// then with some of the called ones, each alone. Calls `each_run` after each run.
fn check(driver: &Driver, names: &[&str], each_run: impl Fn(&Driver)) {
    const AT_ONCE: usize = 1000;
    const ALONE: usize = 5;
    let mut random = Random::seeded();
    let mut files: Vec<PathBuf> = ldd(driver.path());
    files.push(driver.path().to_path_buf());
    let mut chosen = Vec::new();
    for name in names {
        let is_it = |file: &&PathBuf| {
            let found = file.file_name().unwrap_or_default().to_string_lossy();
            found.starts_with(name)
        };
        let file = files.iter().find(is_it);
        let file = file.unwrap_or_else(|| panic!("{} without {name}", driver.name));
        chosen.extend(random.choose(&patchable(file), AT_ONCE));
    }
    let profile = driver.run(&chosen, &OPTIONS);
    each_run(driver);
    let called: Vec<_> = calls(&profile)
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .collect();
    let all: u64 = called.iter().map(|(_, calls)| calls).sum();
    let (name, many) = (&driver.name, chosen.len());
    println!("{name}: {} of {many} called, {all} times", called.len());
    assert!(called.len() > 20, "{called:?}");
    for (target, _) in random.choose(&called, ALONE) {
        driver.run(&[target], &OPTIONS);
        each_run(driver);
    }
}

/// The text without durations.
fn without_times(text: &str) -> String {
    let line = |line: &str| match line.split_once(" tests in ") {
        Some((ran, _)) => format!("{ran} tests\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn python_test(module: &str) {
    let program = Program::new(
        Path::new("/usr/bin/python3.11"),
        ["-I", "-S", "-B", "-m", module],
    );
    let program = program.env("PYTHONHASHSEED", "0");
    let driver = Driver::with(module, program, &[], without_times);
    let summary = without_times(&driver.plain().stderr);
    assert!(
        summary.contains("\nRan ") && summary.contains("\nOK"),
        "{summary}"
    );
    check(&driver, &["libc.so.", "libm.so.", "python3.11"], |_| ());
}

#[test]
fn python_test_json() {
    python_test("test.test_json");
}

#[test]
fn python_test_re() {
    python_test("test.test_re");
}

#[test]
fn python_test_math() {
    python_test("test.test_math");
}

const SCRIPT: &str = "
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)
    insert into t select i, 'text ' || (i * 7919 % 1009), i * 0.5 from n;
create index t_b on t(b);
select count(*), sum(c), avg(a), group_concat(b) from t where a < 20;
select b, count(*) from t group by b order by 2 desc, 1 limit 10;
select substr(b, 2, 3), upper(b), printf('%.3f', c), date('2024-02-29', '+1 year')
    from t where b like '%99%' limit 5;
begin;
update t set c = c * 2 where a % 3 = 0;
delete from t where a % 5 = 0;
select sum(c) from t;
rollback;
select json_group_array(a) from (select a from t where a < 10);
select x.a, y.b from t x join t y on x.a = y.a + 1 where x.a < 8;
select quote(b), typeof(c), length(b), instr(b, 't'), replace(b, 't', 'T') from t limit 3;
select a, sum(a) over (order by a rows 2 preceding) from t where a < 6;
pragma integrity_check;
select * from missing;
";

#[test]
fn sqlite3_prints_the_same_results() {
    let program = Program::new(
        Path::new("/usr/bin/sqlite3"),
        ["{folder}/data", ".read {folder}/script"],
    );
    let files = [("script", SCRIPT.as_bytes())];
    let driver = Driver::with("sqlite3", program, &files, str::to_owned);
    assert_eq!(driver.plain().code(), 1, "{}", driver.plain().report());
    check(&driver, &["libc.so.", "libsqlite3.so.", "sqlite3"], |_| ());
}

/// A text of random words.
fn words() -> String {
    let mut text = String::new();
    let mut x: u32 = 1;
    for _ in 0..20_000 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let _ = writeln!(text, "{:x} {}", x >> 12, x % 97);
    }
    text
}

#[test]
fn gzip_writes_the_same_bytes() {
    let arguments = ["-n", "-k", "-f", "{folder}/words"];
    let program = Program::new(Path::new("/usr/bin/gzip"), arguments);
    let files = [("words", words().into_bytes())];
    let files = files.each_ref().map(|(name, text)| (*name, &text[..]));
    let driver = Driver::with("gzip", program, &files, str::to_owned);
    let packed = driver.file("words.gz");
    assert!(packed.len() > 1000);
    check(&driver, &["libc.so.", "gzip"], |driver| {
        assert!(driver.file("words.gz") == packed, "other bytes");
    });
}

#[test]
fn sort_prints_the_same_lines() {
    let arguments = ["-k2n", "-k1r", "--parallel=2", "{folder}/words"];
    let program = Program::new(Path::new("/usr/bin/sort"), arguments);
    let files = [("words", words().into_bytes())];
    let files = files.each_ref().map(|(name, text)| (*name, &text[..]));
    let driver = Driver::with("sort", program, &files, str::to_owned);
    assert_eq!(driver.plain().stdout.lines().count(), 20_000);
    check(&driver, &["libc.so.", "sort"], |_| ());
}
