//! Shortens function names to the width of a column.
//!
//! A demangled name of C++ or Rust can have hundreds of characters. It is written in the longest of
//! four forms that fits: with result and arguments, without them, with template arguments folded
//! (`shop::LruCache<...>::get`), and without namespaces. If no form fits, the middle of the
//! shortest is replaced by `…`, and its end stays. Functions on one screen that would look the same
//! are written with the part in which they differ.

mod chain;
mod generated;
mod parsed;
mod parts;
mod syntax;
mod tidy;

#[cfg(test)]
pub(crate) mod tests;

use rustc_hash::{FxHashMap, FxHashSet};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use chain::{Chain, Link, fit_chains};
use parsed::Parsed;
use parts::{Form, Parts, Templates};

/// Replaces omitted text.
const GAP: &str = "…";
/// Replaces `::{{closure}}` in the narrowest form.
const CLOSURE: &str = "{}";
/// The fewest terminal columns that show a difference.
const LEAST: usize = 8;

/// The forms from which the first that fits is chosen, the longest first.
const FORMS: [Form; 4] = [
    Form::WHOLE,
    Form {
        has_result: false,
        arguments: None,
        ..Form::WHOLE
    },
    Form {
        is_qualified: true,
        ..Form::SHORT
    },
    Form::SHORT,
];

/// The forms that distinguish functions with the same short name, the shortest first.
const TELLING: [Form; 10] = [
    Form {
        is_exact: true,
        ..Form::SHORT
    },
    Form {
        templates: Templates::Short,
        ..Form::SHORT
    },
    Form {
        is_qualified: true,
        ..Form::SHORT
    },
    Form {
        arguments: Some(Templates::Short),
        ..Form::SHORT
    },
    Form {
        templates: Templates::Short,
        arguments: Some(Templates::Short),
        ..Form::SHORT
    },
    Form {
        is_qualified: true,
        templates: Templates::Short,
        ..Form::SHORT
    },
    Form {
        has_result: false,
        arguments: None,
        ..Form::WHOLE
    },
    Form {
        has_result: false,
        ..Form::WHOLE
    },
    Form::WHOLE,
    Form {
        is_exact: true,
        ..Form::WHOLE
    },
];

/// Shortens the demangled `name` to at most `width` columns. A name that fits is unchanged, unless
/// it is a name of generated code or a clone's, or contains a part that users do not write.
pub fn fit(name: &str, width: usize) -> String {
    fit_parsed(name, Parsed::of(name).as_ref(), width)
}

/// The last name of the demangled `name`, without namespaces, classes, template arguments and
/// arguments. The whole `name` if its structure is not known.
pub fn method(name: &str) -> String {
    Parsed::of(name).map_or_else(|| name.to_owned(), |parsed| parsed.method())
}

/// The columns of the demangled `name` in its shortest form without a gap. Those of the whole name
/// if its structure is not known.
pub fn least_width(name: &str) -> usize {
    let Some(parts) = Parts::of(name) else {
        return name.width();
    };
    let short = parts.write(Form::SHORT);
    without_trait(&short).unwrap_or(short).width()
}

/// The forms in which a screen may show the demangled `name` without a gap, as far as they contain
/// `<` or `:`. First those for a width, the shortest first, then those that tell names apart. Empty
/// if the structure of the name is not known.
pub fn short_forms(name: &str) -> Vec<String> {
    let Some(parts) = Parts::of(name) else {
        return Vec::new();
    };
    let forms = FORMS.iter().rev().chain(&TELLING);
    let mut all: Vec<String> = forms.map(|&form| parts.write(form)).collect();
    all.extend(all.first().and_then(|shortest| without_trait(shortest)));
    all.push(parts.last());
    all.retain(|form| form.contains(['<', ':']));
    all
}

/// True if the demangled `name` is a compiler's copy of a function: `f [clone .isra.0]`.
pub fn is_clone(name: &str) -> bool {
    Parts::of(name).is_some_and(|parts| parts.is_clone())
}

/// Shortens a parsed name like [`fit`]. `parsed` is `None` if the name's structure is not known.
fn fit_parsed(name: &str, parsed: Option<&Parsed>, width: usize) -> String {
    let is_shortened = parsed.is_some_and(Parsed::is_always_shortened) || is_expanded(name);
    if name.width() <= width && !is_shortened {
        return name.to_owned();
    }
    let Some(parts) = parsed else {
        return without_middle(name, "", width);
    };
    let forms = FORMS.iter().map(|&form| parts.write(form));
    let mut shortest = String::new();
    for form in forms {
        if form.width() <= width {
            return form;
        }
        shortest = form;
    }
    if let Some(own) = without_trait(&shortest) {
        if own.width() <= width {
            return own;
        }
        shortest = own;
    }
    if let Some(closure) = narrow_closure(&shortest, width) {
        return closure;
    }
    let last = parts.last();
    if last.width() + GAP.width() <= width {
        return without_middle(&shortest, &last, width);
    }
    match parts.method() {
        method if method.width() <= width => method,
        _ => without_middle(&last, "", width),
    }
}

/// `handle{}` for `shop::handle::{{closure}}`, with `{}` for each closure, in at most `width`
/// columns. `None` for a name that is no closure's, or if not even the `{}` fit.
fn narrow_closure(short: &str, width: usize) -> Option<String> {
    let own = short.trim_end_matches("::{{closure}}");
    let closures = short[own.len()..].matches("::").count();
    let closures = CLOSURE.repeat(closures);
    let room = width.checked_sub(closures.len())?;
    let last = own.rsplit("::").next().unwrap_or(own);
    (own != short).then(|| without_middle(last, "", room) + &closures)
}

/// `Store<...>::get` for `<Store<...> as Lookup<...>>::get`. `None` for a name of another form.
fn without_trait(text: &str) -> Option<String> {
    let inner = text.strip_prefix('<')?;
    let mut depth = 1_usize;
    let closing = |&(_, c): &(usize, char)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    let (end, _) = inner.char_indices().find(closing)?;
    let (own, after) = (inner[..end].split(" as ").next()?, &inner[end + 1..]);
    (own.len() < end).then(|| format!("{own}{after}"))
}

/// Shortens the demangled names of one screen to at most `width` columns each. Different names stay
/// different.
pub fn fit_all(names: &[&str], width: usize) -> Vec<String> {
    let names: Vec<(&str, usize)> = names.iter().map(|&name| (name, width)).collect();
    fit_each(&names)
}

/// Shortens the demangled names of one screen, each to at most the number of columns beside it.
/// Different names stay different.
pub fn fit_each(names: &[(&str, usize)]) -> Vec<String> {
    let parts: Vec<Option<Parsed>> = names.iter().map(|(name, _)| Parsed::of(name)).collect();
    let parsed = names.iter().zip(&parts);
    let mut shown: Vec<String> = parsed
        .map(|(&(name, width), parts)| fit_parsed(name, parts.as_ref(), width))
        .collect();
    let mut alike: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for (index, (&(name, width), parts)) in names.iter().zip(&parts).enumerate() {
        let short = parts.as_ref().map(|parts| parts.write(Form::SHORT));
        let short = short.unwrap_or_else(|| name.to_owned());
        let short = if short.width() <= width {
            short
        } else {
            narrow_closure(&short, width).unwrap_or_else(|| without_middle(&short, "", width))
        };
        alike.entry(short).or_default().push(index);
    }
    let mut screen = Screen {
        names,
        parts: &parts,
        shown: &mut shown,
    };
    for members in alike.into_values() {
        screen.tell_apart(members);
    }
    screen.mark_alike();
    shown
}

/// True if a name contains a part that users do not write.
fn is_expanded(name: &str) -> bool {
    const PARTS: [&str; 5] = [
        "std::allocator<",
        "std::char_traits<",
        "std::default_delete<",
        "__cxx11::",
        "std::__1::",
    ];
    PARTS.iter().any(|part| name.contains(part))
}

/// Names that are shown together.
struct Screen<'s> {
    /// Each demangled name with its width in terminal columns.
    names: &'s [(&'s str, usize)],
    /// The parsed names, in the order of `names`. `None` if the structure is not known.
    parts: &'s [Option<Parsed>],
    /// The shortened names, in the order of `names`.
    shown: &'s mut Vec<String>,
}

impl Screen<'_> {
    /// Writes functions that share a short name in forms in which they differ. `members` are
    /// indexes into `names`. Does nothing if all members have the same name.
    fn tell_apart(&mut self, mut members: Vec<usize>) {
        if !self.are_different(&members) {
            return;
        }
        for form in FORMS {
            let texts = self.written(&members, |parts| parts.write(form));
            if texts.iter().all(|(index, text)| self.fits(*index, text))
                && self.repeated(&texts).is_empty()
            {
                return self.show(texts);
            }
        }
        let mut long: FxHashMap<usize, String> = FxHashMap::default();
        let mut left: FxHashSet<usize> = members.iter().copied().collect();
        for form in TELLING {
            let texts = self.written(&members, |parts| parts.telling(form));
            let repeated = self.repeated(&texts);
            for (index, text) in texts {
                if !left.contains(&index) {
                    continue;
                }
                match (repeated.contains(&index), self.fits(index, &text)) {
                    (false, true) => {
                        self.shown[index] = text;
                        left.remove(&index);
                    }
                    (false, false) if form.is_exact && text.ends_with("{{closure}}") => {
                        let width = self.names[index].1;
                        if let Some(narrow) = narrow_closure(&text, width) {
                            self.shown[index] = narrow;
                            left.remove(&index);
                        }
                    }
                    (false, false) => drop(long.entry(index).or_insert(text)),
                    (true, _) => {}
                }
            }
        }
        members.retain(|index| left.contains(index));
        let whole = self
            .written(&members, |parts| parts.telling(Form::WHOLE))
            .into_iter();
        let mut texts: Vec<(usize, String)> = whole
            .map(|(index, text)| (index, long.remove(&index).unwrap_or(text)))
            .collect();
        texts.sort_by(|a, b| a.1.cmp(&b.1));
        let cut: Vec<(usize, String)> = (0..texts.len())
            .map(|at| (texts[at].0, self.around_difference(&texts, at)))
            .collect();
        self.show(cut);
    }

    fn fits(&self, index: usize, text: &str) -> bool {
        text.width() <= self.names[index].1
    }

    fn show(&mut self, texts: Vec<(usize, String)>) {
        for (index, text) in texts {
            self.shown[index] = text;
        }
    }

    /// The text that `write` gives for each of the names at `members`, with its index. A name whose
    /// structure is not known is its own text.
    fn written(
        &self,
        members: &[usize],
        write: impl Fn(&Parsed) -> String,
    ) -> Vec<(usize, String)> {
        let text = |index: usize| match &self.parts[index] {
            Some(parts) => write(parts),
            None => self.names[index].0.to_owned(),
        };
        members.iter().map(|&index| (index, text(index))).collect()
    }

    /// True if the names at `members` are not all equal.
    fn are_different(&self, members: &[usize]) -> bool {
        let first = members.first().map(|&index| self.names[index].0);
        members
            .iter()
            .any(|&index| Some(self.names[index].0) != first)
    }

    /// The indexes of the names whose text equals that of a function with another name.
    fn repeated(&self, texts: &[(usize, String)]) -> FxHashSet<usize> {
        let mut by_text: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (index, text) in texts {
            by_text.entry(text).or_default().push(*index);
        }
        let groups = by_text.into_values();
        groups
            .filter(|own| self.are_different(own))
            .flatten()
            .collect()
    }

    /// One of the sorted texts, cut to the method and the place where the text differs from its
    /// neighbors.
    fn around_difference(&self, texts: &[(usize, String)], at: usize) -> String {
        let (index, text) = &texts[at];
        let width = self.names[*index].1;
        if text.width() <= width {
            return text.clone();
        }
        let shared = |other: Option<&(usize, String)>| {
            let other = other.map_or("", |(_, text)| text);
            let both = text.chars().zip(other.chars());
            both.take_while(|(a, b)| a == b).count()
        };
        // Adjacent rows may show one function twice.
        let is_other = |other: &&(usize, String)| other.1 != *text;
        let before = shared(texts[..at].iter().rev().find(is_other));
        let differs_at = before.max(shared(texts[at..].iter().find(is_other)));
        let split = self.parts[*index]
            .as_ref()
            .and_then(|parts| parts.split(text, &TELLING));
        let (before, method) = split.unwrap_or_default();
        let after = &text[before.len() + method.len()..];
        let ahead = before.chars().count();
        let most = width.saturating_sub(LEAST + 2 * GAP.width());
        if differs_at < ahead {
            let method = without_middle(&method, "", most);
            let last = self.parts[*index]
                .as_ref()
                .map_or(String::new(), Parsed::last);
            let last = if last.starts_with(&method) && last.width() <= most {
                &last
            } else {
                &method
            };
            return cut_around(&before, differs_at, last, width);
        }
        let lead = if before.width() <= width / 3 {
            before.as_str()
        } else {
            ""
        };
        let whole = ahead + method.chars().count();
        let (lead, rest, differs_at) = match (differs_at >= whole, lead.width() + method.width()) {
            (true, kept) if kept <= most => (format!("{lead}{method}"), after, differs_at - whole),
            (true, _) if method.width() <= most => (method, after, differs_at - whole),
            _ => (String::new(), &text[before.len()..], differs_at - ahead),
        };
        let end = end_of(rest, 1);
        let rest = rest.strip_suffix(end).unwrap_or(rest);
        let room = width.saturating_sub(lead.width());
        lead + &cut_around(rest, differs_at, end, room)
    }

    /// Appends ` #` and a hash of the whole name to functions that still look the same.
    fn mark_alike(&mut self) {
        for digits in [4, 8] {
            let texts: Vec<(usize, String)> = self.shown.iter().cloned().enumerate().collect();
            for index in self.repeated(&texts) {
                let (name, width) = self.names[index];
                let number = fingerprint(name) >> (32 - 4 * digits);
                let mark = format!(" #{number:0digits$x}");
                let room = width.saturating_sub(mark.len());
                let text = fit_parsed(name, self.parts[index].as_ref(), room);
                self.shown[index] = text + &mark;
            }
        }
    }
}

/// `body` followed by `end` in `width` columns. If there is too little room, `body` is cut to its
/// start and the text around the character at `differs_at`.
fn cut_around(body: &str, differs_at: usize, end: &str, width: usize) -> String {
    if body.width() + end.width() <= width {
        return format!("{body}{end}");
    }
    let room = width.saturating_sub(end.width() + GAP.width());
    let head = if differs_at + LEAST / 2 < room {
        // The start contains the difference.
        room
    } else {
        room / 3
    };
    let head = start_of(body, head);
    let room = room - head.width();
    if room <= GAP.width() {
        return format!("{head}{GAP}{end}");
    }
    // The middle begins a few characters before the difference.
    let begin = differs_at.saturating_sub(LEAST / 2);
    let middle: String = body.chars().skip(begin).collect();
    if middle.width() <= room {
        format!("{head}{GAP}{middle}{end}")
    } else {
        let middle = start_of(&middle, room - GAP.width());
        format!("{head}{GAP}{middle}{GAP}{end}")
    }
}

/// A hash of a name (FNV-1a), which is the same in each run.
fn fingerprint(name: &str) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    name.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(PRIME)
    })
}

/// `text` without its middle, in at most `width` columns. Its end `last` is kept whole if there is
/// room.
fn without_middle(text: &str, last: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(GAP.width()) else {
        return String::new();
    };
    let kept = match last.width() {
        own if own > 0 && own <= room && text.ends_with(last) => own + (room - own) / 3,
        _ => room - room / 3,
    };
    let end = end_of(text, kept);
    let start = start_of(text, room - end.width());
    format!("{start}{GAP}{end}")
}

/// The longest start of `text` that fits into `width` columns.
pub fn start_of(text: &str, width: usize) -> &str {
    let mut used = 0;
    let fits = |&(_, c): &(usize, char)| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    let end = text.char_indices().take_while(fits).last();
    &text[..end.map_or(0, |(at, c)| at + c.len_utf8())]
}

/// The longest end of `text` that fits into `width` columns.
fn end_of(text: &str, width: usize) -> &str {
    let mut used = 0;
    let fits = |&(_, c): &(usize, char)| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    let start = text.char_indices().rev().take_while(fits).last();
    &text[start.map_or(text.len(), |(at, _)| at)..]
}
