//! The commands: from parsed arguments to an exit status.

mod attach;
mod change;
mod completion;
mod demo;
mod diff;
mod doctor;
mod each;
mod existing;
mod export;
mod failures;
mod find;
mod follow;
mod kind;
mod language;
mod later;
mod limit;
mod list;
mod live;
mod looked;
mod manuals;
mod measure;
mod merge;
mod named;
mod next;
mod others;
mod outcome;
mod output;
mod panics;
mod processes;
mod push;
mod rank_file;
mod ranks;
mod remarks;
mod renewal;
mod replaced;
mod report;
mod run;
mod search;
mod serve;
mod spool;
mod status;
mod suggest;
mod target;
mod together;
mod top;
mod tree;
mod unbegun;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::cli::{self, Cli, Command, MayBeOf, Measure, Of, Refine, Show};
use crate::config::{self, Rejected};
use crate::failure::{Failure, USAGE};
use ipath_base::hint::hint;
use ipath_base::{descriptors, starved};
use ipath_symbols::debuginfod;
use ipath_target::process::{Pid, take_name};
use ipath_target::{progress, saturated};

/// Runs the command line `args`, whose first element is the program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = completion::answer(&args) {
        return code;
    }
    // A program started by them would inherit the priority.
    if !["run", "demo"]
        .iter()
        .any(|name| args.iter().any(|a| a == name))
    {
        saturated::hurry();
    }
    match config::command_line(&args) {
        Ok(cli) => run(cli),
        Err(Rejected::Arguments(mut error)) => {
            let hint = cli::slip(&mut error, &args);
            // Standard error may be closed.
            let _ = error.print();
            if let Some(hint) = hint {
                give_hint(&hint);
            }
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
        }
        Err(Rejected::Defaults(failure)) => {
            tell(&failure);
            ExitCode::from(USAGE)
        }
    }
}

fn run(cli: Cli) -> ExitCode {
    panics::keep();
    take_name();
    give_large_blocks_back();
    finish(panics::caught("the command", || obey(cli)))
}

/// Makes the C library map each large block separately, and unmap it when freed. By default its
/// threshold rises to the largest block freed so far. Smaller blocks then come from the heap, where
/// they stay (mallopt(3), M_MMAP_THRESHOLD).
fn give_large_blocks_back() {
    const LARGE: libc::c_int = 128 << 10;
    // SAFETY: no other thread has started.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

fn obey(cli: Cli) -> Result<ExitCode, Failure> {
    progress::tell(cli.command.subject(), remarks::progress);
    let operation = cli.command.operation();
    if matches!(
        cli.command,
        Command::Attach { .. } | Command::Run { .. } | Command::Add { .. } | Command::Demo { .. }
    ) {
        check_descriptors(operation)?;
    }
    let result = match cli.command {
        Command::Attach {
            of,
            job,
            measure,
            refine,
            show,
            keep,
        } => match attached(operation, &of, &job)? {
            None => ranks::attach(None, &job, &measure, &show, keep),
            Some(pid) if is_shown(pid, &measure, &refine, &show)? => Ok(()),
            Some(pid) if job.mpi => ranks::attach(Some(pid), &job, &measure, &show, keep),
            Some(pid) => {
                let show = rank_file::of_rank_of(pid, &show)?;
                match (measure.follow, refine.search) {
                    (_, true) => search::attach(pid, job.children, &measure, &refine, &show),
                    (true, _) => follow::attach(pid, job.children, &measure, &show),
                    _ if job.children => tree::attach(pid, &measure, &show, keep),
                    _ => attach::attach(pid, &measure, &show, keep),
                }
            }
        },
        Command::Run {
            measure,
            refine,
            show,
            program,
        } => {
            return if measure.follow {
                follow::run(&measure, &refine, &show, &program)
            } else {
                run::run(&measure, &refine, &show, &program)
            };
        }
        Command::List {
            target,
            patterns,
            json,
            all_modules,
            blocks,
        } => list::list(&target, &patterns, json, all_modules, blocks),
        Command::Status { clean: true, .. } => status::clean(),
        Command::Status { of, verbose, .. } => status::status(may_be(operation, &of)?, verbose),
        Command::Suggest {
            of,
            children,
            duration,
            limit,
            json,
        } => {
            let pid = if children {
                named::root_of(operation, of.subject())?
            } else {
                process(operation, &of)?
            };
            suggest::suggest(pid, children, duration, limit, json)
        }
        Command::Top {
            of,
            show,
            max_overhead,
        } => top::top(process(operation, &of)?, &show, max_overhead),
        Command::Add {
            of,
            patterns,
            metric,
            pending,
        } => change::add(process(operation, &of)?, &patterns, &metric, pending),
        Command::Remove {
            of,
            patterns,
            metric,
        } => change::remove(process(operation, &of)?, &patterns, &metric),
        Command::Snapshot { of, output } => change::snapshot(process(operation, &of)?, &output),
        Command::Mark { of, name } => change::mark(process(operation, &of)?, &name),
        Command::Detach { of, output } => {
            change::detach(process(operation, &of)?, output.as_deref())
        }
        Command::Report { file, options } => report::report(&file, options),
        Command::Export { file, options } => export::export(&file, &options),
        Command::Diff { old, new, options } => return diff::diff(old, new, options),
        Command::Merge {
            files,
            per_process,
            output,
        } => merge::merge(&files, measure::paths_of(per_process), &output),
        Command::ServeMetrics { of, listen, under } => {
            serve::serve(process(operation, &of)?, listen, &under)
        }
        Command::Push { target, options } => push::push(&target, &options),
        Command::Doctor { of } => return doctor::doctor(may_be(operation, &of)?),
        Command::Demo { show } => demo::demo(&show),
        Command::DemoTarget => demo::target(),
        Command::Completions { shell } => completion::script(shell),
        Command::Man { output } => manuals::man(output.as_deref()),
    };
    result.map(|()| ExitCode::SUCCESS)
}

/// Fails if so few file descriptors are left that a session might not be removed again.
fn check_descriptors(operation: &str) -> Result<(), Failure> {
    let left = descriptors::left();
    if left >= descriptors::NEEDED {
        return Ok(());
    }
    let needed = descriptors::NEEDED;
    let cause = format!("only {left} file descriptors are left, {needed} are needed");
    let failure = Failure::new(operation, "this command", cause);
    Err(failure.hint(hint!("raise the limit of this shell: ulimit -n 1024")))
}

/// The process to attach to; with `--children` the root of its process tree. `None` if none is
/// named.
fn attached(operation: &str, of: &MayBeOf, job: &cli::Job) -> Result<Option<Pid>, Failure> {
    match (job.children, of.subject()) {
        (true, Some(subject)) => named::root_of(operation, subject).map(Some),
        _ => may_be(operation, of),
    }
}

/// Shows the existing session of a process if the options of `attach` do not request a new one.
/// Returns false if nothing was shown.
fn is_shown(pid: Pid, measure: &Measure, refine: &Refine, show: &Show) -> Result<bool, Failure> {
    let patterns = &measure.patterns;
    if !patterns.func.is_empty() || patterns.has_places() || refine.search {
        return Ok(false);
    }
    let show = rank_file::of_rank_of(pid, show)?;
    existing::show_existing(pid, measure, &show)
}

/// The process that a command operates on.
fn process(operation: &str, of: &Of) -> Result<Pid, Failure> {
    named::pid_of(operation, of.subject())
}

/// The process that a command operates on. `None` if none is named.
fn may_be(operation: &str, of: &MayBeOf) -> Result<Option<Pid>, Failure> {
    let subject = of.subject();
    subject
        .map(|subject| named::pid_of(operation, subject))
        .transpose()
}

fn finish(result: Result<ExitCode, Failure>) -> ExitCode {
    if let Some(line) = debuginfod::report() {
        remarks::warn(&line);
    }
    remarks::finish();
    if starved::has_said() {
        return ExitCode::FAILURE;
    }
    match result {
        Ok(code) => code,
        Err(failure) => {
            tell(&failure);
            ExitCode::from(failure.status())
        }
    }
}

fn tell(failure: &Failure) {
    // Standard error may be closed, here and below.
    let _ = writeln!(std::io::stderr(), "ipath: {failure}");
    if let Some(hint) = failure.hint_text() {
        give_hint(hint);
    }
}

fn give_hint(hint: &str) {
    let _ = writeln!(std::io::stderr(), "hint: {hint}");
}
