//! Demangled names of C++ and Rust as trees of brackets.

/// Text without brackets, or a pair of brackets with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    /// The opening bracket and the items between the commas.
    Group(char, Vec<Name>),
}

/// A name or a type.
pub(super) type Name = Vec<Node>;

/// The maximum nesting that is parsed. Deeper names are not readable in any form.
const DEEPEST: usize = 64;

/// The symbols after `operator`, longest first.
const OPERATORS: &[&str] = &[
    "<<=", ">>=", "<=>", "->*", "()", "[]", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*", "/", "%",
    "^", "&", "|", "~", "!", "=", ",",
];

/// Parses a name. `None` if the brackets do not match or are nested more deeply than [`DEEPEST`].
pub(super) fn parse(text: &str) -> Option<Name> {
    let mut parser = Parser { text, at: 0 };
    let mut items = parser.items(None, 0)?;
    match items.len() {
        1 => items.pop(),
        // Only commas inside of brackets separate items, so there is exactly one.
        _ => None,
    }
}

struct Parser<'t> {
    text: &'t str,
    /// The next byte of `text` to parse.
    at: usize,
}

impl Parser<'_> {
    /// Parses the items up to the closing bracket, which is consumed. Without `closing`, parses up
    /// to the end. `None` if brackets do not match or are nested too deeply.
    fn items(&mut self, closing: Option<char>, depth: usize) -> Option<Vec<Name>> {
        if depth > DEEPEST {
            return None;
        }
        let mut items = vec![Name::new()];
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return closing.is_none().then_some(items);
            };
            let item = items.last_mut()?;
            if let Some(operator) = operator_at(self.text, self.at) {
                push(item, operator);
                self.at += operator.len();
                continue;
            }
            self.at += c.len_utf8();
            match c {
                // `->` before the result of a Rust function type.
                '>' if rest_before(self.text, self.at - 1).ends_with('-') => push(item, ">"),
                c if Some(c) == closing => return Some(items),
                ')' | '>' | ']' | '}' => return None,
                '(' | '<' | '[' | '{' => {
                    let group = self.items(Some(closing_of(c)), depth + 1)?;
                    items.last_mut()?.push(Node::Group(c, group));
                }
                ',' if closing.is_some() => {
                    if self.text[self.at..].starts_with(' ') {
                        self.at += 1;
                    }
                    items.push(Name::new());
                }
                c => push(item, c.encode_utf8(&mut [0; 4])),
            }
        }
    }
}

/// The symbols of an operator's name at the byte `at`. `None` unless the word `operator` ends there
/// and such symbols follow.
fn operator_at(text: &str, at: usize) -> Option<&'static str> {
    let before = text.get(..at)?.strip_suffix("operator")?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(is_word) {
        return None;
    }
    let rest = &text[at..];
    OPERATORS
        .iter()
        .copied()
        .find(|symbols| rest.starts_with(symbols))
}

fn rest_before(text: &str, at: usize) -> &str {
    &text[..at]
}

/// The closing bracket for an opening one.
pub(super) fn closing_of(opening: char) -> char {
    match opening {
        '(' => ')',
        '<' => '>',
        '[' => ']',
        _ => '}',
    }
}

/// Appends text to a name, to its last node if that is text.
pub(super) fn push(name: &mut Name, text: &str) {
    match name.last_mut() {
        Some(Node::Text(last)) => last.push_str(text),
        _ => name.push(Node::Text(text.to_owned())),
    }
}

/// The name as text. Nested closing brackets have no space between them.
pub(super) fn text(name: &[Node]) -> String {
    let mut out = String::new();
    write(name, &mut out);
    out
}

fn write(name: &[Node], out: &mut String) {
    for node in name {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Group(opening, items) => {
                out.push(*opening);
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    write(item, out);
                }
                out.push(closing_of(*opening));
            }
        }
    }
}
