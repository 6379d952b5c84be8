//! The share of real code that can be patched. `--nocapture` shows the figures.

mod libraries;

use std::collections::BTreeMap;
use std::time::Instant;

use patcher::function::{Function, FunctionKind};
use patcher::image::Image;
use patcher::plan::{Allowed, Effects, ModuleContext, RefuseReason, plan, plan_points};

/// The numbers of probe points that are available in a file.
#[derive(Default)]
struct Coverage {
    /// The number of functions.
    functions: usize,
    /// The number of functions whose entry is available.
    entry: usize,
    /// The number of functions whose entry and exits are all available.
    full: usize,
    /// The number of exits.
    exits: usize,
    /// The number of available exits.
    exits_had: usize,
    /// The number of refused probe points, by kind and reason.
    reasons: BTreeMap<String, usize>,
    /// The number of available probe points, by kind and tactic.
    tactics: BTreeMap<String, usize>,
    /// The number of points, without those in code that may be data.
    points: usize,
    /// The number of available points.
    points_had: usize,
}

impl Coverage {
    fn of(data: &[u8]) -> Self {
        let image = Image::parse(data).expect("an ELF image");
        let context = ModuleContext::new(&image);
        let mut coverage = Self::default();
        for function in image.functions().iter() {
            if function.kind == FunctionKind::Ifunc {
                continue;
            }
            let plan = plan(
                &image,
                &context,
                &function,
                Effects {
                    entry: true,
                    exits: true,
                },
            );
            // In a stripped file, split-off parts of functions are listed separately.
            if plan.entry.outcome == Err(RefuseReason::Fragment) {
                continue;
            }
            coverage.functions += 1;
            coverage.add_points(&image, &context, &function);
            coverage.entry += usize::from(plan.entry.outcome.is_ok());
            coverage.full += usize::from(plan.refused().is_none());
            coverage.exits += plan.exits.len();
            let points = std::iter::once(("entry", &plan.entry))
                .chain(plan.exits.iter().map(|e| ("exit", e)));
            for (what, point) in points {
                match point.outcome {
                    Ok(tactic) => {
                        coverage.exits_had += usize::from(what == "exit");
                        *coverage
                            .tactics
                            .entry(format!("{what} {tactic}"))
                            .or_default() += 1;
                    }
                    Err(reason) => {
                        if std::env::var_os("SHOW_REFUSED").is_some() {
                            println!(
                                "{what} {} {reason} {:#x} {}",
                                point.point.at, function.range.start, function.linkage
                            );
                        }
                        *coverage
                            .reasons
                            .entry(format!("{what} {reason}"))
                            .or_default() += 1;
                    }
                }
            }
        }
        coverage
    }

    /// Adds the points in `function`, planned without entry and exits.
    fn add_points(&mut self, image: &Image<'_>, context: &ModuleContext<'_>, function: &Function) {
        let none = Effects {
            entry: false,
            exits: false,
        };
        let points = libraries::points(image, function);
        let plan = plan_points(image, context, function, (none, &points), Allowed::ALL);
        for point in plan.points {
            let (map, key) = match point.outcome {
                Ok(tactic) => (&mut self.tactics, format!("point {tactic}")),
                Err(reason) => (&mut self.reasons, format!("point {reason}")),
            };
            *map.entry(key).or_default() += 1;
            // These are mostly no-ops that align code: no path reaches them.
            self.points += usize::from(point.outcome != Err(RefuseReason::DataInCode));
            self.points_had += usize::from(point.outcome.is_ok());
        }
    }

    fn print(&self, name: &str) {
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        println!(
            "{name}: {} functions, entry {:.2} %, full {:.2} %; {} exits, {:.2} %; {} points, {:.2} %",
            self.functions,
            percent(self.entry, self.functions),
            percent(self.full, self.functions),
            self.exits,
            percent(self.exits_had, self.exits),
            self.points,
            percent(self.points_had, self.points),
        );
        println!("  refused: {:?}", self.reasons);
        println!("  tactics: {:?}", self.tactics);
    }
}

/// Checks the minimum shares of available entries and exits, in percent, and that 98 percent of the
/// points are available.
fn holds(name: &str, data: &[u8], entry: usize, exits: usize) {
    let started = Instant::now();
    let coverage = Coverage::of(data);
    coverage.print(name);
    println!("  planned in {:?}", started.elapsed());
    assert!(coverage.functions > 0, "{name} has no functions");
    assert!(
        coverage.entry * 100 >= coverage.functions * entry,
        "entries of {name}"
    );
    assert!(
        coverage.exits_had * 100 >= coverage.exits * exits,
        "exits of {name}"
    );
    assert!(
        coverage.points_had * 100 >= coverage.points * 98,
        "points of {name}"
    );
}

#[test]
fn the_c_library_is_covered() {
    holds("libc.so.6", &libraries::libc(), 98, 97);
}

#[test]
fn common_libraries_are_covered() {
    for name in [
        "libstdc++.so.6",
        "libcrypto.so.3",
        "libmpi.so.40",
        "libpython3.11.so.1.0",
    ] {
        if let Some(data) = libraries::library(name) {
            holds(name, &data, 98, 97);
        }
    }
}

#[test]
fn common_programs_are_covered() {
    for path in [
        "/usr/bin/python3.11",
        "/usr/bin/redis-server",
        "/usr/bin/gdb",
    ] {
        if let Ok(data) = std::fs::read(path) {
            holds(path, &data, 98, 97);
        }
    }
}
