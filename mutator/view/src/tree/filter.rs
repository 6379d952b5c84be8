//! The paths to show: a stack of filters. The last one can be removed.

use regex::Regex;

use super::shape::Shape;
use super::sites::{SiteId, Sites};
use ipath_profile::printable;

/// A rule for the paths or rows to keep.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// Keeps paths with a function whose name matches.
    Through(Regex),
    /// Keeps paths with code of a module whose file name matches.
    Module(Regex),
    /// Keeps paths of the threads (or processes, as the text says) whose name or id matches.
    Thread(&'static str, Regex),
    /// Keeps rows with at least this share of their function.
    Share(f64),
    /// Keeps paths that begin with these sites in this shape.
    Zoom(Shape, Vec<SiteId>),
}

impl Filter {
    /// Parses a filter: `module:NAME`, `thread:NAME`, `process:NAME`, `share:1%`, otherwise the
    /// name of a function, which may follow `under:`. An error if the share is not a percentage, or
    /// [`expression`] fails.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').unwrap_or(("", text));
        match kind {
            "share" => {
                let number = rest.trim().trim_end_matches('%').trim().parse::<f64>();
                let share = number.ok().filter(|n| (0.0..=100.0).contains(n));
                let share = share.ok_or_else(|| {
                    format!("`{}` is not a share of 0 to 100 %", printable(rest.trim()))
                })?;
                Ok(Self::Share(share / 100.0))
            }
            "module" => Ok(Self::Module(expression(rest)?)),
            "thread" => Ok(Self::Thread("thread", expression(rest)?)),
            "process" => Ok(Self::Thread("process", expression(rest)?)),
            "under" => Ok(Self::Through(expression(rest)?)),
            // Names may contain colons.
            _ => Ok(Self::Through(expression(text)?)),
        }
    }

    /// The description for the user.
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

    /// True if the filter keeps a path, given from the function outwards. `shaped` returns it in
    /// another shape.
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

/// The text from which an expression was made.
pub(crate) fn typed(expression: &Regex) -> &str {
    let text = expression.as_str();
    let inner = text
        .strip_prefix(ANY_CASE)
        .and_then(|text| text.strip_suffix(')'));
    inner.unwrap_or(text)
}

/// The prefix of expressions that ignore case.
const ANY_CASE: &str = "(?i:";

/// A regular expression. It ignores case if the text has no capital letter. Text that is no valid
/// expression is taken literally, ignoring case. An error if it is empty or too large.
pub(crate) fn expression(text: &str) -> Result<Regex, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("nothing to find".to_owned());
    }
    let has_capital = text.chars().any(char::is_uppercase);
    let whole = if has_capital {
        text.to_owned()
    } else {
        format!("{ANY_CASE}{text})")
    };
    // A text that is not a valid expression, such as the beginning of `operator(`, is taken
    // literally.
    let literal = || Regex::new(&format!("{ANY_CASE}{})", regex::escape(text)));
    Regex::new(&whole)
        .or_else(|_| literal())
        .map_err(|_| format!("`{}` is too large to search for", printable(text)))
}
