//! The command to suggest after a measurement.

use std::path::Path;

use patcher::select::MEANING;
use patcher::{Bias, Svma};

use ipath_base::hint::{CommandLine, Hint, hint};
use ipath_profile::{Function, Profile, Target};
use ipath_session::launch::leads_to;
use ipath_session::session::Places;
use ipath_symbols::images;
use ipath_target::process::modules::modules;
use ipath_target::process::{Pid, Process};

/// The command by which the program was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    /// `attach`: the program was running.
    Attached,
    /// `run`: ipath started the program.
    Started,
    /// `demo`: ipath started its own program.
    Demo,
}

/// The longest name in a command. A longer one is replaced by the function's address.
const LONGEST: usize = 60;

/// The command to suggest after this profile. `file` is the profile's file, if it was written.
/// `None` if nothing was measured.
pub(super) fn next(profile: &Profile, measured: Measured, file: Option<&Path>) -> Option<Hint> {
    if measured == Measured::Demo {
        return Some(hint!("{}", CommandLine::ipath("attach PID --search")));
    }
    if let Some(file) = file.and_then(Path::to_str).filter(|file| *file != "-") {
        let report = CommandLine::ipath("report").file(file);
        return Some(hint!("{}", report));
    }
    let function = profile.functions.get(costliest(profile)?)?;
    let pid = profile.target.pid as i32;
    let process = Process::find(Pid(pid)).ok();
    let is_there = process.is_some();
    let unique = || unique_pattern(profile, function, process.as_ref());
    let unique = || unique().filter(|pattern| pattern.len() <= LONGEST);
    let pattern = plain(function).or_else(unique);
    let pattern = pattern.unwrap_or_else(|| other_pattern(profile, function));
    match (measured, is_there) {
        (Measured::Attached, true) => {
            let attach = CommandLine::ipath("attach").pid(pid);
            let attach = if profile.is_of_tree() {
                attach.with("--children")
            } else {
                attach
            };
            let attach = attach.func(&pattern);
            let attach = match profile.search {
                // The view shows the calls as they come.
                Some(_) => attach.with("-m wall,cpu"),
                None => attach.with("--duration 10s -o profile.json"),
            };
            Some(hint!("{}", attach))
        }
        _ => {
            let run = if profile.is_of_tree() {
                CommandLine::ipath("run --follow")
            } else {
                CommandLine::ipath("run")
            };
            let run = run.func(&pattern);
            let target = &profile.target;
            let (typed, args) = typed(target);
            let run = run.with("-o profile.json --").program(typed, args);
            Some(hint!("{}", run))
        }
    }
}

/// The program and its arguments as typed. If a program has several names, its behavior depends on
/// the name by which it was started.
fn typed(target: &Target) -> (&str, &[String]) {
    let exe = target.exe.as_str();
    match target.args.split_first() {
        Some((name, args)) if leads_to(name, exe) => (name, args),
        Some((_, args)) => (exe, args),
        None => (exe, &[]),
    }
}

/// The index in the profile of the function with the costliest path. `None` without a path.
fn costliest(profile: &Profile) -> Option<usize> {
    if let Some(found) = &profile.search {
        return found.paths.first().map(|path| path.function);
    }
    let metric = profile.timers().next().map(|metric| metric.name.as_str());
    let cost = |path: &&ipath_profile::PathEntry| {
        let stats = metric.and_then(|metric| path.metrics.timers.get(metric));
        stats.map_or(path.metrics.count.into(), |stats| stats.sum)
    };
    profile
        .paths
        .iter()
        .max_by_key(cost)
        .map(|path| path.function)
}

/// The name without arguments. `None` if it is long or contains a character with a special meaning.
fn plain(function: &Function) -> Option<String> {
    let name = function.name.split('(').next().unwrap_or_default();
    let is_short = name.len() <= LONGEST && !name.contains(' ');
    (is_short && is_plain(name)).then(|| name.to_owned())
}

fn is_plain(name: &str) -> bool {
    let has_meaning = |c: char| MEANING.contains(&c) || c == '<' || c.is_control();
    !name.is_empty() && !name.contains(has_meaning)
}

/// The shortest form of the name that matches only this function in the process. If the process has
/// ended, its program file is searched. `None` if there is no such form.
fn unique_pattern(
    profile: &Profile,
    function: &Function,
    process: Option<&Process>,
) -> Option<String> {
    let module = profile.modules.get(function.module)?;
    let start = Svma(function.address);
    match process {
        Some(process) => {
            let modules = modules(process, &process.maps().ok()?);
            let own = modules.iter().find(|own| own.path == module.path)?;
            let bias = own.bias(images::of_module(own).ok()?.image())?;
            let places = Places::of_modules(&modules);
            places.pattern_for(&function.linkage, bias.to_avma(start))
        }
        None => {
            let places = Places::of_file(Path::new(&module.path))?;
            places.pattern_for(&function.linkage, Bias::default().to_avma(start))
        }
    }
}

/// A pattern for a function that no form of its name identifies.
fn other_pattern(profile: &Profile, function: &Function) -> String {
    if is_plain(&function.linkage) && function.linkage.len() <= LONGEST {
        return function.linkage.clone();
    }
    let module = profile.module_name(Some(function.module));
    format!("{module}+{:#x}", function.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_profile::sample::sample;

    #[test]
    fn commands_name_what_was_costliest() {
        let mut profile = sample();
        // No process has this id.
        profile.target.pid = i32::MAX as u32;
        let text = |profile: &Profile, file: Option<&str>| {
            let next = next(profile, Measured::Attached, file.map(Path::new));
            next.map_or_else(String::new, |next| next.to_string())
        };
        let run = "ipath run -f 'Store::load' -o profile.json -- /usr/bin/app --fast";
        assert_eq!(text(&profile, None), run);
        assert_eq!(text(&profile, Some("-")), run);
        assert_eq!(text(&profile, Some("a b.json")), "ipath report 'a b.json'");
        profile.target.pid = std::process::id();
        let pid = std::process::id().to_string();
        let attach = [
            "ipath attach ",
            &pid,
            " -f 'Store::load' --duration 10s -o profile.json",
        ];
        let attach = attach.concat();
        assert_eq!(text(&profile, None), attach);
        // A profile of the process and its descendants.
        let process = |pid, parent| ipath_profile::Process {
            pid,
            parent,
            ..Default::default()
        };
        let own = profile.target.pid;
        profile.processes = vec![process(own, None), process(1, Some(own))];
        let tree = ["ipath attach ", &pid, " --children -f 'Store::load'"].concat();
        assert!(text(&profile, None).starts_with(&tree));
        profile.paths.clear();
        assert_eq!(text(&profile, None), "");
    }

    #[test]
    fn a_program_is_typed_by_the_name_that_it_was_started_by() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let target = |args: &[&str]| Target {
            exe: shell.display().to_string(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..Default::default()
        };
        let file = shell.to_str().unwrap();
        for (args, expected) in [
            (&["sh", "-c", "true"][..], "sh"),
            (&["/bin/sh", "-c", "true"], "/bin/sh"),
            (&["idle: sh", "-c", "true"], file),
            (&["-sh", "-c", "true"], file),
        ] {
            let target = target(args);
            let (program, rest) = typed(&target);
            assert_eq!((program, rest.len()), (expected, 2), "{args:?}");
        }
        assert_eq!(typed(&target(&[])), (file, &[][..]));
    }

    #[test]
    fn patterns_have_one_meaning() {
        let mut profile = sample();
        let function = &mut profile.functions[0];
        for (name, linkage, expected) in [
            ("work", "work", "work"),
            ("a::b(int) const", "_ZNK1a1bEi", "a::b"),
            ("A<int>::f()", "_ZN1AIiE1fEv", "_ZN1AIiE1fEv"),
            ("int f<int>(int)", "_Z1fIiEii", "_Z1fIiEii"),
            ("(*f)()", "", "app+0x11d0"),
        ] {
            function.name = name.to_owned();
            function.linkage = linkage.to_owned();
            let pattern = plain(function);
            let pattern = pattern.unwrap_or_else(|| other_pattern(&sample(), function));
            assert_eq!(pattern, expected);
        }
    }
}
