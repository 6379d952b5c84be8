//! The slowest calls of functions, in words.

use super::{Report, Titles, human, more, threads};
use crate::display_name;
use crate::profile::{Profile, SingleCall, printable};
use rustc_hash::FxHashSet;
use std::io::{self, Write};

/// The most terminal columns for the name of a function that a call has called.
const LONGEST: usize = 40;

impl Profile {
    /// The arguments and the return value of a single call: `(1, ?, 3) = 7`. Empty if neither is
    /// known.
    pub fn values_text(&self, call: &SingleCall) -> String {
        let value = |value: &Option<i64>| value.map_or_else(|| "?".to_owned(), |v| v.to_string());
        let args: Vec<String> = call.args.iter().map(value).collect();
        let mut text = String::new();
        if !args.is_empty() {
            text = format!("({})", args.join(", "));
        }
        if let Some(ret) = call.ret {
            let space = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{space}= {ret}"));
        }
        text
    }

    /// The parts of a single call's time: `2.00 ms itself, 8.00 ms in read, 1.00 ms in other
    /// measured functions; 7.00 ms off the processors`. Names are raw: escape them before display.
    pub fn parts_text(&self, call: &SingleCall) -> String {
        let time = |ns: u64| human::time(ns.into());
        let mut parts = Vec::new();
        if call.nested > 0 {
            parts.push(format!("{} itself", time(call.own())));
            let mut callees = call.callees.clone();
            callees.sort_by_key(|callee| std::cmp::Reverse(callee.wall));
            for callee in callees {
                let name = &self.functions[callee.function].name;
                let name = display_name::fit(name, LONGEST);
                let mark = if callee.partial { "≥" } else { "" };
                parts.push(format!("{mark}{} in {name}", time(callee.wall)));
            }
            let others = call.in_others();
            if others > 0 {
                parts.push(format!("{} in other measured functions", time(others)));
            }
        }
        let mut text = parts.join(", ");
        if let Some(blocked) = call.blocked() {
            let before = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!("{before}{} off the processors", time(blocked)));
        }
        text
    }
}

impl Profile {
    /// A single call in lines: its time, start, thread and values, and below it the parts of its
    /// time, if they are known. Names are raw: escape them before display.
    pub fn call_lines(&self, call: &SingleCall, thread: &str) -> Vec<String> {
        let process = call
            .process
            .and_then(|index| Titles::of(self).title(index))
            .map_or(String::new(), |title| format!(" {title},"));
        let line = format!(
            "{} at {},{process} {thread}  {}",
            human::time(call.wall.into()),
            human::time(call.start_ns.into()),
            self.values_text(call),
        );
        let parts = self.parts_text(call);
        let parts = (!parts.is_empty()).then_some(parts);
        let first = line.trim_end().to_owned();
        std::iter::once(first).chain(parts).collect()
    }
}

impl<'p> Report<'p> {
    /// The slowest calls of the function with this index on the selected paths.
    pub(super) fn slowest_of(&self, function: usize) -> Vec<&'p SingleCall> {
        let paths = self.paths[function].iter().map(|&(path, _)| path);
        let paths: FxHashSet<usize> = paths.collect();
        let calls = self.profile.functions[function].slowest.iter();
        calls.filter(|call| paths.contains(&call.path)).collect()
    }

    /// Writes the slowest calls of the functions listed, on the selected paths.
    pub(super) fn slowest(&self, out: &mut impl Write) -> io::Result<()> {
        /// Frames shown of a call's path.
        const FRAMES: usize = 4;
        /// Names shown of these frames. Each inlined function has one.
        const NAMES: usize = 6;
        let profile = self.profile;
        let listed = self.listed().iter().copied();
        let has_calls = |&f: &usize| !profile.functions[f].slowest.is_empty();
        let listed: Vec<usize> = listed.filter(has_calls).collect();
        if listed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nSlowest calls:")?;
        for f in listed {
            let function = &profile.functions[f];
            let calls = self.slowest_of(f);
            if calls.is_empty() {
                continue;
            }
            let name = display_name::fit(&function.name, self.longest());
            writeln!(out, "  {}", printable(&name))?;
            for call in calls.iter().take(self.limit()) {
                let title = threads::title(&self.threads, call.thread);
                for (number, line) in profile.call_lines(call, &title).iter().enumerate() {
                    let indent = if number == 0 { "    " } else { "      " };
                    writeln!(out, "{indent}{}", printable(line))?;
                }
                let path = &profile.paths[call.path];
                let depth = match (self.options.verbose, self.options.depth) {
                    (true, depth) => depth.unwrap_or(usize::MAX),
                    (false, depth) => FRAMES.min(depth.unwrap_or(usize::MAX)),
                };
                let frames = path.stack.iter().take(depth);
                let names = frames.flat_map(|&frame| self.lines(frame).iter());
                let mut names: Vec<String> = names.map(|line| line.whole()).collect();
                if !self.options.verbose && names.len() > NAMES {
                    names.truncate(NAMES);
                    names.push("…".to_owned());
                }
                let hidden = path.stack.len().saturating_sub(depth);
                if hidden > 0 {
                    names.push(more(hidden, "frame"));
                }
                if let Some(apart) = profile.apart(path) {
                    names.insert(0, format!("[{}]", printable(&apart)));
                }
                if !names.is_empty() {
                    writeln!(out, "      < {}", names.join(" < "))?;
                }
            }
            if calls.len() > self.limit() {
                let hidden = more(calls.len() - self.limit(), "call");
                writeln!(out, "    {hidden}; {}", self.options.all_by)?;
            }
        }
        Ok(())
    }
}
