//! Commands, options and values of other tools, and examples of the commands of ipath.

/// Commands of other tools, each with a hint at the command of ipath.
pub(super) const COMMANDS: [(&[&str], &str); 12] = [
    (
        &[
            "record", "trace", "probe", "live", "uprobe", "spy", "mem", "collect", "monitor",
            "watch",
        ],
        MEASURE,
    ),
    (
        &["stat", "count", "counters"],
        "counters are metrics: ipath attach PID -f FUNC -m cpu,cycles, or run with the same options",
    ),
    (
        &["script", "dump", "convert"],
        "the paths of a profile, one per line: ipath export profile.json --to folded -o -",
    ),
    (
        &["flamegraph", "svg", "graph-svg"],
        "a flame graph: ipath export profile.json --to flamegraph -o profile.svg",
    ),
    (
        &[
            "replay",
            "graph",
            "tree",
            "callgraph",
            "print",
            "show",
            "view",
        ],
        "the callers of each function: ipath report profile.json --tree",
    ),
    (
        &["annotate", "disasm"],
        "source lines and instructions with the counts of run --edges: ipath export profile.json --to annotate -o -",
    ),
    (
        &[
            "break",
            "b",
            "tbreak",
            "rbreak",
            "bt",
            "backtrace",
            "where",
            "continue",
            "c",
        ],
        "ipath stops nothing; the call paths to a function, live: ipath attach PID -f FUNC",
    ),
    (
        &["start", "launch", "exec", "r"],
        "a program is started by: ipath run -f FUNC -- PROGRAM",
    ),
    (
        &["stop", "kill", "quit", "end", "unload", "delete"],
        "a session is ended by: ipath detach PID",
    ),
    (
        &["profile", "find", "hotspots", "hot", "sample"],
        "the costliest paths are found by: ipath attach PID --search; estimates alone by: ipath \
        suggest PID",
    ),
    (
        &["ls", "functions", "symbols", "info", "nm"],
        "functions are listed by: ipath list PID 'NAME*'; sessions by: ipath status",
    ),
    (&["version"], "the version is printed by: ipath --version"),
];
/// The hint at the commands that measure functions.
pub(super) const MEASURE: &str = "functions are measured by: \
    ipath attach PID -f FUNC -o profile.json, or run -f FUNC -o profile.json -- PROGRAM";

/// The commands that measure functions.
pub(super) const MEASURING: &[&str] = &["attach", "run", "add", "remove", "top", "demo", "suggest"];
/// The commands that print profiles.
pub(super) const REPORT: &[&str] = &["report", "diff"];
/// The command that converts profiles.
pub(super) const EXPORT: &[&str] = &["export"];

/// Options of other tools: the commands of ipath at which a hint holds, the options, and the hint.
pub(super) const OPTIONS: [(&[&str], &[&str], &str); 26] = [
    (
        &["list"],
        &["-f", "--func", "-F", "--function"],
        "patterns are arguments: ipath list PID 'NAME*'",
    ),
    (
        MEASURING,
        &[
            "-F",
            "-P",
            "-A",
            "--function",
            "--functions",
            "--filter",
            "--probe",
            "--patch",
            "--symbol",
            "--name",
        ],
        FUNCTIONS,
    ),
    (
        MEASURING,
        &["-T", "-N", "--notrace", "--no-patch"],
        "only the functions that -f names are measured",
    ),
    (
        MEASURING,
        &[
            "-d",
            "-s",
            "-t",
            "--time",
            "--timeout",
            "--sleep",
            "--seconds",
            "--for",
        ],
        "the duration is given by --duration 5s",
    ),
    (
        MEASURING,
        &["-e", "--event", "--events", "--metrics"],
        "metrics and events are given by -m cpu,cycles",
    ),
    (
        MEASURING,
        &["-R", "--retval", "--argument", "--args"],
        "arguments and return values: -m arg1,ret",
    ),
    (
        MEASURING,
        &[
            "-g",
            "-k",
            "-b",
            "--call-graph",
            "--stack-trace",
            "--stacks",
            "--callgraph",
        ],
        "call paths are always recorded, and need no option; --depth K keeps the K innermost callers",
    ),
    (
        MEASURING,
        &["-D", "--max-stack", "--stack-depth"],
        "--depth K keeps the K innermost callers",
    ),
    (
        MEASURING,
        &["-c", "-C", "--freq", "--frequency", "--rate", "--count"],
        FREQUENCY,
    ),
    (
        MEASURING,
        &["-a", "--all", "--all-cpus", "--system-wide"],
        "one process is measured, and with --children also those that it has started",
    ),
    (
        MEASURING,
        &["--tid", "--tids", "--threads", "--no-merge", "-l"],
        "all threads of a process are measured; --per-thread keeps them apart",
    ),
    (
        MEASURING,
        &[
            "-i",
            "--follow-forks",
            "--follow-fork",
            "--fork",
            "--inherit",
            "--trace-children",
        ],
        "--follow also measures the processes that it starts; --children those that it has started",
    ),
    (
        MEASURING,
        &["--json", "-j"],
        "the format of standard output is given by --format json",
    ),
    (
        MEASURING,
        &["--batch", "--stdio", "--no-pager", "--script"],
        "--no-tui prints summaries instead of the view",
    ),
    (
        MEASURING,
        &["-v", "--verbose"],
        "whole names and details are printed by: ipath report profile.json -v",
    ),
    (
        MEASURING,
        &["-n"],
        "a name means the only process with that name: ipath attach NAME",
    ),
    (
        MEASURING,
        &["--output-file", "--out", "-w", "--log-file"],
        "the profile's file is given by -o FILE",
    ),
    (
        &["report", "diff", "export", "merge"],
        &["-i", "--input", "--input-file"],
        "profiles are arguments, not options",
    ),
    (
        REPORT,
        &[
            "-g",
            "-G",
            "--children",
            "--no-children",
            "--call-graph",
            "--graph",
            "--callers",
        ],
        "the callers of each function are shown by --tree",
    ),
    (
        REPORT,
        &["-s", "-k", "--sort-key", "--order", "--by"],
        "functions and paths are ordered by --sort total",
    ),
    (
        REPORT,
        &["-n", "--top", "--head", "--max", "--lines"],
        "the number of functions and paths is limited by --limit 10",
    ),
    (
        REPORT,
        &["--percent-limit", "--percentage"],
        "paths with too small a share are left out by --min-share 5%",
    ),
    (
        REPORT,
        &[
            "-f",
            "-F",
            "-S",
            "--func",
            "--functions",
            "--symbol",
            "--symbols",
        ],
        "--function NAME",
    ),
    (
        REPORT,
        &["--comm", "-c", "--pid", "-p", "--tid", "-t"],
        "--process PID or --thread NAME, where they are kept apart",
    ),
    (
        REPORT,
        &[
            "-o", "--output", "--stdio", "--format", "--to", "-T", "--tui",
        ],
        "it prints text, or JSON with --json; other formats are made by: ipath export",
    ),
    (
        EXPORT,
        &["--format", "--type", "-t", "-f", "-T"],
        "the format is given by --to flamegraph",
    ),
];
/// The hint at the option that names functions.
pub(super) const FUNCTIONS: &str = "functions are given by -f NAME, which may be repeated";
/// The hint for options that set a frequency of samples.
pub(super) const FREQUENCY: &str = "each call is measured, so there is no frequency; samples are \
    taken by: ipath suggest PID --duration 5s";

/// Examples for a command line without a required argument: the command, and the hint.
pub(super) const EXAMPLES: [(&str, &str); 12] = [
    (
        "attach",
        "for example: ipath attach 4242 -f FUNC; a name means the only process with that name",
    ),
    (
        "run",
        "the program comes after --: ipath run -f FUNC -- PROGRAM",
    ),
    (
        "suggest",
        "for example: ipath suggest 4242; a name means the only process with that name",
    ),
    ("list", "for example: ipath list 4242 'NAME*'"),
    (
        "report",
        "for example: ipath report profile.json; attach and run write it with -o profile.json",
    ),
    (
        "export",
        "for example: ipath export profile.json --to flamegraph -o profile.svg",
    ),
    ("diff", "for example: ipath diff old.json new.json"),
    (
        "merge",
        "for example: ipath merge a.json b.json -o all.json",
    ),
    (
        "snapshot",
        "for example: ipath snapshot 4242 -o now.json; ipath status lists the sessions",
    ),
    (
        "push",
        "for example: ipath push profile.json --to http://127.0.0.1:4040",
    ),
    (
        "add",
        "for example: ipath add 4242 -f FUNC; ipath status lists the sessions",
    ),
    (
        "remove",
        "for example: ipath remove 4242 -f FUNC; ipath status lists the sessions",
    ),
];

/// Values that other tools use: the option, its values, and the hint.
pub(super) const VALUES: [(&str, &[&str], &str); 6] = [
    (
        "--to",
        &["svg", "flame", "graph", "png"],
        "an SVG is made by --to flamegraph",
    ),
    (
        "--to",
        &["collapsed", "script", "stackcollapse"],
        "one line per path is made by --to folded",
    ),
    (
        "--to",
        &["prof", "pb", "pb.gz", "proto"],
        "a file for go tool pprof is made by --to pprof",
    ),
    (
        "--to",
        &["gecko", "chrome", "perfetto", "trace"],
        "--to firefox or --to speedscope",
    ),
    (
        "--to",
        &["cachegrind", "kcachegrind", "valgrind"],
        "a file for KCachegrind is made by --to callgrind",
    ),
    (
        "--sort",
        &[
            "overhead", "self", "time", "cost", "cpu", "wall", "symbol", "sym", "comm", "dso",
            "period",
        ],
        "--sort total orders by the metric that --metric names",
    ),
];
