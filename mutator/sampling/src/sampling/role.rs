//! The role of a function in waits, by its name. See [`super::purpose`].

use std::borrow::Cow;

/// The role of a function in waits within it. If a stack has several roles, the last of this list
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The function does not determine the kind of the wait.
    #[default]
    Plain,
    /// A clock ends the wait.
    Sleep,
    /// Another thread of the program ends the wait.
    Condition,
    /// The thread waits for work.
    ForWork,
    /// The thread waits for a lock or for an answer, by whatever means.
    ForOthers,
}

impl Role {
    /// The role of a path, from those of its functions. The strongest counts.
    pub(super) fn of_path(roles: impl IntoIterator<Item = Self>) -> Self {
        roles.into_iter().max().unwrap_or_default()
    }
}

/// System calls that wait for requests, and functions of runtimes in which idle threads wait.
const FOR_WORK: [&str; 32] = [
    "accept",
    "accept4",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "g_async_queue_pop",
    "g_async_queue_timeout_pop",
    "g_main_context_poll",
    "io_getevents",
    "io_uring_enter",
    "pause",
    "poll",
    "ppoll",
    "pselect",
    "rt_sigtimedwait",
    "select",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "runtime.findRunnable",
    "runtime.netpoll",
    "runtime.stopm",
    "runtime.sysmon",
    "runtime.timerproc",
    "CompileQueue::get",
    "WatcherThread::sleep",
    "WorkerTaskDispatcher::worker_wait_for_task",
    "VMThread::wait_for_vm_thread_operation",
    "ServiceThread::service_thread_entry",
    "MonitorDeflationThread::monitor_deflation_thread_entry",
    "JVM_WaitForReferencePendingList",
];

/// More functions that wait for work, by two parts of their names in this order.
const FOR_WORK_PARTS: [(&str, &str); 6] = [
    ("tokio::runtime", "::park"),
    ("rayon_core", "::sleep::Sleep::sleep"),
    ("TaskQueue", "BlockingPop"),
    ("WorkerThreads", "::GetNext"),
    ("G1", "::wait_for_completed_buffers"),
    ("G1ServiceThread", "::wait"),
];

/// Functions that wait for a time.
const SLEEPS: [&str; 6] = [
    "clock_nanosleep",
    "g_usleep",
    "nanosleep",
    "sleep",
    "thrd_sleep",
    "usleep",
];

/// More functions that wait for a time, by a part of their names.
const SLEEP_PARTS: [&str; 2] = [
    "std::this_thread::sleep_for",
    "std::this_thread::sleep_until",
];

/// Functions that wait until another thread of the program acts.
const CONDITIONS: [&str; 30] = [
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "cnd_wait",
    "cnd_timedwait",
    "g_cond_wait",
    "g_cond_wait_until",
    "uv_cond_wait",
    "uv_cond_timedwait",
    "uv_sem_wait",
    "Monitor::wait",
    "Monitor::wait_without_safepoint_check",
    "PlatformMonitor::wait",
    "PosixSemaphore::wait",
    "PosixSemaphore::timedwait",
    "Parker::park",
    "Unsafe_Park",
    "os::PlatformEvent::park",
    "PlatformEvent::park",
    "ObjectMonitor::wait",
    "ObjectSynchronizer::wait",
    "JVM_MonitorWait",
    "v8::base::ConditionVariable::Wait",
    "absl::CondVar::Wait",
];

/// Receivers of channels, by two parts of their names in this order. The first one begins the name.
const RECEIVERS: [(&str, &str); 6] = [
    ("std::sync::mpmc::", "::recv"),
    ("std::sync::mpsc::", "::recv"),
    ("crossbeam_channel::", "::recv"),
    ("crossbeam_channel::select", "run_select"),
    ("flume::", "::recv"),
    ("flume::", "::wait_recv"),
];

/// More functions that wait on a condition, by a part of their names.
const CONDITION_PARTS: [&str; 7] = [
    "std::condition_variable",
    "boost::condition_variable",
    "std::counting_semaphore",
    "Condvar::wait",
    "Condvar>::wait",
    "condvar::Condvar",
    "crossbeam_channel::context::Context::wait_until",
];

/// Functions of Rust's `std::thread` that wait until another thread unparks this one. Their module
/// below `std::thread` differs between versions.
const RUST_PARKS: [&str; 3] = ["park", "park_timeout", "park_timeout_ms"];
/// Functions of Rust's `std::thread` that wait for a time.
const RUST_SLEEPS: [&str; 3] = ["sleep", "sleep_ms", "sleep_until"];

/// Locks built on condition variables or `epoll_wait`, and clients that wait for the answer of
/// another process.
const FOR_OTHERS: [&str; 22] = [
    "take_gil",
    "thread_sched_to_running",
    "gvl_acquire",
    "ProcSleep",
    "LWLockAcquire",
    "LockAcquireExtended",
    "SyncRepWaitForLSN",
    "WaitForParallelWorkersToFinish",
    "ObjectMonitor::enter",
    "ObjectMonitor::EnterI",
    "ObjectMonitor::enter_internal",
    "ObjectMonitor::ReenterI",
    "parking_lot::raw_mutex::RawMutex::lock_slow",
    "absl::Mutex::LockSlow",
    "pqWait",
    "PQgetResult",
    "mysql_real_query",
    "curl_easy_perform",
    "getaddrinfo",
    "connect",
    "pg_usleep",
    "WaitForLockers",
];

/// The role of a function with this demangled name.
pub(super) fn role_of(name: &str) -> Role {
    let name = &*without_brackets(without_hash(name));
    let bare = name.trim_start_matches('_');
    let bare = bare.strip_prefix("libc_").unwrap_or(bare);
    // Without the parameters.
    let bare = bare.split('(').next().unwrap_or(bare);
    let is_in = |list: &[&str]| list.contains(&bare) || list.contains(&name);
    let has_parts = |&(first, then): &(&str, &str)| {
        name.find(first)
            .is_some_and(|at| name[at + first.len()..].contains(then))
    };
    // Not a function with such a type as its parameter.
    let is_receiver = |parts: &(&str, &str)| name.starts_with(parts.0) && has_parts(parts);
    let of_thread = name.strip_prefix("std::thread::");
    let of_thread = of_thread.map(|path| path.rsplit("::").next().unwrap_or(path));
    let is_of_thread = |list: &[&str]| of_thread.is_some_and(|method| list.contains(&method));
    if is_in(&FOR_OTHERS) {
        Role::ForOthers
    } else if is_in(&FOR_WORK) || FOR_WORK_PARTS.iter().any(has_parts) {
        Role::ForWork
    } else if is_in(&CONDITIONS)
        || CONDITION_PARTS.iter().any(|part| name.contains(part))
        || RECEIVERS.iter().any(is_receiver)
        || is_of_thread(&RUST_PARKS)
    {
        Role::Condition
    } else if is_in(&SLEEPS)
        || SLEEP_PARTS.iter().any(|part| name.contains(part))
        || is_of_thread(&RUST_SLEEPS)
    {
        Role::Sleep
    } else {
        Role::Plain
    }
}

/// A Rust method as `type::method`, where its name is `<type>::method`. Other names are returned as
/// they are.
fn without_brackets(name: &str) -> Cow<'_, str> {
    let Some(inside) = name.strip_prefix('<') else {
        return Cow::Borrowed(name);
    };
    let mut depth = 1;
    let end = inside.char_indices().find(|(_, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    match end {
        // A method of a trait.
        Some((end, _)) if inside[..end].contains(" as ") => Cow::Borrowed(name),
        Some((end, _)) => Cow::Owned(format!("{}{}", &inside[..end], &inside[end + 1..])),
        None => Cow::Borrowed(name),
    }
}

/// A Rust name without the hash at its end.
fn without_hash(name: &str) -> &str {
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match name.rsplit_once("::h") {
        Some((rest, hash)) if is_hash(hash) => rest,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_by_whatever_it_waits() {
        use Role::*;
        // postgres: epoll_wait < WaitEventSetWait < WaitLatch < ProcSleep; Python:
        // pthread_cond_timedwait < take_gil.
        assert_eq!(Role::of_path([ForWork, Plain, Plain, ForOthers]), ForOthers);
        assert_eq!(Role::of_path([Condition, ForOthers, Plain]), ForOthers);
        assert_eq!(Role::of_path([Condition, Plain, ForWork]), ForWork);
        assert_eq!(Role::of_path([Plain, Condition, Plain]), Condition);
        assert_eq!(Role::of_path([Plain, Plain]), Plain);
    }

    #[test]
    fn functions_say_what_waits_in_them_are() {
        for (name, role) in [
            ("epoll_wait", Role::ForWork),
            ("__poll", Role::ForWork),
            ("__libc_accept", Role::ForWork),
            ("runtime.stopm", Role::ForWork),
            ("tokio::runtime::park::Inner::park", Role::ForWork),
            (
                "tokio::runtime::scheduler::multi_thread::worker::Context::park_timeout",
                Role::ForWork,
            ),
            ("CompileQueue::get(CompilerThread*)", Role::ForWork),
            ("pthread_cond_wait", Role::Condition),
            ("__pthread_cond_timedwait", Role::Condition),
            (
                "void std::condition_variable::wait<run()::{lambda()#1}>(int)",
                Role::Condition,
            ),
            ("std::sync::poison::condvar::Condvar::wait", Role::Condition),
            ("std::thread::park::h0123456789abcdef", Role::Condition),
            (
                "<a::handle::Condvar>::wait::h0123456789abcdef",
                Role::Condition,
            ),
            ("<std::thread::thread::Thread>::park", Role::Condition),
            ("std::thread::functions::park", Role::Condition),
            (
                "std::thread::functions::park_timeout::h0123456789abcdef",
                Role::Condition,
            ),
            ("std::thread::functions::sleep_until", Role::Sleep),
            ("std::thread::scoped::scope", Role::Plain),
            (
                "std::sync::mpmc::array::Channel<T>::recv::{{closure}}",
                Role::Condition,
            ),
            (
                "<std::sync::mpmc::list::Channel<app::Job>>::recv",
                Role::Condition,
            ),
            (
                "crossbeam_channel::flavors::array::Channel<T>::recv",
                Role::Condition,
            ),
            (
                "<crossbeam_channel::context::Context>::wait_until",
                Role::Condition,
            ),
            (
                "core::ptr::drop_in_place<std::sync::mpmc::zero::Channel<T>::recv>",
                Role::Plain,
            ),
            ("<rayon_core::sleep::Sleep>::sleep", Role::ForWork),
            ("<tokio::runtime::park::Inner>::park", Role::ForWork),
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                Role::Plain,
            ),
            ("__nanosleep", Role::Sleep),
            ("usleep", Role::Sleep),
            (
                "void std::this_thread::sleep_for<long, std::ratio<1l, 1000l> >(int)",
                Role::Sleep,
            ),
            ("take_gil", Role::ForOthers),
            ("ProcSleep", Role::ForOthers),
            ("pthread_mutex_lock", Role::Plain),
            ("read", Role::Plain),
            ("connected", Role::Plain),
        ] {
            assert_eq!(role_of(name), role, "{name}");
        }
    }
}
