//! Debug files from a debuginfod server, by the client of elfutils (`debuginfod-find`). The client
//! implements the protocol and caches the files. All of this is off unless `DEBUGINFOD_URLS` is
//! set.
//!
//! Files are fetched in the background. Only [`wait`] waits for a server.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};

use ipath_target::signals;

const CLIENT: &str = "debuginfod-find";

/// The maximum number of parallel downloads.
const AT_ONCE: usize = 4;

/// The time limit of [`wait`] if `DEBUGINFOD_TIMEOUT` sets none.
const PATIENCE: Duration = Duration::from_secs(10);

/// A requested file.
struct Wanted {
    build_id: Vec<u8>,
    /// The name for users of the file that it belongs to.
    of: String,
    is_it: IsDebugFile,
}

/// Checks a file for this build id. Returns `None` if it is not the debug file of that build id,
/// else the build id of the supplement that it refers to.
pub type IsDebugFile = fn(&Path, &[u8]) -> Option<Option<Vec<u8>>>;

/// The most build ids to remember. When there are more, all are forgotten and may be requested
/// again.
const MAX_ASKED: usize = 1 << 14;

/// The most files to name in a report.
const MAX_NAMES: usize = 256;

/// Names of files for a report.
#[derive(Default)]
struct Names {
    first: Vec<String>,
    /// The number of further files.
    others: u64,
}

impl Names {
    fn push(&mut self, name: String) {
        if self.first.len() < MAX_NAMES {
            self.first.push(name);
        } else {
            self.others += 1;
        }
    }

    /// The names, and a last entry with the number of further files if there are any.
    fn listed(&self) -> Vec<String> {
        let others = (self.others > 0).then(|| format!("{} others", self.others));
        self.first.iter().cloned().chain(others).collect()
    }
}

#[derive(Default)]
struct State {
    /// Build ids that were requested, at most [`MAX_ASKED`]. Each is requested once.
    asked: HashSet<Vec<u8>>,
    queue: VecDeque<Wanted>,
    /// The names of the files whose debug files are being downloaded.
    under_way: Vec<String>,
    /// The number of debug files that have arrived.
    arrived: u64,
    fetched: Names,
    failed: Names,
    /// True once a download has found that the client is not installed.
    is_deaf: bool,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if a server is configured.
pub fn is_on() -> bool {
    std::env::var("DEBUGINFOD_URLS").is_ok_and(|urls| !urls.trim().is_empty())
}

/// The path of the debug file with this build id. `None` if the client has not cached it or no
/// server is configured.
pub fn known(build_id: &[u8]) -> Option<PathBuf> {
    let folder = cache().filter(|_| is_on() && build_id.len() > 1)?;
    let path = folder.join(hex(build_id)).join("debuginfo");
    path.is_file().then_some(path)
}

/// The cache folder of the client, `None` without a home folder: debuginfod_find_debuginfo(3),
/// "CACHE".
fn cache() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = of("DEBUGINFOD_CACHE_PATH") {
        return Some(path.into());
    }
    let home = of("HOME").map(PathBuf::from);
    let old = home.as_ref().map(|h| h.join(".debuginfod_client_cache"));
    if let Some(old) = old.filter(|path| path.is_dir()) {
        return Some(old);
    }
    let folder = of("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(home?.join(".cache")))?;
    Some(folder.join("debuginfod_client"))
}

/// Requests the debug file of the file at `path`, which has this build id. Each build id is
/// requested once, in the background. Does nothing without a server or a client, and for a build id
/// of fewer than 2 bytes.
pub fn want(build_id: &[u8], path: &Path, is_it: IsDebugFile) {
    if !is_on() || build_id.len() < 2 {
        return;
    }
    let mut state = state();
    if state.is_deaf || state.asked.contains(build_id) {
        return;
    }
    if state.asked.len() >= MAX_ASKED {
        state.asked.clear();
    }
    state.asked.insert(build_id.to_owned());
    let of = path.file_name().unwrap_or(path.as_os_str());
    state.queue.push_back(Wanted {
        build_id: build_id.to_owned(),
        of: of.to_string_lossy().into_owned(),
        is_it,
    });
    if state.under_way.len() < AT_ONCE {
        begin_next(&mut state);
    }
}

/// Starts the next download in the queue, in a new thread that later starts another one. Does
/// nothing if the queue is empty.
fn begin_next(state: &mut State) {
    let Some(wanted) = state.queue.pop_front() else {
        return;
    };
    state.under_way.push(wanted.of.clone());
    signals::spawn(move || {
        let fetched = fetch(&wanted);
        let mut state = self::state();
        state.under_way.retain(|of| *of != wanted.of);
        match fetched {
            Ok(()) => {
                state.arrived += 1;
                state.fetched.push(wanted.of);
            }
            Err(NotFetched::NoClient) => {
                state.is_deaf = true;
                state.queue.clear();
            }
            Err(NotFetched::Because(cause)) => {
                state.failed.push(format!("{} ({cause})", wanted.of));
            }
        }
        begin_next(&mut state);
        CHANGED.notify_all();
    });
}

enum NotFetched {
    NoClient,
    Because(String),
}

/// Fetches a debug file, and the supplement that it refers to.
fn fetch(wanted: &Wanted) -> Result<(), NotFetched> {
    let path = find(&wanted.build_id)?;
    match (wanted.is_it)(&path, &wanted.build_id) {
        None => Err(NotFetched::Because(format!(
            "the fetched file is not a debug file with its build id: {}",
            path.display()
        ))),
        Some(None) => Ok(()),
        Some(Some(supplement)) => find(&supplement).map(drop),
    }
}

/// Runs the client and waits for it. Returns the path of the debug file with this build id.
fn find(build_id: &[u8]) -> Result<PathBuf, NotFetched> {
    let mut command = Command::new(CLIENT);
    command.args(["debuginfo", &hex(build_id)]);
    command.env_remove("DEBUGINFOD_PROGRESS");
    command.env_remove("DEBUGINFOD_VERBOSE");
    let prepare = || {
        // The client ends with this process, or more exactly with the thread that waits for it.
        set_pdeathsig(Signal::SIGKILL)?;
        Ok(SigSet::empty().thread_set_mask()?)
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(prepare) };
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NotFetched::NoClient,
        _ => NotFetched::Because(ipath_base::error::io_text(&error)),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().next().filter(|_| output.status.success());
    path.map(PathBuf::from).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("the client has failed");
        let cause = last.strip_prefix("Server query failed: ").unwrap_or(last);
        NotFetched::Because(match cause {
            "No such file or directory" => "no server has it".to_owned(),
            cause => cause.to_lowercase(),
        })
    })
}

/// The number of debug files that have arrived. When it changes, more names may be known.
pub fn arrived() -> u64 {
    if is_on() { state().arrived } else { 0 }
}

/// True while a download is in progress.
pub fn is_pending() -> bool {
    is_on() && !state().under_way.is_empty()
}

/// Waits until no download is in progress, at most for `DEBUGINFOD_TIMEOUT` seconds (default 10)
/// and until `is_over` returns true.
pub fn wait(is_over: impl Fn() -> bool) {
    const A_WHILE: Duration = Duration::from_millis(50);
    let end = Instant::now() + patience();
    let mut state = state();
    while !state.under_way.is_empty() && !is_over() {
        if Instant::now() >= end {
            break;
        }
        let waited = CHANGED.wait_timeout(state, A_WHILE);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

fn patience() -> Duration {
    let seconds = std::env::var("DEBUGINFOD_TIMEOUT").ok();
    let seconds = seconds.and_then(|s| s.trim().parse().ok());
    seconds
        .filter(|&s| s > 0)
        .map_or(PATIENCE, Duration::from_secs)
}

/// One line about fetched and missing files, or about the missing client. `None` if no file was
/// requested or no server is configured.
pub fn report() -> Option<String> {
    if !is_on() {
        return None;
    }
    let state = state();
    if state.is_deaf {
        return Some(format!(
            "debuginfod: DEBUGINFOD_URLS is set, and {CLIENT} is not installed (elfutils; the package debuginfod in Debian)"
        ));
    }
    let listed = |what: &str, names: &[String]| {
        if names.is_empty() {
            None
        } else {
            Some(format!("{what} {}", names.join(", ")))
        }
    };
    let waiting = state.queue.iter().map(|wanted| wanted.of.clone());
    let waiting: Vec<String> = state.under_way.iter().cloned().chain(waiting).collect();
    let parts = [
        listed("fetched debug information of", &state.fetched.listed()),
        listed("not fetched:", &state.failed.listed()),
        listed("not waited for:", &waiting),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("debuginfod: {}", parts.join("; ")))
}

/// A build id in hexadecimal.
pub fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}
