//! Debug files that a server has: debuginfod, by the client of elfutils (`debuginfod-find`), which knows the protocol and
//! keeps what has come. Off where `DEBUGINFOD_URLS` is not set.
//!
//! Nothing waits for a server unless it says so: files are fetched meanwhile, and known once they have come.

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

/// Files that are fetched at the same time.
const AT_ONCE: usize = 4;

/// How long is waited where `DEBUGINFOD_TIMEOUT` does not say so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file that is wanted.
struct Wanted {
    build_id: Vec<u8>,
    /// What it is of, as a user calls it.
    of: String,
    is_it: IsDebugFile,
}

/// For a debug file that has this build id: the build id of the supplement that it refers to, if it does; `None` for any
/// other file.
pub type IsDebugFile = fn(&Path, &[u8]) -> Option<Option<Vec<u8>>>;

#[derive(Default)]
struct State {
    /// Build ids that have been asked for, each once.
    asked: HashSet<Vec<u8>>,
    queue: VecDeque<Wanted>,
    /// What is being fetched.
    under_way: Vec<String>,
    /// How many have come.
    arrived: u64,
    fetched: Vec<String>,
    failed: Vec<String>,
    /// True where there is no client.
    is_deaf: bool,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if there is a server to ask.
pub fn is_on() -> bool {
    std::env::var("DEBUGINFOD_URLS").is_ok_and(|urls| !urls.trim().is_empty())
}

/// Where the debug file of this build id is, if the client has it.
pub fn known(build_id: &[u8]) -> Option<PathBuf> {
    let folder = cache().filter(|_| is_on() && build_id.len() > 1)?;
    let path = folder.join(hex(build_id)).join("debuginfo");
    path.is_file().then_some(path)
}

/// Where the client keeps what it has fetched: debuginfod_find_debuginfo(3), "CACHE".
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

/// Has the debug file of the file at `path` fetched meanwhile, once. It has this build id.
pub fn want(build_id: &[u8], path: &Path, is_it: IsDebugFile) {
    if !is_on() || build_id.len() < 2 {
        return;
    }
    let mut state = state();
    if state.is_deaf || !state.asked.insert(build_id.to_owned()) {
        return;
    }
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

/// Begins with the first that is waiting.
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

/// Fetches a debug file, and the one that it shares its debug information with.
fn fetch(wanted: &Wanted) -> Result<(), NotFetched> {
    let path = find(&wanted.build_id)?;
    match (wanted.is_it)(&path, &wanted.build_id) {
        None => Err(NotFetched::Because(format!(
            "what has come is no debug file of its build id: {}",
            path.display()
        ))),
        Some(None) => Ok(()),
        Some(Some(supplement)) => find(&supplement).map(drop),
    }
}

/// The path of what the client has found.
fn find(build_id: &[u8]) -> Result<PathBuf, NotFetched> {
    let mut command = Command::new(CLIENT);
    command.args(["debuginfo", &hex(build_id)]);
    command.env_remove("DEBUGINFOD_PROGRESS");
    command.env_remove("DEBUGINFOD_VERBOSE");
    let prepare = || {
        // It ends with this process, or rather with the thread that waits for it.
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

/// How many have come: where it is another number than before, something is known that was not.
pub fn arrived() -> u64 {
    if is_on() { state().arrived } else { 0 }
}

/// True if something is on its way.
pub fn is_pending() -> bool {
    is_on() && !state().under_way.is_empty()
}

/// Waits until nothing is on its way any more, as long as `DEBUGINFOD_TIMEOUT` says (10 s without it) and
/// `is_over` does not end it.
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

/// What has been fetched and what not, in a line, if anything was wanted.
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
        listed("fetched debug information of", &state.fetched),
        listed("not fetched:", &state.failed),
        listed("not waited for:", &waiting),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("debuginfod: {}", parts.join("; ")))
}

/// A build id as it is written.
pub fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}
