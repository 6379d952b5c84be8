//! The languages of programs whose functions are not called natively.

use ipath_base::files::file_name;
use ipath_base::hint::{Hint, Word, hint};
use ipath_target::process::Process;

/// A language whose functions are not called natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    Java,
    JavaScript,
    Ruby,
    Php,
    Perl,
    DotNet,
    Erlang,
}

impl Language {
    /// The language of a process. `None` if its functions are called natively, or if its mappings
    /// cannot be read.
    pub(super) fn of_process(process: &Process) -> Option<Self> {
        let exe = process.exe()?;
        let maps = process.maps().ok()?;
        let mapped = maps.iter().map(|mapping| mapping.name.as_str());
        Self::of(&exe.to_string_lossy(), mapped)
    }

    /// The language of a program by the file name of `exe`, otherwise by the first mapped file that
    /// shows it. `None` if none does.
    fn of<'m>(exe: &str, mapped: impl IntoIterator<Item = &'m str>) -> Option<Self> {
        let own = by_name(file_name(exe), false);
        own.or_else(|| {
            let mut names = mapped.into_iter().map(file_name);
            names.find_map(|name| by_name(name, true))
        })
    }

    /// The name of the language, with the virtual machine if there are several.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Java => "Java",
            Self::JavaScript => "JavaScript (V8)",
            Self::Ruby => "Ruby",
            Self::Php => "PHP",
            Self::Perl => "Perl",
            Self::DotNet => ".NET",
            Self::Erlang => "Erlang",
        }
    }

    /// The tool that shows functions of this language.
    pub(super) fn tool(self, process: &Process) -> Hint {
        let pid = process.pid.to_string();
        let pid = Word(&pid);
        match self {
            Self::Python => hint!("`py-spy record --pid {}` shows Python's own functions", pid),
            Self::Java => hint!("async-profiler shows methods: `asprof -d 10 {}`", pid),
            Self::JavaScript => "`node --cpu-prof` shows JavaScript's own functions".into(),
            Self::Ruby => hint!("`rbspy record --pid {}` shows Ruby's own functions", pid),
            Self::Php => hint!("`phpspy -p {}` shows PHP's own functions", pid),
            Self::Perl => "`perl -d:NYTProf` shows Perl's own functions".into(),
            Self::DotNet => hint!("`dotnet-trace collect -p {}` shows methods", pid),
            Self::Erlang => "fprof and eprof show Erlang's own functions".into(),
        }
    }
}

/// The language of a program, or of a library if `is_library`, by the name of its file. `None` if
/// the name shows none.
fn by_name(name: &str, is_library: bool) -> Option<Language> {
    use Language::*;
    /// Programs and libraries by the beginning of their names.
    const PROGRAMS: [(&str, Language); 11] = [
        ("python", Python),
        ("pypy", Python),
        ("java", Java),
        ("node", JavaScript),
        ("ruby", Ruby),
        ("php", Php),
        ("perl", Perl),
        ("dotnet", DotNet),
        ("beam.smp", Erlang),
        ("deno", JavaScript),
        ("uwsgi-python", Python),
    ];
    const LIBRARIES: [(&str, Language); 9] = [
        ("libpython", Python),
        ("libjvm.so", Java),
        ("libnode.so", JavaScript),
        ("libruby", Ruby),
        ("libphp", Php),
        ("mod_php", Php),
        ("libperl.so", Perl),
        ("libcoreclr.so", DotNet),
        ("libv8.so", JavaScript),
    ];
    let is_it = |&(begin, _): &&(&str, Language)| {
        if is_library {
            name.starts_with(begin)
        } else {
            let rest = name.strip_prefix(begin);
            // python3.11, php8.2, php-fpm8.2; but no python-config or nodemon.
            rest.is_some_and(|rest| {
                let rest = rest.strip_prefix("-fpm").unwrap_or(rest);
                let rest = rest.strip_prefix("-cgi").unwrap_or(rest);
                rest.chars().all(|c| c.is_ascii_digit() || c == '.')
            })
        }
    };
    let mut known = if is_library {
        LIBRARIES.iter()
    } else {
        PROGRAMS.iter()
    };
    known.find(is_it).map(|(_, language)| *language)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_their_files() {
        let plain = ["/usr/bin/app", "/usr/lib/libc.so.6", "[heap]", ""];
        for (exe, mapped, expected) in [
            ("/usr/bin/app", "", None),
            ("/usr/bin/python3.11", "", Some(Language::Python)),
            (
                "/usr/bin/app",
                "/usr/lib/libpython3.12.so.1.0",
                Some(Language::Python),
            ),
            (
                "/usr/bin/java",
                "/jvm/lib/server/libjvm.so",
                Some(Language::Java),
            ),
            (
                "/usr/bin/tool",
                "/jvm/lib/server/libjvm.so",
                Some(Language::Java),
            ),
            ("/usr/bin/node", "", Some(Language::JavaScript)),
            ("/usr/bin/nodemon", "", None),
            ("/usr/bin/ruby3.1", "", Some(Language::Ruby)),
            ("/usr/sbin/php-fpm8.2", "", Some(Language::Php)),
            (
                "/usr/sbin/apache2",
                "/usr/lib/apache2/modules/libphp8.2.so",
                Some(Language::Php),
            ),
            ("/usr/lib/erlang/bin/beam.smp", "", Some(Language::Erlang)),
        ] {
            let found = Language::of(exe, plain.into_iter().chain([mapped]));
            assert_eq!(found, expected, "{exe} {mapped}");
        }
    }
}
