//! Describes the support for programs in languages that are interpreted or compiled at run time.

use super::line::{Line, Verdict, line};
use crate::commands::language::Language;
use ipath_base::hint::{Hint, hint};
use ipath_target::process::Process;

/// A line about the language of a process. `None` if its functions are called natively. `names` is
/// the number of names of generated code.
pub(super) fn interpreters(process: &Process, names: usize) -> Option<Line> {
    let language = Language::of_process(process)?;
    let what = format!(
        "process {}: {} runs in it: {}",
        process.pid,
        language.name(),
        shown(language, names)
    );
    Some(line(Verdict::Warn, what, rest(language, process, names)))
}

/// Describes the functions that ipath shows. `names` is the number of named generated functions.
fn shown(language: Language, names: usize) -> String {
    let native = "functions of the interpreter and of native modules are measured";
    let frames = match names {
        0 => "its own functions have no names".to_owned(),
        n => format!("{n} of its own functions have names in paths, and are not measured"),
    };
    match language {
        Language::Java => format!(
            "functions of the virtual machine and of native libraries are measured; {frames}"
        ),
        Language::Python | Language::JavaScript | Language::DotNet | Language::Erlang => {
            format!("{native}; {frames}")
        }
        Language::Ruby | Language::Php | Language::Perl => {
            format!("{native}; its own functions have no names")
        }
    }
}

/// The option that names the language's functions in paths, and the tool that shows the rest.
fn rest(language: Language, process: &Process, names: usize) -> Hint {
    let option = match language {
        _ if names > 0 => None,
        Language::Python => Some("names come with `python3 -X perf` (3.12 and later)"),
        Language::Java => Some(
            "names come with `jcmd PID Compiler.perfmap`, whole paths with -XX:+PreserveFramePointer",
        ),
        Language::JavaScript => Some("names come with `node --perf-basic-prof`"),
        Language::DotNet => Some("names come with DOTNET_PerfMapEnabled=1 in its environment"),
        Language::Erlang => Some("names come with `erl +JPperf true`"),
        Language::Ruby | Language::Php | Language::Perl => None,
    };
    let tool = language.tool(process);
    match option {
        Some(option) => hint!("{}; {}", Hint::from(option), tool),
        None => tool,
    }
}
