//! The command line as parsed by clap.

// A comment on a flattened field would become the help of the command.
#![allow(missing_docs)]

mod clock;
mod measure;
mod of;
mod output;
mod parse;
mod profiles;
mod push;
mod second_side;
mod slips;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub use clock::Clock;
pub use measure::{Measure, PathOf, Patterns};
pub use of::{MayBeOf, Of, Subject};
pub use output::Output;
use parse::{address, duration, ranks, share};
pub use profiles::{Diff, Export, Report, Sort};
pub use push::Push;
pub use second_side::options_in_front;
pub use slips::slip;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use patcher::select::Spot;

/// Measures the cost of functions, split by the call path that reached them: live and exact, in a
/// running program.
#[derive(Debug, Parser)]
#[command(
    name = "ipath",
    version,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Splits lists of patterns at commas and checks that all required arguments are present.
    ///
    /// # Errors
    /// The command needs a function or a process, and none is given.
    pub fn checked(mut self) -> Result<Self, clap::Error> {
        if let Command::Attach { measure, .. } | Command::Run { measure, .. } = &mut self.command {
            let phases = measure.phase.iter().flat_map(|text| parse::patterns(text));
            measure.phase = phases.collect();
            // They are measured, too.
            measure.patterns.func.extend(measure.phase.iter().cloned());
        }
        if let Some(patterns) = self.command.patterns() {
            for given in [
                &mut patterns.func,
                &mut patterns.edges,
                &mut patterns.loops,
                &mut patterns.paths,
            ] {
                let parts = given.iter().flat_map(|text| parse::patterns(text));
                *given = parts.collect();
            }
            for text in std::mem::take(&mut patterns.func) {
                match Spot::parse_timed(&text) {
                    Some(spot) => patterns.timed.push(spot.map_err(|error| (text, error))),
                    None => patterns.func.push(text),
                }
            }
        }
        if let Command::Attach { of, job, .. } = &self.command
            && of.subject().is_none()
            && !job.local_ranks
        {
            return Err(Self::command().error(
                ErrorKind::MissingRequiredArgument,
                "the following required arguments were not provided:\n  <PID>",
            ));
        }
        let patterns = match &self.command {
            Command::Add { patterns, .. } | Command::Remove { patterns, .. } => patterns,
            _ => return Ok(self),
        };
        if !patterns.func.is_empty() || patterns.has_places() {
            Ok(self)
        } else {
            Err(Self::command().error(
                ErrorKind::MissingRequiredArgument,
                "the following required arguments were not provided:\n  --func <PATTERN>",
            ))
        }
    }
}

impl Command {
    /// The patterns of functions. `None` for commands that take none.
    fn patterns(&mut self) -> Option<&mut Patterns> {
        match self {
            Self::Attach { measure, .. } | Self::Run { measure, .. } => Some(&mut measure.patterns),
            Self::Add { patterns, .. } | Self::Remove { patterns, .. } => Some(patterns),
            _ => None,
        }
    }

    /// The name of the command in messages. `ipath` for commands whose messages name no operation.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Attach { .. } => "attach",
            Self::Run { .. } => "run",
            Self::List { .. } => "list",
            Self::Status { .. } => "status",
            Self::Suggest { .. } => "suggest",
            Self::Top { .. } => "top",
            Self::Add { .. } => "add",
            Self::Remove { .. } => "remove",
            Self::Snapshot { .. } => "snapshot",
            Self::Mark { .. } => "mark",
            Self::Detach { .. } => "detach",
            Self::ServeMetrics { .. } => "serve-metrics",
            Self::Doctor { .. } => "doctor",
            Self::Push { .. } => "push",
            _ => "ipath",
        }
    }

    /// The name of the command in messages, followed by the process if one is given: `attach 4242`.
    pub fn subject(&self) -> String {
        let of = match self {
            Self::Attach { of, .. } | Self::Status { of, .. } | Self::Doctor { of } => of.subject(),
            Self::Suggest { of, .. }
            | Self::Top { of, .. }
            | Self::Add { of, .. }
            | Self::Remove { of, .. }
            | Self::Snapshot { of, .. }
            | Self::Mark { of, .. }
            | Self::Detach { of, .. }
            | Self::ServeMetrics { of, .. } => Some(of.subject()),
            _ => None,
        };
        let name = self.operation();
        of.map_or_else(|| name.to_owned(), |of| format!("{name} {of}"))
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Instrument functions of a running process and show the cost of each call path, live. Without
    /// a function it shows the session of the process. If there is none, it offers the costliest
    /// functions to choose from (see suggest)
    #[command(
        after_help = "Examples:\n  ipath attach 4242 -f MPI_Wait -f 'libc.so*!malloc'\n  \
        ipath attach 4242 --search"
    )]
    Attach {
        #[command(flatten)]
        of: MayBeOf,
        #[command(flatten)]
        job: Job,
        #[command(flatten)]
        measure: Measure,
        #[command(flatten)]
        refine: Refine,
        #[command(flatten)]
        show: Show,
        /// Leave the session in the process at the end
        #[arg(long, conflicts_with_all = ["search", "follow"])]
        keep: bool,
    },
    /// Start a program with functions instrumented from its first instruction. Without a function
    /// it runs, and ipath offers its costliest functions to choose from (see suggest)
    #[command(
        after_help = "Examples:\n  ipath run -f qsort -o sort.json -- sort words.txt\n  \
        ipath run --search -- ./app"
    )]
    Run {
        #[command(flatten)]
        measure: Measure,
        #[command(flatten)]
        refine: Refine,
        #[command(flatten)]
        show: Show,
        /// Program and arguments
        #[arg(last = true, required = true, num_args = 1..)]
        program: Vec<OsString>,
    },
    /// List the functions that patterns match, and how each can be patched
    #[command(after_help = "Example: ipath list /usr/lib/x86_64-linux-gnu/libc.so.6 'mem*'")]
    List {
        /// Process id or file
        target: OsString,
        /// Patterns; without one, every function of the program or file
        patterns: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// List every module of a process, not only the program
        #[arg(long)]
        all_modules: bool,
        /// Show the basic blocks and loops of each function, by the numbers that `--at` takes
        #[arg(long)]
        blocks: bool,
    },
    /// Sample a process for a while, and list the functions worth measuring: those with the most
    /// CPU time and those that wait longest
    #[command(after_help = "Example: ipath suggest 4242 --duration 5s\n\n\
        Figures are estimates, each with its 95 % confidence interval. \
        `ipath attach 4242 -f FUNC` measures exactly.")]
    Suggest {
        #[command(flatten)]
        of: Of,
        /// Sample the process together with all its running descendants
        #[arg(long)]
        children: bool,
        /// How long to sample (500ms, 2s, 1m)
        #[arg(long, value_parser = duration, default_value = "2s")]
        duration: Duration,
        /// Maximum number of functions; 0 for all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the sessions on this machine
    #[command(after_help = "Examples:\n  ipath status\n  ipath status 4242")]
    Status {
        #[command(flatten)]
        of: MayBeOf,
        /// Name each function of every session, which is the default for one process, and print
        /// whole names
        #[arg(short, long)]
        verbose: bool,
        /// Remove the remains of sessions whose processes have ended
        #[arg(long, conflicts_with = "process")]
        clean: bool,
    },
    /// Watch an existing session
    #[command(after_help = "Example: ipath top 4242 --duration 2s")]
    Top {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        show: Show,
        /// Maximum share of CPU time that measuring may take while this watches, as for attach
        #[arg(long, value_name = "P%", value_parser = share)]
        max_overhead: Option<f64>,
    },
    /// Instrument more functions in a session, or add metrics to some
    #[command(after_help = "Example: ipath add 4242 -f MPI_Wait -m cpu,arg2")]
    Add {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        patterns: Patterns,
        /// Metrics, named as for attach. Functions of the session measure them in addition; new
        /// functions measure only them. Without this option new functions have the metrics of the
        /// session
        #[arg(short, long, value_delimiter = ',')]
        metric: Vec<String>,
        /// Also apply the patterns to libraries that are loaded later, as for attach
        #[arg(long, conflicts_with = "metric")]
        pending: bool,
    },
    /// Take functions out of a session, or some of their metrics
    #[command(after_help = "Example: ipath remove 4242 -f MPI_Wait -m cpu")]
    Remove {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        patterns: Patterns,
        /// Metrics that the functions stop measuring; they stay in, and their calls are counted as
        /// before
        #[arg(short, long, value_delimiter = ',')]
        metric: Vec<String>,
    },
    /// Write the profile of a session now
    #[command(after_help = "Example: ipath snapshot 4242 -o now.json")]
    Snapshot {
        #[command(flatten)]
        of: Of,
        /// File to write; - is standard output
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Begin a phase of the program: from now on, calls are kept apart from those before
    #[command(
        allow_missing_positional = true,
        after_help = "Example: ipath mark 4242 'after the warm-up'"
    )]
    Mark {
        #[command(flatten)]
        of: Of,
        /// Name of the phase
        #[arg(required = true)]
        name: String,
    },
    /// Take a session out of its process
    #[command(after_help = "Example: ipath detach 4242 -o last.json")]
    Detach {
        #[command(flatten)]
        of: Of,
        /// Write the final profile; - is standard output
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
    /// Print a profile as text: a table of its functions, then the costliest paths
    #[command(
        after_help = "Examples:\n  ipath report p.json --sort p99 --limit 5\n  \
        ipath report p.json --function 'MPI_*' --under solve --tree\n  \
        ipath report p.json --json --limit 0"
    )]
    Report {
        /// Profile
        file: PathBuf,
        #[command(flatten)]
        options: Report,
    },
    /// Convert a profile to the format of another tool
    #[command(
        after_help = "Examples:\n  ipath export p.json --to flamegraph -o p.svg\n  \
        ipath export p.json --to flamegraph --baseline old.json -o diff.svg\n  \
        ipath export p.json --to pprof -o p.pb.gz && go tool pprof -top p.pb.gz"
    )]
    Export {
        /// Profile
        file: PathBuf,
        #[command(flatten)]
        options: Export,
    },
    /// Compare two profiles, or several runs per side, path by path: the changes, and how likely
    /// each is due to chance
    #[command(
        override_usage = "ipath diff [OPTIONS] OLD NEW\n       ipath diff OLD... -- NEW... [OPTIONS]",
        after_help = "Examples:\n  ipath diff before.json after.json\n  \
        ipath diff before.json after.json --threshold 5%\n  \
        ipath diff before*.json -- after*.json\n\n\
        Exit status: 3 if --threshold is exceeded, else 0; 1 and 2 as always."
    )]
    Diff {
        /// The old profile and the new one; with --, the profiles of all old runs
        #[arg(required = true, value_name = "OLD")]
        old: Vec<PathBuf>,
        /// The profiles of all new runs
        #[arg(last = true, value_name = "NEW")]
        new: Vec<PathBuf>,
        #[command(flatten)]
        options: Diff,
    },
    /// Add up the profiles of many processes, such as the ranks of a parallel program
    #[command(after_help = "Example: ipath merge rank*.json -o all.json && ipath report all.json")]
    Merge {
        /// Profiles
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Keep paths apart by process
        #[arg(long)]
        per_process: bool,
        /// File to write; - is standard output
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Serve the measurements of a session to Prometheus and other readers of OpenMetrics. The id
    /// of a launcher stands for all ranks of its job
    #[command(after_help = "Example: ipath serve-metrics 4242 --under handle_request")]
    ServeMetrics {
        #[command(flatten)]
        of: Of,
        /// Address and port
        #[arg(long, value_name = "ADDR", value_parser = address, default_value = "127.0.0.1:9464")]
        listen: SocketAddr,
        /// Keep calls through this function apart
        #[arg(long, value_name = "FUNC")]
        under: Vec<String>,
    },
    /// Send a profile, or the measurements of a session, to a server for the profiles of many
    /// machines: Pyroscope or Parca
    #[command(
        after_help = "Examples:\n  ipath push p.json --to http://127.0.0.1:4040\n  \
        ipath push 4242 --to http://127.0.0.1:4040 --every 10s --label team=solver\n  \
        ipath push 4242 --to http://127.0.0.1:7070 --as parca\n\n\
        If IPATH_PUSH_TOKEN is set, it is sent as `Authorization: Bearer`."
    )]
    Push {
        /// Profile, or id of a process that has a session; the id of a launcher stands for all
        /// ranks of its job
        #[arg(value_name = "FILE|PID")]
        target: OsString,
        #[command(flatten)]
        options: Push,
    },
    /// Check this machine and a process: permissions, missing debug files, code that is not
    /// measured
    #[command(after_help = "Examples:\n  ipath doctor\n  ipath doctor 4242")]
    Doctor {
        #[command(flatten)]
        of: MayBeOf,
    },
    /// Show the live view on a small program of ipath's own. Without a terminal it ends after 5
    /// seconds
    #[command(after_help = "Example: ipath demo --duration 3s")]
    Demo {
        #[command(flatten)]
        show: Show,
    },
    /// Print the completions for a shell
    #[command(
        after_help = "Example: ipath completions bash > ~/.local/share/bash-completion/completions/ipath"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write the pages of all commands
    #[command(
        after_help = "Examples:\n  ipath man | man -l -\n  ipath man -o ~/.local/share/man/man1"
    )]
    Man {
        /// Folder for ipath.1 and a page for each command
        #[arg(short, long, value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
    /// The program that `demo` watches
    #[command(hide = true)]
    DemoTarget,
}

/// The processes of a job.
#[derive(Debug, Args)]
pub struct Job {
    /// Measure all ranks of the MPI job that the process has started on this machine, together
    #[arg(long, groups = ["of_job", "several"], conflicts_with_all = ["search", "follow"])]
    pub mpi: bool,
    /// Measure all ranks of the MPI job on this machine. For use when the job's launcher starts
    /// ipath once per machine: `mpirun --map-by ppr:1:node ipath attach --local-ranks -f MPI_Wait
    /// -o p%r.json`
    #[arg(long, groups = ["of_job", "several"], conflicts_with_all = ["search", "follow", "process"])]
    pub local_ranks: bool,
    /// Measure the process together with all its running descendants, such as a server with its
    /// workers. The name of a server stands for the process that started the others
    #[arg(long, group = "several", conflicts_with = "of_job")]
    pub children: bool,
    /// Only these ranks (0,3 or 0-3)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ranks, requires = "of_job")]
    pub ranks: Vec<RangeInclusive<u32>>,
}

/// Finding the functions by itself.
#[derive(Debug, Args)]
pub struct Refine {
    /// Find the costly call paths automatically: measure the costliest functions by samples, then
    /// add functions that carry the cost and drop others, until 90 % of CPU time and of waiting is
    /// explained. With -f it searches within those functions. Each step takes --interval and is
    /// printed
    #[arg(long, conflicts_with_all = ["at", "edges", "loops", "paths", "when", "depth"])]
    pub search: bool,
    /// Minimum share of CPU time or of waiting for a path to be found
    #[arg(long, value_name = "P%", value_parser = share, default_value = "1%", requires = "search")]
    pub min_share: f64,
    /// Maximum number of functions that a search measures at once
    #[arg(long, value_name = "N", default_value_t = 16, requires = "search",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub max_functions: u64,
    /// Print the steps of a search in full on a terminal as well
    #[arg(short, long, requires = "search")]
    pub verbose: bool,
}

/// How it is shown.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// End after this time (500ms, 2s, 1m)
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
    /// Time between two updates
    #[arg(long, value_parser = duration, default_value = "1s")]
    pub interval: Duration,
    /// Write the final profile; - is standard output, which then has nothing else. `run -o FILE`
    /// leaves standard output to the program. %r is replaced by the rank in an MPI job
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Print nothing on standard output
    #[arg(short, long)]
    pub quiet: bool,
    /// Format of standard output
    #[arg(long, default_value = "text")]
    pub format: Output,
    /// Print summaries even on a terminal
    #[arg(long)]
    pub no_tui: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
