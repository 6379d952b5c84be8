//! Rewrites types as users write them: `std::string` for its expansion, no default arguments.

use super::syntax::{Name, Node, text};

/// Namespaces that standard libraries insert and no user writes.
const INLINE_NAMESPACES: [&str; 3] = ["__cxx11::", "__1::", "_V2::"];

/// The class templates of a character type, without the prefix `basic_`. For `char`, these are also
/// the names of the usual aliases.
const CHARACTER_TEMPLATES: [&str; 14] = [
    "string",
    "string_view",
    "ostream",
    "istream",
    "iostream",
    "ios",
    "streambuf",
    "ifstream",
    "ofstream",
    "fstream",
    "filebuf",
    "stringstream",
    "ostringstream",
    "istringstream",
];

/// Templates that are common default arguments: `std::less<K>` in `std::set<K, std::less<K>>`.
const DEFAULTS: [&str; 6] = [
    "std::allocator",
    "std::char_traits",
    "std::less",
    "std::hash",
    "std::equal_to",
    "std::default_delete",
];

/// Shortens the types in all brackets of a name.
pub(super) fn tidy(name: &[Node]) -> Name {
    let mut out = Name::new();
    for node in name {
        match node {
            Node::Text(text) => super::syntax::push(&mut out, &without_inline_namespaces(text)),
            Node::Group('<', items) => {
                let mut items: Vec<Name> = items.iter().map(|item| tidy(trimmed(item))).collect();
                drop_defaults(&mut items);
                if !becomes_alias(&mut out, &items) {
                    out.push(Node::Group('<', items));
                }
            }
            Node::Group(opening, items) => {
                let items = items.iter().map(|item| tidy(item)).collect();
                out.push(Node::Group(*opening, items));
            }
        }
    }
    out
}

/// Removes the space that cpp_demangle writes between two closing brackets.
fn trimmed(item: &[Node]) -> &[Node] {
    match item.split_last() {
        Some((Node::Text(text), rest)) if text == " " => rest,
        _ => item,
    }
}

fn without_inline_namespaces(text: &str) -> String {
    let mut out = text.replace("[abi:cxx11]", "");
    for namespace in INLINE_NAMESPACES {
        out = out.replace(namespace, "");
    }
    out
}

/// Removes the default arguments at the end of a list.
fn drop_defaults(items: &mut Vec<Name>) {
    while items.len() > 1 {
        let first = text(&items[0]);
        let Some([Node::Text(template), Node::Group('<', of)]) = items.last().map(Vec::as_slice)
        else {
            return;
        };
        let is_default = match template.as_str() {
            // The allocator of a map allocates pairs, not its first argument.
            "std::allocator" => true,
            template => {
                DEFAULTS.contains(&template) && of.first().map(|of| text(of)) == Some(first)
            }
        };
        if !is_default {
            return;
        }
        items.pop();
    }
}

/// Replaces `std::basic_string` before `<char>` by `std::string`, and similar templates by their
/// aliases. True if a template was replaced.
fn becomes_alias(out: &mut Name, items: &[Name]) -> bool {
    let [item] = items else { return false };
    let prefix = match text(item).as_str() {
        "char" => "",
        "wchar_t" => "w",
        _ => return false,
    };
    let Some(Node::Text(before)) = out.last_mut() else {
        return false;
    };
    let Some((start, template)) = before.rsplit_once("std::basic_") else {
        return false;
    };
    if !CHARACTER_TEMPLATES.contains(&template) {
        return false;
    }
    *before = format!("{start}std::{prefix}{template}");
    true
}

/// Shortens types to their last names: `shop::Item` to `Item`.
pub(super) fn last_names(name: &[Node]) -> Name {
    name.iter()
        .map(|node| match node {
            Node::Text(text) => Node::Text(last_of_paths(text)),
            Node::Group(opening, items) => {
                let items = items.iter().map(|item| last_names(item)).collect();
                Node::Group(*opening, items)
            }
        })
        .collect()
}

/// Removes every `path::` in a text.
fn last_of_paths(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("::") {
        let kept = before.trim_end_matches(is_word);
        // `::` after a bracket belongs to the name before the bracket.
        if kept.len() == before.len() && !before.is_empty() {
            out.push_str(before);
            out.push_str("::");
        } else {
            out.push_str(kept)
        }
        rest = after;
    }
    out + rest
}
