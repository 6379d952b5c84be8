//! Lists names and source lines that are missing in a process, and how to get its debug files.

use std::fs;
use std::path::Path;

use super::line::{Line, Verdict, line};
use ipath_base::hint::{Hint, Word, hint};
use ipath_symbols::debuginfod::{self, hex};
use ipath_symbols::images;
use ipath_symbols::lines::{Lines, Places};
use ipath_target::process::Process;
use ipath_target::process::modules::{Module, VDSO, modules};

/// Servers of debug files, by the `ID` of os-release(5).
const SERVERS: [(&str, &str); 6] = [
    ("debian", "https://debuginfod.debian.net"),
    ("ubuntu", "https://debuginfod.ubuntu.com"),
    ("fedora", "https://debuginfod.fedoraproject.org"),
    ("centos", "https://debuginfod.centos.org"),
    ("arch", "https://debuginfod.archlinux.org"),
    ("opensuse", "https://debuginfod.opensuse.org"),
];
/// A debuginfod server that forwards to the servers of the distributions.
const ANY_SERVER: &str = "https://debuginfod.elfutils.org";

/// The information that a file lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The file lacks the names of functions that it does not export, and all source lines.
    Names,
    /// Source lines.
    Lines,
}

/// Lines about the program and its libraries, if debug files are missing.
pub(super) fn debug_files(process: &Process) -> Vec<Line> {
    let maps = process.maps().unwrap_or_default();
    let modules = modules(process, &maps);
    let exe = process.exe().map(|exe| exe.display().to_string());
    let is_program = |module: &&Module| Some(&module.path) == exe.as_ref();
    let mut lines = Vec::new();
    if let Some(program) = modules.iter().find(is_program) {
        lines.extend(of_program(process, program));
    }
    let libraries = modules.iter().filter(|module| !is_program(module));
    let libraries = libraries.filter(|module| module.path != VDSO);
    let stripped: Vec<&Module> = libraries
        .filter(|module| missing(module) == Some(Missing::Names))
        .collect();
    lines.extend(of_libraries(process, &stripped));
    lines
}

/// The information that a module's file lacks. `None` if it lacks none or cannot be read.
fn missing(module: &Module) -> Option<Missing> {
    let opened = images::of_module(module).ok()?;
    let places = Places::for_file(Path::new(&module.path));
    match Lines::load(opened.image().data(), &places) {
        _ if opened.lacks_symbols() => Some(Missing::Names),
        None => Some(Missing::Lines),
        Some(_) => None,
    }
}

fn of_program(process: &Process, program: &Module) -> Option<Line> {
    let (pid, name) = (process.pid, program.file_name());
    let missing = missing(program)?;
    let opened = images::of_module(program).ok();
    let id = opened.as_ref().and_then(|opened| opened.image().build_id());
    let id_text = id.map_or_else(String::new, |id| format!(" (build id {})", hex(id)));
    let what = match missing {
        Missing::Names => format!(
            "process {pid}: {name} is stripped{id_text}: functions that it does not export have no names"
        ),
        Missing::Lines => {
            format!("process {pid}: {name} has no debug information{id_text}: no source lines")
        }
    };
    Some(line(
        Verdict::Warn,
        what,
        how_to_get(&[program], id.is_some()),
    ))
}

fn of_libraries(process: &Process, stripped: &[&Module]) -> Option<Line> {
    const SHOWN: usize = 4;
    let names: Vec<String> = stripped.iter().map(|m| m.file_name().to_owned()).collect();
    let what = match names.len() {
        0 => return None,
        1 => "1 library is".to_owned(),
        n => format!("{n} libraries are"),
    };
    let more = match names.len().checked_sub(SHOWN) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let what = format!(
        "process {}: {what} stripped: {}{more}",
        process.pid,
        names[..names.len().min(SHOWN)].join(", ")
    );
    Some(line(Verdict::Warn, what, how_to_get(stripped, true)))
}

/// How to get the debug files of these modules.
fn how_to_get(of: &[&Module], has_build_id: bool) -> Hint {
    let mut packages: Vec<String> = of.iter().filter_map(|m| package(&m.path)).collect();
    packages.sort_unstable();
    packages.dedup();
    let packages: Vec<String> = packages.iter().map(|name| debug_package(name)).collect();
    let install = if packages.is_empty() {
        None
    } else {
        Some(hint!(
            "install {} ({})",
            Hint::some_of(&packages, 4),
            Word(archive())
        ))
    };
    let server = match (has_build_id, debuginfod::is_on()) {
        (false, _) => None,
        (true, true) => Some(Hint::from(
            "DEBUGINFOD_URLS is set: debug files are fetched from there when needed",
        )),
        (true, false) => Some(hint!("set DEBUGINFOD_URLS={}", Word(server()))),
    };
    let build = Hint::from("build it with -g and do not strip it");
    match (install, server) {
        (Some(install), Some(server)) => hint!("{}, or {}", install, server),
        (Some(install), None) => install,
        (None, Some(server)) => hint!("{}, or {}", build, server),
        (None, None) => build,
    }
}

/// The archive with packages of debug files.
fn archive() -> &'static str {
    match server() {
        "https://debuginfod.ubuntu.com" => "ddebs.ubuntu.com",
        _ => "deb.debian.org/debian-debug",
    }
}

/// The debuginfod server for the distribution of this machine. [`ANY_SERVER`] if that has none or
/// is unknown.
fn server() -> &'static str {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    server_of(&release)
}

fn server_of(release: &str) -> &'static str {
    let values = |key: &str| -> Vec<String> {
        let line = release.lines().find_map(|line| line.strip_prefix(key));
        let line = line.unwrap_or_default().trim_matches('"');
        line.split_whitespace().map(str::to_owned).collect()
    };
    let names = [values("ID="), values("ID_LIKE=")].concat();
    let known = |name: &String| SERVERS.iter().find(|(id, _)| name.starts_with(id));
    names
        .iter()
        .find_map(known)
        .map_or(ANY_SERVER, |(_, server)| server)
}

/// The Debian package that a file belongs to: deb(5), dpkg-query(1). `None` if it belongs to none.
fn package(path: &str) -> Option<String> {
    const LISTS: &str = "/var/lib/dpkg/info";
    // With a merged /usr a file may be listed without it.
    let other = match path.strip_prefix("/usr") {
        Some(rest) => rest.to_owned(),
        None => format!("/usr{path}"),
    };
    let lists = fs::read_dir(LISTS).ok()?.flatten();
    let mut lists = lists.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let package = name.strip_suffix(".list")?;
        let package = package.split(':').next()?.to_owned();
        let list = fs::read_to_string(entry.path()).ok()?;
        Some((package, list))
    });
    let has_it = |list: &str| list.lines().any(|line| line == path || line == other);
    lists
        .find(|(_, list)| has_it(list))
        .map(|(package, _)| package)
}

/// The package with the debug files of another one.
fn debug_package(package: &str) -> String {
    match package {
        "libc6" => "libc6-dbg".to_owned(),
        package => format!("{package}-dbgsym"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_those_of_the_distribution() {
        for (release, expected) in [
            ("NAME=x\nID=debian\n", "https://debuginfod.debian.net"),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "https://debuginfod.ubuntu.com",
            ),
            ("ID=\"opensuse-leap\"\n", "https://debuginfod.opensuse.org"),
            ("", ANY_SERVER),
        ] {
            assert_eq!(server_of(release), expected, "{release}");
        }
    }

    #[test]
    fn debug_files_of_libc_have_a_package_of_their_own() {
        assert_eq!(debug_package("libc6"), "libc6-dbg");
        assert_eq!(debug_package("coreutils"), "coreutils-dbgsym");
    }
}
