//! Instructions specified by the user.

use super::Pattern;
use super::glob::Glob;
use super::pattern::{PatternError, glob, split_module};
use crate::addr::{Bias, Svma};
use crate::function::Function;
use crate::image::Image;
use crate::inside::Part;

/// Instructions, as given on the command line: `FUNC+0xOFFSET`, `FUNC:blockN` or `FUNC:loopN`,
/// where `FUNC` is any pattern, `module+0xOFFSET`, `0xADDR`, or `FILE:LINE`, the last after
/// `module!` or alone.
#[derive(Clone, Debug)]
pub struct Spot {
    text: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// An address in a process or in a file.
    Address(Pattern),
    /// An offset in bytes from the start of the functions of a pattern. The whole text may also be
    /// an address: `module+0xOFFSET`.
    Function {
        pattern: Pattern,
        offset: u64,
        whole: Pattern,
    },
    /// A part of the functions of a pattern.
    Part(Pattern, Part),
    /// A line of a source file, in any module or in those that match.
    Line(Option<Glob>, SourceLine),
}

/// Splits `FUNC:blockN`, `FUNC:blocks`, `FUNC:loopN`, `FUNC:loops`, `FUNC:edges`, `FUNC:paths`
/// or `FUNC:trips` into function and part. `None` if the text is something else.
fn split_part(text: &str) -> Option<(&str, Part)> {
    let (function, part) = text.rsplit_once(':')?;
    // `ns::block1` is the name of a function.
    if function.is_empty() || function.ends_with(':') {
        return None;
    }
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let part = match part {
        "blocks" => Part::Blocks,
        "loops" => Part::Loops,
        "edges" => Part::Edges,
        "paths" => Part::Paths,
        "trips" => Part::Trips,
        part => {
            let block = part.strip_prefix("block").and_then(number).map(Part::Block);
            let of_loop = || part.strip_prefix("loop").and_then(number).map(Part::Loop);
            block.or_else(of_loop)?
        }
    };
    Some((function, part))
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The last components of the file's path, with `/` between them.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u32,
}

impl SourceLine {
    /// Parses `FILE:LINE`. `None` if the text is something else.
    fn parse(text: &str) -> Option<Self> {
        let (file, line) = text.rsplit_once(':')?;
        let is_number = line.bytes().all(|byte| byte.is_ascii_digit());
        // `std::5` is part of a name.
        if file.is_empty() || file.ends_with(':') || !is_number {
            return None;
        }
        let line = line.parse().ok().filter(|&line| line != 0)?;
        Some(Self {
            file: file.to_owned(),
            line,
        })
    }

    /// True if the path ends with the components of [`Self::file`].
    pub fn is_in(&self, path: &str) -> bool {
        let wanted = self.file.trim_start_matches("./");
        let before = path.strip_suffix(wanted);
        before.is_some_and(|before| {
            before.is_empty() || before.ends_with('/') || wanted.starts_with('/')
        })
    }
}

impl Spot {
    /// Parses instructions.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let refuse = || PatternError::Spot {
            text: text.to_owned(),
        };
        let (module, rest) = split_module(text);
        let place = if let Some((function, part)) = split_part(text) {
            Place::Part(Pattern::parse(function)?, part)
        } else if let Some((function, offset)) = text.rsplit_once("+0x")
            && !function.is_empty()
        {
            Place::Function {
                offset: u64::from_str_radix(offset, 16).map_err(|_| refuse())?,
                pattern: Pattern::parse(function)?,
                whole: Pattern::parse(text)?,
            }
        } else if let Some(line) = SourceLine::parse(rest) {
            Place::Line(module.map(glob).transpose()?, line)
        } else {
            let whole = Pattern::parse(text)?;
            if !whole.is_address() {
                return Err(refuse());
            }
            Place::Address(whole)
        };
        Ok(Self {
            text: text.to_owned(),
            place,
        })
    }

    /// Parses loops or paths to be timed: `FUNC:loopN`, `FUNC:loops` or `FUNC:paths`. `None` if the
    /// text is something else.
    pub fn parse_timed(text: &str) -> Option<Result<Self, PatternError>> {
        let (function, part) = split_part(text)?;
        let part = match part {
            Part::Loop(number) => Part::TimedLoop(number),
            Part::Loops => Part::TimedLoops,
            Part::Paths => Part::TimedPaths,
            _ => return None,
        };
        let pattern = Pattern::parse(function);
        Some(pattern.map(|pattern| Self {
            text: text.to_owned(),
            place: Place::Part(pattern, part),
        }))
    }

    /// The inlined copies of the functions that a pattern names.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn copies_of(pattern: &str) -> Result<Self, PatternError> {
        Ok(Self {
            text: pattern.to_owned(),
            place: Place::Part(Pattern::parse(pattern)?, Part::Copies),
        })
    }

    /// True for inlined copies.
    pub fn is_of_copies(&self) -> bool {
        self.part() == Some(Part::Copies)
    }

    /// The text from which the spot was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern for functions, if the instruction is specified by its function.
    pub fn function(&self) -> Option<&Pattern> {
        match &self.place {
            Place::Function { pattern, .. } | Place::Part(pattern, _) => Some(pattern),
            Place::Address(_) | Place::Line(..) => None,
        }
    }

    /// The part of the function, if the text is `FUNC:blockN` or similar.
    pub fn part(&self) -> Option<Part> {
        match self.place {
            Place::Part(_, part) => Some(part),
            Place::Address(_) | Place::Function { .. } | Place::Line(..) => None,
        }
    }

    /// The line, if the text is `FILE:LINE` and may mean code in a module with this file name.
    pub fn line_in(&self, module: &str) -> Option<&SourceLine> {
        match &self.place {
            Place::Line(glob, line) => {
                let is_meant = glob.as_ref().is_none_or(|glob| glob.matches(module));
                is_meant.then_some(line)
            }
            Place::Address(_) | Place::Function { .. } | Place::Part(..) => None,
        }
    }

    /// The whole text as a pattern, if it is an address in a process or in a file; otherwise
    /// `None`.
    pub fn address(&self) -> Option<&Pattern> {
        match &self.place {
            Place::Address(whole) => Some(whole),
            Place::Function { whole, .. } => Some(whole).filter(|whole| whole.is_address()),
            Place::Line(..) | Place::Part(..) => None,
        }
    }

    /// The functions in `image`, a file with the name `module`, that the text names. Empty if it
    /// names no functions, or another module.
    pub fn functions(&self, image: &Image<'_>, module: &str) -> Vec<Function> {
        let Some(pattern) = self.function() else {
            return Vec::new();
        };
        if pattern.is_address() || !pattern.module_matches(module) {
            return Vec::new();
        }
        pattern.select(image, module)
    }

    /// The address of the instruction in one of [`Self::functions`], if the text has an offset;
    /// otherwise `None`. It may be outside of the function.
    pub fn offset_in(&self, function: &Function) -> Option<Svma> {
        match self.place {
            Place::Function { offset, .. } => {
                let at = function.range.start.0.checked_add(offset)?;
                Some(Svma(at))
            }
            Place::Address(_) | Place::Part(..) | Place::Line(..) => None,
        }
    }

    /// The link-time address in a file that is loaded with `bias`, if the text is an address;
    /// otherwise `None`. The file is not compared with the module that the text names.
    pub fn address_in(&self, bias: Bias) -> Option<Svma> {
        let whole = self.address()?;
        let absolute = whole.absolute_address().map(|at| bias.to_svma(at));
        absolute.or_else(|| whole.address_in_file())
    }
}

#[cfg(test)]
mod tests {
    use super::{SourceLine, Spot};
    use crate::inside::Part;

    #[test]
    fn spots_are_told_from_functions() {
        let of_function = |text: &str| {
            let spot = Spot::parse(text).expect(text);
            let function = spot.function().map(|p| p.text().to_owned());
            (function, spot.address().is_some())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(of_function("work+0x1c"), (some("work"), true));
        assert_eq!(
            of_function("ns::f(int)+0x0"),
            (some("ns::f(int)"), true),
            "also a file of that name"
        );
        assert_eq!(
            of_function("libc.so*!mem*+0x4"),
            (some("libc.so*!mem*"), false)
        );
        assert_eq!(of_function("0x401136"), (None, true));
        assert_eq!(of_function("app!0x1136"), (None, true));
        for bad in ["work", "work+12", "work+0x", "+0x10", "", "work+0xg"] {
            assert!(Spot::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_told_from_names() {
        let line = |text: &str| Spot::parse(text).ok()?.line_in("libx.so").cloned();
        let some = |file: &str, line| {
            let file = file.to_owned();
            Some(SourceLine { file, line })
        };
        assert_eq!(line("solve.c:120"), some("solve.c", 120));
        assert_eq!(line("src/a b.rs:1"), some("src/a b.rs", 1));
        assert_eq!(line("/src/app/a.rs:7"), some("/src/app/a.rs", 7));
        assert_eq!(line("libx.so!solve.c:120"), some("solve.c", 120));
        for other in [
            "work+0x1c",
            "ns::5",
            "solve.c:",
            ":12",
            "solve.c:0",
            "solve.c:-1",
            "solve.c:12x",
            "solve.c:99999999999",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
        let spot = Spot::parse("libx*!solve.c:120").expect("a line");
        assert!(spot.line_in("libx.so.1").is_some() && spot.line_in("app").is_none());
    }

    #[test]
    fn parts_are_told_from_names_and_lines() {
        let part = |text: &str| {
            let spot = Spot::parse(text).ok()?;
            let function = spot.function().map(|p| p.text().to_owned());
            Some((function?, spot.part()?))
        };
        let some = |name: &str, part| Some((name.to_owned(), part));
        assert_eq!(part("work:block3"), some("work", Part::Block(3)));
        assert_eq!(part("ns::f(int):loop0"), some("ns::f(int)", Part::Loop(0)));
        assert_eq!(part("libm*!s*:loop12"), some("libm*!s*", Part::Loop(12)));
        assert_eq!(part("work:blocks"), some("work", Part::Blocks));
        assert_eq!(part("work:loops"), some("work", Part::Loops));
        assert_eq!(part("work:edges"), some("work", Part::Edges));
        assert_eq!(part("work:paths"), some("work", Part::Paths));
        assert_eq!(part("work:trips"), some("work", Part::Trips));
        assert_eq!(part("app+0x1180:loop0"), some("app+0x1180", Part::Loop(0)));
        for other in [
            "ns::block3",
            "ns::loops",
            "work:block",
            "work:blocks3",
            "work:loop-1",
            ":block3",
        ] {
            assert_eq!(part(other), None, "{other}");
        }
    }

    #[test]
    fn files_match_by_whole_components() {
        let line = |file: &str| SourceLine {
            file: file.to_owned(),
            line: 1,
        };
        assert!(line("solve.c").is_in("/src/app/solve.c"));
        assert!(line("solve.c").is_in("solve.c"));
        assert!(line("app/solve.c").is_in("/src/app/solve.c"));
        assert!(line("./app/solve.c").is_in("/src/app/solve.c"));
        assert!(line("/src/app/solve.c").is_in("/src/app/solve.c"));
        assert!(!line("solve.c").is_in("/src/app/resolve.c"));
        assert!(!line("pp/solve.c").is_in("/src/app/solve.c"));
        assert!(!line("/app/solve.c").is_in("/src/xapp/solve.c"));
    }
}
