//! Names that compilers inside a process give to the code that they generate.
//!
//! V8 writes `JS:*handle /srv/shop.js:4:9` (`LazyCompile:` in older versions), CPython
//! `py::Shop.handle:/srv/shop.py`, HotSpot `int com.acme.Shop.handle(int)`, and agents for it
//! `Lcom/acme/Shop;::handle`. Most columns of such a name are a path, so the function and the last
//! part of the path are shown.

use super::parts::{Form, Templates};

/// A name of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generated {
    /// The name as it was recorded.
    whole: String,
    /// The compiler that generated the code, as V8 marks it: `*`, `^`, `~` or `+`; else empty.
    tier: String,
    /// The function's name. For Java, with its class.
    function: String,
    /// The part before the function in the qualified form: Java packages with a trailing dot. Empty
    /// for other languages.
    package: String,
    /// The file and the positions in it. `None` if the name does not contain them.
    source: Option<Source>,
}

/// The file and the positions in it: `/srv/shop.js:4:9`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    path: String,
    line: Option<String>,
    column: Option<String>,
}

impl Generated {
    /// Parses a name. `None` if it has none of the structures of generated code.
    pub(super) fn of(name: &str) -> Option<Self> {
        of_v8(name)
            .or_else(|| of_python(name))
            .or_else(|| of_hotspot(name))
            .or_else(|| of_agent(name))
    }

    /// The name as it is shown if no other name looks like it: with its package and source if
    /// `form` is qualified, else the function alone.
    pub(super) fn shown(&self, form: Form) -> String {
        if form.is_qualified {
            self.written(&self.package, "", false, false)
        } else {
            self.function.clone()
        }
    }

    /// The name in a form that distinguishes it from others: as it was recorded if `form` has the
    /// result, else with the parts that the other fields select.
    pub(super) fn telling(&self, form: Form) -> String {
        let Form {
            has_result,
            is_qualified,
            templates,
            arguments,
            is_exact: _,
        } = form;
        if has_result {
            return self.whole.clone();
        }
        let tier = match arguments {
            Some(_) => self.tier.as_str(),
            None => "",
        };
        let is_long = is_qualified && templates != Templates::Folded;
        let has_column = templates == Templates::Whole || is_qualified != is_long;
        self.written(&self.package, tier, is_long, has_column)
    }

    /// The function's name alone. For Java, with its class.
    pub(super) fn function(&self) -> &str {
        &self.function
    }

    fn written(&self, package: &str, tier: &str, has_path: bool, has_column: bool) -> String {
        let source = self.source.as_ref();
        let source = source.map_or_else(String::new, |s| {
            format!(" {}", s.text(has_path, has_column))
        });
        format!("{tier}{package}{}{source}", self.function)
    }
}

impl Source {
    /// Parses `PATH:LINE:COLUMN`. The numbers are optional.
    fn of(text: &str) -> Self {
        let number = |text: &str| {
            let (rest, number) = text.rsplit_once(':')?;
            let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| (rest.to_owned(), number.to_owned()))
        };
        let Some((rest, last)) = number(text) else {
            return Self {
                path: text.to_owned(),
                line: None,
                column: None,
            };
        };
        match number(&rest) {
            Some((path, line)) => Self {
                path,
                line: Some(line),
                column: Some(last),
            },
            None => Self {
                path: rest,
                line: Some(last),
                column: None,
            },
        }
    }

    /// The file with the positions in it. Without `has_path`, only the file's name, unless the file
    /// is a part of Node.js.
    fn text(&self, has_path: bool, has_column: bool) -> String {
        let path = if has_path || self.path.starts_with("node:") {
            &self.path
        } else {
            self.path.rsplit('/').next().unwrap_or(&self.path)
        };
        let column = self.column.as_ref().filter(|_| has_column);
        let numbers = self.line.iter().chain(column);
        let numbers: String = numbers.map(|number| format!(":{number}")).collect();
        format!("{path}{numbers}")
    }
}

/// `JS:*handle /srv/shop.js:4:9`. `None` for a name of another form.
fn of_v8(name: &str) -> Option<Generated> {
    const KINDS: [&str; 9] = [
        "JS",
        "LazyCompile",
        "Function",
        "InterpretedFunction",
        "Eval",
        "Script",
        "NativeLazyCompile",
        "NativeFunction",
        "Callback",
    ];
    /// Prefixes of a script's name after the function's name, which can contain spaces.
    const SCRIPTS: [&str; 5] = [" /", " node:", " file:", " evalmachine.", " webpack"];
    let (kind, rest) = name.split_once(':')?;
    if !KINDS.contains(&kind) {
        return None;
    }
    let function = rest.trim_start_matches(['*', '^', '~', '+']);
    let tier = rest[..rest.len() - function.len()].to_owned();
    let known = SCRIPTS.iter().filter_map(|script| function.find(script));
    let split = known.min().or_else(|| function.rfind(' '));
    let (function, source) = match split {
        Some(at) => (&function[..at], Some(Source::of(&function[at + 1..]))),
        None => (function, None),
    };
    let function = match function {
        "" => "(anonymous)",
        named => named,
    };
    Some(Generated {
        whole: name.to_owned(),
        tier,
        function: function.to_owned(),
        package: String::new(),
        source,
    })
}

/// `py::Shop.handle:/srv/shop.py`. `None` for a name of another form.
fn of_python(name: &str) -> Option<Generated> {
    let (function, path) = name.strip_prefix("py::")?.split_once(':')?;
    Some(Generated {
        whole: name.to_owned(),
        tier: String::new(),
        function: function.to_owned(),
        package: String::new(),
        source: Some(Source::of(path)),
    })
}

/// `int com.acme.Shop.handle(int)`. `None` for a name of another form.
fn of_hotspot(name: &str) -> Option<Generated> {
    let (before, arguments) = name.split_once('(')?;
    let (result, path) = before.rsplit_once(' ')?;
    let is_type = |c: char| c.is_alphanumeric() || "_$.[]".contains(c);
    let is_arguments = |c: char| is_type(c) || ", ".contains(c);
    let arguments = arguments.strip_suffix(')')?;
    let has_method = path.split('.').count() > 1 && path.split('.').all(|part| !part.is_empty());
    let method = path
        .strip_suffix("<init>")
        .or(path.strip_suffix("<clinit>"));
    let is_java = has_method
        && result.chars().all(is_type)
        && method.unwrap_or(path).chars().all(is_type)
        && arguments.chars().all(is_arguments);
    is_java.then(|| java(name, path))
}

/// `Lcom/acme/Shop;::handle`. `None` for a name of another form.
fn of_agent(name: &str) -> Option<Generated> {
    let (class, method) = name.strip_prefix('L')?.split_once(";::")?;
    let method = method.split('(').next().unwrap_or(method);
    let is_java = class.contains('/') && !method.is_empty();
    is_java.then(|| java(name, &format!("{}.{method}", class.replace('/', "."))))
}

/// A method of Java by its path, `com.acme.Shop.handle`.
fn java(name: &str, path: &str) -> Generated {
    let mut dots = path.rmatch_indices('.').map(|(at, _)| at);
    let function = dots.nth(1).map_or(0, |at| at + 1);
    Generated {
        whole: name.to_owned(),
        tier: String::new(),
        function: path[function..].to_owned(),
        package: path[..function].to_owned(),
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fit, fit_all, method};

    #[test]
    fn generated_code_is_shown_by_the_function_and_the_end_of_its_path() {
        for (name, wide, narrow) in [
            (
                "LazyCompile:*findDuplicates /srv/app/slow.js:4:9",
                "findDuplicates slow.js:4",
                "findDuplicates",
            ),
            (
                "JS:~get size /srv/a b/set.js:7:3",
                "get size set.js:7",
                "get size",
            ),
            (
                "Function:~ /srv/app/slow.js:1:1",
                "(anonymous) slow.js:1",
                "(anonymous)",
            ),
            (
                "JS:^processImmediate node:internal/timers:438:28",
                "processImmediate node:internal/timers:438",
                "processImmediate",
            ),
            (
                "JS:*run file:///srv/app/main.mjs:4:9",
                "run main.mjs:4",
                "run",
            ),
            (
                "JS:*resolve native promise.js:5:1",
                "resolve native promise.js:5",
                "resolve native",
            ),
            (
                "py::Shop.handle:/srv/app/shop.py",
                "Shop.handle shop.py",
                "Shop.handle",
            ),
            (
                "int com.acme.Shop.handle(java.lang.String, int[])",
                "com.acme.Shop.handle",
                "Shop.handle",
            ),
            (
                "void com.acme.Shop.<init>()",
                "com.acme.Shop.<init>",
                "Shop.<init>",
            ),
            (
                "Lcom/acme/Shop;::handle",
                "com.acme.Shop.handle",
                "Shop.handle",
            ),
        ] {
            assert_eq!(fit(name, 200), wide, "{name}");
            assert_eq!(fit(name, wide.len()), wide, "{name}");
            assert_eq!(fit(name, wide.len() - 1), narrow, "{name}");
            assert_eq!(method(name), narrow, "{name}");
            // If a name does not fit, part of the function is shown.
            let cut = fit(name, 8);
            assert!(cut.starts_with(&narrow[..2]) && !cut.contains('/'), "{cut}");
        }
    }

    #[test]
    fn names_of_other_code_are_as_before() {
        for name in [
            "Builtin:RegExpPrototypeStickyGetter",
            "main.(*Store).find",
            "unsigned long shop::sum(int)",
            "spin of x.js:1",
            "Load",
        ] {
            assert_eq!(fit(name, 60), name);
        }
    }

    /// A JavaScript function has code of several compilers, and two files have a function of one
    /// name.
    #[test]
    fn namesakes_get_their_compiler_or_place() {
        let handles = [
            "JS:*handle /srv/app/slow.js:4:9",
            "JS:^handle /srv/app/slow.js:4:9",
            "JS:*handle /srv/app/slow.js:8:2",
            "JS:*handle /srv/app/fast.js:4:9",
            "JS:*handle /srv/old/fast.js:4:9",
        ];
        let shown = [
            "*handle slow.js:4",
            "^handle slow.js:4",
            "handle slow.js:8",
            "handle /srv/app/fast.js:4",
            "handle /srv/old/fast.js:4",
        ];
        assert_eq!(fit_all(&handles, 60), shown);
        let methods = [
            "int a.Shop.get(int)",
            "int b.Shop.get(int)",
            "long b.Shop.get(long)",
        ];
        assert_eq!(
            fit_all(&methods, 60),
            ["a.Shop.get", "int b.Shop.get(int)", "long b.Shop.get(long)"]
        );
    }
}
