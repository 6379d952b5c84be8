//! Probe points: instructions of a program, disassembled by objdump, that ipath and gdb count.

use crate::command::Finished;
use crate::compare::assert_equal;
use crate::exact::assert_output_kept;
use crate::oracle;
use crate::place::Scratch;
use crate::profile::Profile;
use crate::program::Program;
use crate::symbols::Site;
use std::path::Path;
use std::process::Command;

/// The file name of a program, without folders.
fn file_name(program: &Path) -> String {
    program
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

/// An address of the program's file in the syntax of the command line: `NAME!0xADDRESS`.
pub fn place(program: &Path, address: u64) -> String {
    format!("{}!{address:#x}", file_name(program))
}

/// An instruction at an address in the program's file, as gdb's oracle takes it.
pub fn site(program: &Path, address: u64) -> Site {
    Site {
        module: file_name(program),
        address,
    }
}

/// `--at` for each of these addresses.
pub fn at(program: &Path, addresses: impl IntoIterator<Item = u64>) -> Vec<String> {
    let places = addresses.into_iter().map(|address| place(program, address));
    places
        .flat_map(|place| ["--at".to_owned(), place])
        .collect()
}

/// Runs a program under ipath with these options. Returns the ended command and its profile.
///
/// # Panics
/// If the command writes no profile.
pub fn run_with(program: &Program, arguments: &[String]) -> (Finished, Profile) {
    let scratch = Scratch::new("points");
    let file = scratch.file("p.json");
    let mut all = vec!["run".to_owned()];
    all.extend_from_slice(arguments);
    let profile = file.display().to_string();
    all.extend(
        [
            "--yes",
            "--no-tui",
            "--interval",
            "10m",
            "-o",
            &profile,
            "--",
        ]
        .map(str::to_owned),
    );
    let finished = program.under_ipath_as(all);
    let profile = Profile::read(&file);
    (finished, profile)
}

/// The virtual addresses and the text of the instructions that objdump disassembles with `-d` and
/// this option, in its order.
///
/// # Panics
/// If objdump does not run.
pub fn disassembled(program: &Path, option: &str) -> Vec<(u64, String)> {
    let mut objdump = Command::new("objdump");
    let dump = objdump.args(["-d", option]).arg(program).output();
    let text = String::from_utf8_lossy(&dump.expect("objdump").stdout).into_owned();
    let line = |line: &str| {
        let (address, rest) = line.trim().split_once(":\t")?;
        // The rest of a long instruction's bytes, on a line without an instruction.
        let (_, instruction) = rest.split_once('\t')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, instruction.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The virtual addresses of a function's instructions, ascending.
pub fn instructions(program: &Path, function: &str) -> Vec<u64> {
    let all = disassembled(program, &format!("--disassemble={function}"));
    // Stubs in earlier sections have none.
    all.into_iter().map(|(address, _)| address).collect()
}

/// Checks all instructions of a function at once against gdb, which stops at each and walks the
/// stack itself.
///
/// # Panics
/// With the differences. Also if ipath refuses more than a quarter of the instructions.
pub fn check_with_gdb(program: &Program, function: &str) {
    let plain = program.plain();
    let addresses = instructions(&program.path, function);
    assert!(addresses.len() > 2, "{function}: {addresses:x?}");
    for program in [program.clone(), program.verified()] {
        let (ours, profile) = run_with(&program, &at(&program.path, addresses.iter().copied()));
        assert_output_kept(&plain, &ours);
        let refused = profile.refused.iter().map(|r| r["address"].as_u64());
        let refused: Vec<u64> = refused.flatten().collect();
        println!(
            "{function}: {} of {} refused",
            refused.len(),
            addresses.len()
        );
        assert!(refused.len() * 4 <= addresses.len(), "{}", ours.report());
        let had = addresses.iter().filter(|a| !refused.contains(a));
        let sites: Vec<Site> = had.map(|&address| site(&program.path, address)).collect();
        let found = oracle::run(&program, &sites);
        found.assert_like(&plain);
        assert_equal(&profile, &found);
    }
}
