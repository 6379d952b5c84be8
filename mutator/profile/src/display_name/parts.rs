//! The parts of a function's name: namespaces and classes, the last name, arguments.

use super::syntax::{self, Name, Node, closing_of, push, text};
use super::tidy::{last_names, tidy};

/// One name of a path, such as `LruCache<int>` in `shop::LruCache<int>::get()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Segment {
    /// The name without the parts below.
    own: Name,
    /// The template arguments. `None` without angle brackets.
    template: Option<Vec<Name>>,
    /// The arguments of a function: of the last one, or of one that encloses local names. `None`
    /// without parentheses.
    arguments: Option<Vec<Name>>,
    /// Text after the arguments, such as ` const`.
    after: String,
    /// The number of nested `::{{closure}}` that this closure stands for besides itself.
    folded: usize,
}

/// A function's name.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// The result type with a space after it. Empty if the name has none.
    result: Name,
    /// The segments between `::`, the outermost first.
    path: Vec<Segment>,
    /// Another suffix than `clone`, such as ` [clone .cold]`. Empty if there is none.
    mark: String,
    /// The suffix of a whole copy of a function, such as ` [clone .isra.0]`. Empty without one.
    clone: String,
}

/// How template arguments are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Templates {
    /// As `<...>`.
    Folded,
    /// With the last names of the types.
    Short,
    Whole,
}

/// A way to write a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// With the result type.
    pub(super) has_result: bool,
    /// With namespaces and outer classes.
    pub(super) is_qualified: bool,
    pub(super) templates: Templates,
    /// `None` omits the arguments.
    pub(super) arguments: Option<Templates>,
    /// With the suffix of a clone, and each closure of a chain.
    pub(super) is_exact: bool,
}

impl Parts {
    /// Parses a demangled name. `None` if its structure is not known.
    pub(super) fn of(name: &str) -> Option<Self> {
        // ` [` can also be inside of other brackets (`<str, [u8]>`). A name cut there does not
        // parse.
        let marks = name.match_indices(" [").map(|(at, _)| name.split_at(at));
        let whole = marks.chain([(name, "")]);
        let mut parsed = whole.filter_map(|(name, mark)| Some((syntax::parse(name)?, mark)));
        let (nodes, mark) = parsed.next()?;
        let nodes = tidy(&nodes);
        let (clone, mark) = if is_copy(mark) {
            (mark, "")
        } else {
            ("", mark)
        };
        let mut parts = Self {
            result: Name::new(),
            path: Vec::new(),
            mark: mark.to_owned(),
            clone: clone.to_owned(),
        };
        let mut segment = Segment::default();
        for node in nodes {
            match node {
                Node::Text(text) => parts.take_text(&mut segment, &text),
                Node::Group('<', items) if segment.own.is_empty() && !parts.path.is_empty() => {
                    // `f::<T>` of Rust.
                    segment = parts.path.pop().unwrap_or_default();
                    segment.template.get_or_insert_default().extend(items);
                }
                Node::Group('<', items) if segment.is_template() => {
                    segment.template = Some(items);
                }
                Node::Group('(', items) if segment.is_function(&items) => {
                    segment.arguments = Some(items);
                }
                // A function that returns a function pointer, or another structure.
                Node::Group('(', _) if segment.arguments.is_some() => return None,
                node => segment.own.push(node),
            }
        }
        parts.path.push(segment);
        parts.fold_closures();
        let is_named = parts.path.iter().all(|segment| !segment.own.is_empty());
        is_named.then_some(parts)
    }

    /// Adds text outside of brackets to `segment`, the last one so far. `::` ends the segment. A
    /// space before the arguments makes all text before it the result type.
    fn take_text(&mut self, segment: &mut Segment, text: &str) {
        let mut rest = text;
        loop {
            let next = rest.find("::").into_iter().chain(rest.find(' ')).min();
            let (own, tail) = rest.split_at(next.unwrap_or(rest.len()));
            segment.take(own);
            if let Some(after) = tail.strip_prefix("::") {
                if segment.is_conversion() {
                    segment.take("::");
                    rest = after;
                    continue;
                }
                self.path.push(std::mem::take(segment));
                rest = after;
            } else if let Some(after) = tail.strip_prefix(' ') {
                if segment.arguments.is_some() || segment.is_operator() {
                    segment.take(" ")
                } else {
                    // All text before the space belongs to the result type.
                    for segment in self.path.drain(..).chain([std::mem::take(segment)]) {
                        if !self.result.is_empty() && !ends_with(&self.result, ' ') {
                            push(&mut self.result, "::");
                        }
                        segment.write(&mut self.result, Form::WHOLE);
                    }
                    push(&mut self.result, " ");
                }
                rest = after;
            } else {
                return;
            }
        }
    }

    /// Shortens `f::{{closure}}::{{closure}}` to `f::{{closure}}`.
    fn fold_closures(&mut self) {
        self.path.dedup_by(|next, last| {
            let is_folded = next.is_rust_closure() && next.own == last.own;
            last.folded += usize::from(is_folded);
            is_folded
        });
    }

    /// Writes the name in this form.
    pub(super) fn write(&self, form: Form) -> String {
        let mut out = Name::new();
        if form.has_result {
            out.extend(self.result.iter().cloned());
        }
        let first = if form.is_qualified {
            0
        } else {
            self.first_needed()
        };
        for (index, segment) in self.path[first..].iter().enumerate() {
            if index > 0 {
                push(&mut out, "::");
            }
            segment.write(&mut out, form);
        }
        let clone = if form.is_exact { &self.clone } else { "" };
        format!("{}{clone}{}", text(&out), self.mark)
    }

    /// True if the name has the suffix of a clone, which is shown only to distinguish functions.
    pub(super) fn is_clone(&self) -> bool {
        !self.clone.is_empty()
    }

    /// The index of the first segment of an unqualified name: the second to last segment that is
    /// not a lambda, or 0 if there are fewer.
    fn first_needed(&self) -> usize {
        let is_local = |index: usize| {
            let of_lambda = index
                .checked_sub(1)
                .is_some_and(|i| self.path[i].is_lambda());
            self.path[index].is_lambda() || of_lambda && text(&self.path[index].own) == "operator()"
        };
        let mut named = (0..self.path.len()).rev().filter(|&index| !is_local(index));
        named.nth(1).unwrap_or(0)
    }

    /// The start of `text` up to the last segment, and that segment without arguments, as in
    /// `a::B<int>::` and `get` of `a::B<int>::get(int)`. `None` if none of `forms` gives `text`.
    pub(super) fn split(&self, text: &str, forms: &[Form]) -> Option<(String, String)> {
        let form = forms.iter().find(|&&form| self.write(form) == text)?;
        let last = self.path.last()?;
        let bare = Segment {
            own: last.own.clone(),
            ..Segment::default()
        };
        let mut path = self.path.clone();
        *path.last_mut()? = bare.clone();
        let parts = Self {
            result: self.result.clone(),
            path,
            mark: String::new(),
            clone: String::new(),
        };
        let (mut method, whole) = (Name::new(), parts.write(*form));
        bare.write(&mut method, *form);
        let method = syntax::text(&method);
        let before = whole.strip_suffix(&method)?;
        text.starts_with(&whole)
            .then(|| (before.to_owned(), method))
    }

    /// The last segment without template arguments and arguments.
    pub(super) fn method(&self) -> String {
        self.path
            .last()
            .map_or(String::new(), |last| text(&folded(&last_names(&last.own))))
    }

    /// The last segment in its short form.
    pub(super) fn last(&self) -> String {
        let mut out = Name::new();
        if let Some(segment) = self.path.last() {
            segment.write(&mut out, Form::SHORT);
        }
        text(&out)
    }
}

impl Form {
    /// Everything but default template arguments, a clone's suffix and nested closures.
    pub(super) const WHOLE: Self = Self {
        has_result: true,
        is_qualified: true,
        templates: Templates::Whole,
        arguments: Some(Templates::Whole),
        is_exact: false,
    };
    /// As `LruCache<...>::get`.
    pub(super) const SHORT: Self = Self {
        has_result: false,
        is_qualified: false,
        templates: Templates::Folded,
        arguments: None,
        is_exact: false,
    };
}

impl Segment {
    /// Adds text to the name, or after the arguments if there are any.
    fn take(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.arguments {
            Some(_) => self.after.push_str(text),
            None => push(&mut self.own, text),
        }
    }

    /// True if angle brackets after this segment hold its template arguments, not a type such as
    /// Rust's `<T as Trait>`.
    fn is_template(&self) -> bool {
        self.arguments.is_none() && self.template.is_none() && !self.own.is_empty()
    }

    /// True if parentheses after this segment hold arguments. `(anonymous namespace)` and Go's
    /// receivers are no arguments.
    fn is_function(&self, items: &[Name]) -> bool {
        let own = text(&self.own);
        let is_type = own.ends_with('.') || own.trim_end().ends_with("decltype");
        let is_anonymous = matches!(items, [item] if text(item) == "anonymous namespace");
        !own.is_empty() && !is_type && !is_anonymous && self.arguments.is_none()
    }

    fn is_operator(&self) -> bool {
        matches!(self.own.first(), Some(Node::Text(text)) if text.starts_with("operator"))
    }

    /// True inside the type of a conversion such as `operator std::string`.
    fn is_conversion(&self) -> bool {
        let is_begun =
            |text: &str| text.starts_with("operator ") && !text.starts_with("operator \"\"");
        self.arguments.is_none() && is_begun(&text(&self.own))
    }

    fn is_rust_closure(&self) -> bool {
        text(&self.own) == "{{closure}}"
    }

    /// True for a function without a name.
    fn is_lambda(&self) -> bool {
        let own = text(&self.own);
        own.starts_with('{') || own.starts_with("'lambda")
    }

    fn write(&self, out: &mut Name, form: Form) {
        let own = match form.templates {
            // The segment itself can contain types: `<Vec<T> as Extend<T>>`, `{lambda(int)#1}`.
            Templates::Folded => folded(&last_names(&self.own)),
            Templates::Short => last_names(&self.own),
            Templates::Whole => self.own.clone(),
        };
        for node in own {
            match node {
                Node::Text(text) => push(out, &text),
                node => out.push(node),
            }
        }
        if let Some(items) = &self.template {
            write_list(out, '<', items, form.templates);
        }
        if let (Some(items), Some(how)) = (&self.arguments, form.arguments) {
            write_list(out, '(', items, how);
            push(out, &self.after);
        }
        for _ in 0..if form.is_exact { self.folded } else { 0 } {
            push(out, "::{{closure}}");
        }
    }
}

/// True if a suffix consists of marks that compilers give to whole copies of functions. A part such
/// as `.cold` is another function.
fn is_copy(mark: &str) -> bool {
    const COPIES: [&str; 5] = ["isra.", "constprop.", "lto_priv.", "llvm.", "__uniq."];
    let mut clones = mark.split(" [clone .").skip(1);
    let is_one = |clone: &str| COPIES.iter().any(|copy| clone.starts_with(copy));
    mark.starts_with(" [clone .") && clones.all(is_one)
}

fn write_list(out: &mut Name, opening: char, items: &[Name], how: Templates) {
    let is_empty = items.iter().all(Vec::is_empty);
    let items = match how {
        Templates::Folded if is_empty => Vec::new(),
        Templates::Folded => vec![vec![Node::Text("...".to_owned())]],
        Templates::Short => items.iter().map(|item| last_names(item)).collect(),
        Templates::Whole => items.to_vec(),
    };
    if items.is_empty() {
        // A group has at least one item, so empty brackets are written as text.
        push(out, &format!("{opening}{}", closing_of(opening)))
    } else {
        out.push(Node::Group(opening, items))
    }
}

/// Replaces template arguments within a type by `...`.
fn folded(name: &[Node]) -> Name {
    let mut out = Name::new();
    for (index, node) in name.iter().enumerate() {
        match node {
            // The type of `<T as Trait>`.
            Node::Group('<', items) if index == 0 => {
                let items = items.iter().map(|item| folded(item)).collect();
                out.push(Node::Group('<', items));
            }
            Node::Group('<', _) => {
                out.push(Node::Group('<', vec![vec![Node::Text("...".to_owned())]]));
            }
            Node::Group('{', items) => {
                let items = items.iter().map(|item| folded(item)).collect();
                out.push(Node::Group('{', items));
            }
            // The arguments of a local function, not `(anonymous namespace)` and Go's `(*T)`.
            Node::Group('(', items)
                if ends_with_word(&out) && items.iter().any(|item| !item.is_empty()) =>
            {
                out.push(Node::Group('(', vec![vec![Node::Text("...".to_owned())]]));
            }
            node => out.push(node.clone()),
        }
    }
    out
}

fn ends_with_word(name: &[Node]) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    matches!(name.last(), Some(Node::Text(text)) if text.ends_with(is_word))
}

fn ends_with(name: &[Node], c: char) -> bool {
    matches!(name.last(), Some(Node::Text(text)) if text.ends_with(c))
}
