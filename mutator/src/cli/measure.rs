//! The options that say what is measured, and how calls are recorded.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::clock::Clock;
use super::parse::{duration, share};
use patcher::select::{PatternError, Spot};

/// The functions to measure.
#[derive(Debug, Args)]
pub struct Patterns {
    /// Function: name, Class::method, glob, /regex/, module!pattern, 0xADDR or module+0xOFFSET; or
    /// FUNC:loopN, FUNC:loops or FUNC:paths to time parts by themselves; several with commas
    #[arg(short, long = "func", value_name = "PATTERN")]
    pub func: Vec<String>,
    /// Parts among the given functions: FUNC:loopN, FUNC:loops and FUNC:paths, or invalid texts.
    #[arg(skip)]
    pub timed: Vec<Result<Spot, (String, PatternError)>>,
    /// Also measure the copies of the functions of -f that are inlined into other functions, by the
    /// debug information: each is a row of its own
    #[arg(long, requires = "func")]
    pub inlined: bool,
    /// Instructions whose executions are counted: FUNC+0xOFFSET, FUNC:blockN, FUNC:loopN,
    /// module+0xOFFSET, 0xADDR or FILE:LINE
    #[arg(long, value_name = "PLACE")]
    pub at: Vec<String>,
    /// Functions whose control flow is counted: each basic block, branch and loop; several with
    /// commas
    #[arg(long, value_name = "PATTERN")]
    pub edges: Vec<String>,
    /// Functions whose control flow is counted as with --edges, and for each loop how many
    /// iterations its entries have: a histogram; several with commas
    #[arg(long, value_name = "PATTERN")]
    pub loops: Vec<String>,
    /// Functions whose paths are counted: each sequence of blocks from the entry or the head of a
    /// loop to an exit or back to such a head; several with commas
    #[arg(long, value_name = "PATTERN")]
    pub paths: Vec<String>,
    /// Continue with more than 64 functions
    #[arg(long)]
    pub yes: bool,
    /// Use breakpoints where nothing else fits: slow, and the process gets a handler for SIGTRAP
    #[arg(long)]
    pub allow_trap: bool,
}

impl Patterns {
    /// True if instructions, edges or paths are counted, or loops are timed.
    pub fn has_places(&self) -> bool {
        let places = [&self.at, &self.edges, &self.loops, &self.paths];
        !self.timed.is_empty() || places.into_iter().any(|given| !given.is_empty())
    }
}

/// What the paths of a session consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PathOf {
    /// All functions on the stack
    #[default]
    Stack,
    /// The measured functions only: no walk, so a call costs the same at any depth
    Probes,
}

/// The metrics, and how calls are recorded.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("several").multiple(true)))]
pub struct Measure {
    #[command(flatten)]
    pub patterns: Patterns,
    /// Metrics: count (always included); wall, cpu, blocked (wall without cpu), run-delay and
    /// block-io, in ns; page-faults, major-faults, context-switches; arg1 to arg6 and ret, the
    /// values of a call; cycles, instructions, cache-misses, branch-misses, stalled-cycles and
    /// other counters of the processor, by perf's names (L1-dcache-load-misses, r01c2,
    /// cpu/event=0x3c,umask=0x1/)
    #[arg(short, long, value_delimiter = ',', default_value = "count,wall")]
    pub metric: Vec<String>,
    /// Count only calls for which a comparison holds: `arg3 > 4096`, `ret < 0`, `wall > 10ms`
    #[arg(long, value_name = "EXPR")]
    pub when: Option<String>,
    /// Count only calls on paths through this function; repeated: through all of them, in this
    /// order from the root
    #[arg(long, value_name = "PATTERN", conflicts_with = "depth")]
    pub under: Vec<String>,
    /// Count only calls on paths that do not pass through this function
    #[arg(long, value_name = "PATTERN", conflicts_with = "depth")]
    pub not_under: Vec<String>,
    /// Keep calls of one path apart by a value: arg1 to arg6, ret, arg1:str (the text that an
    /// argument points to), arg1->len (a field of what it points to) or tid
    #[arg(long, value_name = "VALUE")]
    pub by: Option<String>,
    /// Keep calls that take at least this time apart from others of their path (10ms)
    #[arg(long, value_name = "D", value_parser = duration)]
    pub slower: Option<Duration>,
    /// Keep the N slowest calls of each function: path, thread, start, arguments, return value, and
    /// the time in other measured functions; with -m cpu also the time off the processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub slowest: Option<u64>,
    /// Keep the last N calls of each function on each thread, with start and end: a timeline, which
    /// `ipath export --to chrome` writes for Perfetto
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=abi::single::MOST_SINGLE))]
    pub trace: Option<u64>,
    /// Keep paths apart by phase: each call of these functions is one, and so are the times between
    /// them. `ipath mark` begins phases from another terminal
    #[arg(long, value_name = "PATTERN")]
    pub phase: Vec<String>,
    /// Maximum number of values per path and phase for --by; further ones share one
    #[arg(long, value_name = "N", default_value_t = ipath_session::session::MAX_VALUES,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub max_values: u64,
    /// Keep the K innermost callers
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub depth: Option<u64>,
    /// What a path consists of
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub path: PathOf,
    /// Fold recursion: a call site that is already on the path cuts the path back to its first
    /// place, counted from the root. So A→B→A→B→f counts as A→B→f, and deep recursion gives few
    /// paths
    #[arg(long)]
    pub collapse_recursion: bool,
    /// Keep paths apart by thread
    #[arg(long)]
    pub per_thread: bool,
    /// Keep paths apart by process, if several are measured together
    #[arg(long, requires = "several")]
    pub per_process: bool,
    /// Keep the cost of measuring in times; by default it is subtracted
    #[arg(long)]
    pub no_correction: bool,
    /// How an exit reads the clock
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub clock: Clock,
    /// Make no system call in the runtime, for a program that will put itself under a seccomp
    /// filter; the default for a program that is under a filter already
    #[arg(long)]
    pub no_system_calls: bool,
    /// Also apply the patterns to libraries that are loaded later (dlopen). Their functions are
    /// instrumented before the library's own code runs. A pattern without a match is then not an
    /// error
    #[arg(long, conflicts_with_all = ["search", "no_system_calls", "inlined"])]
    pub pending: bool,
    /// Also measure the children of the process (fork, vfork, clone and posix_spawn) and the
    /// programs that they execute, from their first instruction, with the same patterns
    #[arg(long, group = "several", conflicts_with = "no_system_calls")]
    pub follow: bool,
    /// Attach although ipath cannot suspend the seccomp filter of the program, for which it needs
    /// CAP_SYS_ADMIN. The filter may kill the program for the system calls of ipath
    #[arg(long)]
    pub allow_seccomp: bool,
    /// Maximum share of CPU time that measuring may take: functions that cost too much are only
    /// counted from then on, or taken out. A search drops them, and its default is 5%
    #[arg(long, value_name = "P%", value_parser = share)]
    pub max_overhead: Option<f64>,
    /// Maximum number of distinct paths; further ones share one per function
    #[arg(long, value_name = "N", default_value_t = ipath_session::session::MAX_PATHS,
          value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    pub max_paths: u64,
}
