//! The executions of source lines as an event.
//!
//! KCachegrind and callgrind_annotate add up the events of a function's lines, and have no other
//! way to show a number for a line. The executions are an event of their own, so the other events
//! keep their sums.

use std::collections::BTreeMap;
use std::io::Write;

use crate::export::ExportError;
use crate::export::code::{Code, Listed};
use crate::export::model::{Model, Name};
use crate::profile::{Function, printable};

/// The name of the event.
pub(super) const EVENT: &str = "executed";
/// A description of the event.
pub(super) const ABOUT: &str = "executions of source lines inside functions";

/// The executions of the lines of all counted functions.
pub(super) struct Executed<'p> {
    of: BTreeMap<Name, Lines<'p>>,
    sum: u64,
}

/// The executions of the lines of a function.
struct Lines<'p> {
    function: &'p Function,
    /// By file, then by line. Code without a line has the line 0 of no file.
    counts: BTreeMap<(Option<&'p str>, u32), u64>,
    /// The source file of the entry. `None` if it is not known.
    file: Option<&'p str>,
}

impl<'p> Executed<'p> {
    /// Adds up the executions in functions of the same name.
    ///
    /// # Errors
    /// A sum needs more than 64 bits.
    pub(super) fn of(model: &mut Model<'p>, code: &'p Code) -> Result<Self, ExportError> {
        let large = || ExportError::TooLarge(EVENT.to_owned());
        let mut executed = Self {
            of: BTreeMap::new(),
            sum: 0,
        };
        let profile = model.profile;
        for (index, inside) in profile.graphs() {
            let listed = Listed::of(index, inside, Some(code));
            let function = &profile.functions[inside.function];
            let own = function.file.as_deref();
            let entry = || inside.blocks.iter().find_map(|block| block.file.as_deref());
            let node = model.function_at(inside.function);
            let lines = executed.of.entry(node).or_insert_with(|| Lines {
                function,
                counts: BTreeMap::new(),
                file: own.or_else(entry),
            });
            let counts = listed.lines().into_iter();
            let counts = counts.map(|((file, line), of)| ((Some(file), line), of.count));
            let without = listed.without_lines().map(|block| ((None, 0), block.count));
            for (place, count) in counts.chain(without) {
                executed.sum = executed.sum.checked_add(count).ok_or_else(large)?;
                // The sum of all has room.
                *lines.counts.entry(place).or_default() += count;
            }
        }
        Ok(executed)
    }

    /// The functions.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Name> {
        self.of.keys().copied()
    }

    /// The functions, each with the source file of its entry.
    pub(super) fn places(&self) -> impl Iterator<Item = (Name, &'p Function, Option<&'p str>)> {
        let place = |(&node, lines): (&Name, &Lines<'p>)| (node, lines.function, lines.file);
        self.of.iter().map(place)
    }

    /// The executions of all lines.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Writes the lines of a function. `own` is its file, and `before` the number of events before
    /// this one.
    pub(super) fn write(
        &self,
        node: Name,
        own: Option<&str>,
        before: usize,
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        let mut present = own;
        let zeroes = " 0".repeat(before);
        let counts = self.of.get(&node).map(|lines| &lines.counts);
        for (&(file, line), &count) in counts.into_iter().flatten() {
            let file = file.or(own);
            if file != present {
                // Code of other files is inlined.
                let switch = if file == own { "fe" } else { "fi" };
                writeln!(out, "{switch}={}", printable(file.unwrap_or("???")))?;
                present = file;
            }
            writeln!(out, "{line}{zeroes} {count}")?;
        }
        if present != own {
            writeln!(out, "fe={}", printable(own.unwrap_or("???")))?;
        }
        Ok(())
    }
}
