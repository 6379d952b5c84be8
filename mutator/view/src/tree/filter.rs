//! Which paths are shown: filters one upon the other, with a way back.

use regex::Regex;

use super::shape::Shape;
use super::sites::{SiteId, Sites};
use ipath_profile::printable;

/// What is left out.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// Paths on which no function's name matches.
    Through(Regex),
    /// Paths without code of a module whose file name matches.
    Module(Regex),
    /// Paths of threads, or of what else they are kept apart by and is called so, whose name and id do not match.
    Thread(&'static str, Regex),
    /// Rows with less than so large a share of their function.
    Share(f64),
    /// Paths that do not begin so, in this shape.
    Zoom(Shape, Vec<SiteId>),
}

impl Filter {
    /// From what was typed: `module:NAME`, `thread:NAME`, `process:NAME`, `share:1%`, and otherwise a function's name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').unwrap_or(("", text));
        match kind {
            "share" => {
                let number = rest.trim().trim_end_matches('%').trim().parse::<f64>();
                let share = number.ok().filter(|n| (0.0..=100.0).contains(n));
                let share = share.ok_or_else(|| {
                    format!("`{}` is no share of 0 to 100 %", printable(rest.trim()))
                })?;
                Ok(Self::Share(share / 100.0))
            }
            "module" => Ok(Self::Module(expression(rest)?)),
            "thread" => Ok(Self::Thread("thread", expression(rest)?)),
            "process" => Ok(Self::Thread("process", expression(rest)?)),
            "under" => Ok(Self::Through(expression(rest)?)),
            // A name may have colons.
            _ => Ok(Self::Through(expression(text)?)),
        }
    }

    pub(crate) fn describe(&self, sites: &Sites) -> String {
        match self {
            Self::Through(name) => format!("through {}", typed(name)),
            Self::Module(name) => format!("module {}", typed(name)),
            Self::Thread(what, name) => format!("{what} {}", typed(name)),
            Self::Share(share) => format!("at least {:.3} %", 100.0 * share).replace(".000", ""),
            Self::Zoom(_, path) => {
                let last = path.last().map(|&site| &sites.get(site).lines);
                let name = last.and_then(|lines| lines.last()).map_or("", |l| &l.name);
                format!("within {name}")
            }
        }
    }

    /// True if a path, from the function outwards, is shown. `shaped` has it as another shape does.
    pub(super) fn keeps(
        &self,
        sites: &Sites,
        path: &[SiteId],
        shaped: impl Fn(Shape) -> Vec<SiteId>,
    ) -> bool {
        let any = |test: &dyn Fn(&super::sites::Site) -> bool| {
            path.iter().any(|&site| test(sites.get(site)))
        };
        match self {
            Self::Through(name) => any(&|site| {
                !site.is_thread() && site.lines.iter().any(|line| name.is_match(&line.name))
            }),
            Self::Module(name) => any(&|site| name.is_match(&site.module)),
            Self::Thread(_, name) => any(&|site| {
                let mut lines = site.lines.iter();
                site.is_thread() && lines.any(|l| name.is_match(&l.name) || name.is_match(&l.place))
            }),
            Self::Share(_) => true,
            Self::Zoom(shape, begin) => shaped(*shape).starts_with(begin),
        }
    }
}

/// What was typed for an expression.
pub(crate) fn typed(expression: &Regex) -> &str {
    let text = expression.as_str();
    let inner = text
        .strip_prefix(ANY_CASE)
        .and_then(|text| text.strip_suffix(')'));
    inner.unwrap_or(text)
}

/// What begins an expression without regard to case.
const ANY_CASE: &str = "(?i:";

/// A regular expression, without regard to case where it has no capital letter.
pub(crate) fn expression(text: &str) -> Result<Regex, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("nothing to look for".to_owned());
    }
    let has_capital = text.chars().any(char::is_uppercase);
    let whole = if has_capital {
        text.to_owned()
    } else {
        format!("{ANY_CASE}{text})")
    };
    // What is no expression, such as the beginning of `operator(`, means itself.
    let literal = || Regex::new(&format!("{ANY_CASE}{})", regex::escape(text)));
    Regex::new(&whole)
        .or_else(|_| literal())
        .map_err(|_| format!("`{}` is too much to look for", printable(text)))
}
