//! Mapping a session into a target: the runtime's pages and the segment, by system calls of a
//! stopped thread.
//!
//! The addresses are chosen and recorded first, so that a command that finds a half-mapped session
//! can remove its parts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use patcher::Avma;

use super::locked::make_way;
use super::{SessionError, descriptor};
use crate::arch::is_thread_pointer_readable;
use crate::runtime_image::RuntimeImage;
use crate::segment::{Document, Lock, Segment, SegmentError, Shape, has_mapped};
use ipath_target::process::identity::file_id;
use ipath_target::process::maps::free_range;
use ipath_target::process::{Extent, Mapping, Memory, Process, Space};
use ipath_target::tracee::{CallCode, Remote, Stopped, TraceeError};

/// The inputs of the mapping.
pub(super) struct Ready<'r> {
    pub(super) process: &'r Process,
    pub(super) space: &'r Arc<Space>,
    pub(super) image: &'r RuntimeImage,
    pub(super) shape: &'r Shape,
    /// Bytes reserved after the image for a runtime that makes no system calls; 0 for one that
    /// does.
    pub(super) reserve: u64,
    /// True if the target's memory cgroup has a limit. The runtime's initial memory is then
    /// populated at once.
    pub(super) is_bounded: bool,
    /// True if there is room here for a named segment.
    pub(super) has_room: bool,
}

/// A session in the target before its first function is in.
pub(super) struct Placed {
    pub(super) segment: Segment,
    pub(super) lock: Lock,
    /// The named segment that describes this session until an unnamed one has a document. `None` if
    /// the session is in the named segment, or if there is no place for one.
    pub(super) draft: Option<(Segment, Lock)>,
    /// The properties of the threads' control blocks.
    pub(super) control_block: ControlBlock,
    /// How long the target was stopped for it. `None` if it was already stopped.
    pub(super) stop: Option<Duration>,
}

/// How the runtime distinguishes threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadPointer {
    /// The word at the thread pointer is its own address (psABI 3.4.6), which holds for all threads
    /// made by a libc.
    SelfPointer,
    /// An instruction reads the register.
    Register,
}

impl ThreadPointer {
    /// `None` if neither is available: threads would be confused with each other.
    fn known(has_self_pointer: bool, may_read: bool) -> Option<Self> {
        match (has_self_pointer, may_read) {
            (true, _) => Some(Self::SelfPointer),
            (false, true) => Some(Self::Register),
            (false, false) => None,
        }
    }
}

/// Properties of every thread's control block on which the runtime may rely.
#[derive(Clone, Copy)]
pub(super) struct ControlBlock {
    /// How the thread pointer is found.
    pub(super) thread_pointer: ThreadPointer,
    /// True if the register may be read.
    pub(super) may_read: bool,
    /// Bytes from the thread pointer to the thread's id. `None` if no such place is known.
    pub(super) tid_offset: Option<i32>,
}

/// A named segment and its lock, if it can exist here.
type Named = Option<(Segment, Lock)>;

/// Maps the runtime's pages and the segment, and records their addresses in the document. First
/// removes remains of other sessions.
///
/// # Errors
/// The process has a session, or a mapping failed.
pub(super) fn map_in(
    ready: &Ready<'_>,
    document: &mut Document,
    stopped: Option<&mut Stopped>,
) -> Result<Placed, SessionError> {
    let named = named_segment(ready)?;
    match map_with(ready, document, stopped, &named) {
        Ok((own, control_block, stop)) => {
            let (main, draft) = match own {
                Some(own) => (own, named),
                None => (named.ok_or(SegmentError::Missing)?, None),
            };
            Ok(Placed {
                segment: main.0,
                lock: main.1,
                draft,
                control_block,
                stop,
            })
        }
        Err(error) => {
            if let Some((segment, _)) = named {
                segment.remove_name();
            }
            Err(error)
        }
    }
}

/// Creates the named segment. Returns `None` if there is no place for it here. If that place is
/// nearly full, the target makes its own segment, and the named one serves until that has a
/// document.
fn named_segment(ready: &Ready<'_>) -> Result<Named, SessionError> {
    /// The most attempts. Other commands may be faster and then be killed.
    const TRIES: usize = 16;
    for _ in 0..TRIES {
        make_way(ready.process, ready.space)?;
        match Segment::create(ready.process, ready.shape) {
            Ok(made) => return Ok(Some(made)),
            Err(SegmentError::Io(_, error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(SegmentError::Io(path, error)) => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => {
                    return Err(SegmentError::Io(path, error).into());
                }
                _ => return Ok(None),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Err(SegmentError::Busy.into())
}

/// Result of the mapping: the target's own segment if it cannot open the named one, the properties
/// of control blocks, and the length of the stop.
type Mapped = (Named, ControlBlock, Option<Duration>);

/// Chooses and records the addresses, and maps the runtime's pages and the segment. Chooses other
/// addresses if the program has mapped something at these.
fn map_with(
    ready: &Ready<'_>,
    document: &mut Document,
    mut stopped: Option<&mut Stopped>,
    named: &Named,
) -> Result<Mapped, SessionError> {
    /// The program may map something at the chosen address before it is stopped.
    const TRIES: usize = 8;
    let Ready {
        process,
        space,
        image,
        shape,
        reserve,
        ..
    } = *ready;
    let mut tries = 0;
    // Most processes that share memory are vfork(2) children. They stop sharing it before the
    // parent thread that waits for them can be stopped.
    let sharing = process.sharing();
    loop {
        let maps = space.maps()?;
        let image_len = image.size + reserve;
        let whole = image_len + shape.size();
        let start = free_range(&maps, whole).ok_or(SessionError::NoSpace(whole))?;
        let base = start.plus(shape.size());
        document.segment = Extent {
            start,
            len: shape.size(),
        };
        document.image = Extent {
            start: base,
            len: image_len,
        };
        if let Some((segment, _)) = named {
            match segment.write_document(document) {
                // There is too little memory even for the document. Without a name the target
                // cannot open the file.
                Err(SegmentError::Full) => segment.remove_name(),
                written => written?,
            }
        }
        let code = CallCode::find(process, &maps, space.memory())?;
        let (result, stop) = match stopped.as_deref_mut() {
            Some(stopped) => (map_parts(ready, document, &code, stopped, named), None),
            None => {
                // All threads are stopped although one makes the calls. It would wait for a
                // processor otherwise.
                let mut all = Stopped::all(space)?;
                let shared = sharing.iter().find(|&&other| process.shares_with(other));
                let result = match shared {
                    Some(other) => Err(SessionError::Held(format!(
                        "process {other} shares its memory, and cannot be stopped while ipath \
                        changes it"
                    ))),
                    None => map_parts(ready, document, &code, &mut all, named),
                };
                (result, Some(all.resume()?))
            }
        };
        match result {
            Ok((own, control_block)) => return Ok((own, control_block, stop)),
            Err(SessionError::Tracee(TraceeError::Call(_, Errno::EEXIST))) if tries < TRIES => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Maps the runtime's pages and the segment. Returns the target's own segment if it cannot open the
/// named one, and the properties of control blocks.
fn map_parts(
    ready: &Ready<'_>,
    document: &Document,
    code: &CallCode,
    stopped: &mut Stopped,
    named: &Named,
) -> Result<(Named, ControlBlock), SessionError> {
    let Ready { process, space, .. } = *ready;
    const AT_HWCAP2: u64 = 26;
    let memory = space.memory();
    // Only one command can have the process stopped, so no session can be added after this check.
    let is_ours = |m: &_| named.as_ref().is_some_and(|(segment, _)| segment.is_in(m));
    let others: Vec<Mapping> = space.maps()?.into_iter().filter(|m| !is_ours(m)).collect();
    if has_mapped(process, &others) {
        return Err(SessionError::Exists);
    }
    let base = document.image.start;
    let has_self_pointer = stopped.threads().all(|thread| {
        let base = thread.thread_pointer();
        base != Avma(0) && memory.read_word(base).is_ok_and(|word| word == base.0)
    });
    let may_read = is_thread_pointer_readable(process.auxiliary(AT_HWCAP2).unwrap_or(0));
    let thread_pointer = ThreadPointer::known(has_self_pointer, may_read).ok_or_else(|| {
        let why = "its threads cannot be told apart: no self-pointer at %fs:0, and the kernel or the \
                   processor does not let programs read the FS base (AT_HWCAP2)";
        SessionError::Held(why.to_owned())
    })?;
    let mut known = HashSet::new();
    if !stopped
        .threads()
        .all(|thread| known.insert(thread.thread_pointer()))
    {
        let why = "its threads cannot be told apart: two have the same FS base (clone(2) without \
                   CLONE_SETTLS)";
        return Err(SessionError::Held(why.to_owned()));
    }
    if stopped.threads().any(|thread| thread.dispatches_calls()) {
        let why = "it intercepts its own system calls (PR_SET_SYSCALL_USER_DISPATCH), as Wine does";
        return Err(SessionError::Held(why.to_owned()));
    }
    let mut remote = Remote::new(code, stopped)?;
    let control_block = ControlBlock {
        thread_pointer,
        may_read,
        tid_offset: tid_offset(process, memory, &remote),
    };
    if document.quiet {
        remote.may_clean_up()?;
    }
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let locks = process.locks_memory();
    let len = document.image.len;
    remote.map_lazily(locks, base, len, executable, anonymous, -1)?;
    match map_segment(ready, document, &mut remote, named) {
        Ok(own) => Ok((own, control_block)),
        Err(error) => {
            let _ = remote.unmap(base, len);
            Err(error)
        }
    }
}

/// Maps the segment, and prepares the runtime's writable pages. Returns the target's own segment if
/// it cannot open the named one.
fn map_segment(
    ready: &Ready<'_>,
    document: &Document,
    remote: &mut Remote<'_>,
    named: &Named,
) -> Result<Named, SessionError> {
    let Ready {
        process,
        image,
        shape,
        ..
    } = *ready;
    let (base, at) = (document.image.start, document.segment.start);
    let writable = &image.writable;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // The writable pages are the image's last, and the reserve follows them.
    let writable_len = document.image.len - writable.start;
    remote.protect(base.plus(writable.start), writable_len, protection)?;
    // The image's writable pages are still unused, so names are passed there.
    let scratch = base.plus(writable.start);
    let opened = named
        .as_ref()
        .filter(|(segment, _)| ready.has_room && !segment.is_draft())
        .and_then(|(segment, _)| open_named(process, remote, scratch, segment));
    let (own, fd) = match opened {
        Some(fd) => (None, fd),
        None => {
            let (own, fd) = own_file(process, remote, scratch, shape, Some(document))?;
            (Some(own), fd)
        }
    };
    let locks = process.locks_memory();
    let shared = libc::MAP_SHARED;
    let mapped = remote.map_lazily(locks, at, shape.size(), protection, shared, fd as i64);
    let closed = close(remote, fd);
    mapped?;
    let segment = own.as_ref().or(named.as_ref());
    let rest = || {
        closed?;
        // A process that shares the descriptors may have replaced the file.
        let maps = ready.space.maps()?;
        let is_it = |m: &Mapping| {
            m.range.start == at && segment.is_some_and(|(segment, _)| segment.is_in(m))
        };
        if !maps.iter().any(is_it) {
            let why =
                "a process that shares its descriptors has replaced ipath's file by another one";
            return Err(SessionError::Held(why.to_owned()));
        }
        // The image expects zeroes here.
        pass(remote, scratch, &[0; 128])?;
        let alive = image
            .address(base, abi::image::SYMBOL_ALIVE)
            .map_err(SessionError::Image)?;
        remote.advise(alive, abi::PAGE, libc::MADV_WIPEONFORK)?;
        let paths = image
            .address(base, abi::image::SYMBOL_PATHS)
            .map_err(SessionError::Image)?;
        remote.advise(paths, abi::path::SLOTS_BYTES, libc::MADV_WIPEONFORK)?;
        remote.advise(at, shape.size(), libc::MADV_DONTFORK)?;
        if ready.is_bounded {
            populate(
                remote,
                base.plus(writable.start),
                writable.end - writable.start,
            )?;
            populate_first(remote, at, shape)?;
        }
        Ok::<(), SessionError>(())
    };
    match rest() {
        Ok(()) => Ok(own),
        Err(error) => {
            let _ = remote.unmap(at, shape.size());
            Err(error)
        }
    }
}

/// Populates the pages of a mapping of the target. The memory for them must be available. Fails if
/// the call fails.
pub(super) fn populate(remote: &mut Remote<'_>, at: Avma, len: u64) -> Result<(), TraceeError> {
    const MADV_POPULATE_WRITE: i32 = 23;
    remote.advise(at, len, MADV_POPULATE_WRITE)
}

/// Like `populate`, for the parts of a segment that the runtime reads before it populates anything.
pub(super) fn populate_first(
    remote: &mut Remote<'_>,
    segment: Avma,
    shape: &Shape,
) -> Result<(), TraceeError> {
    for range in shape.read_first() {
        populate(remote, segment.plus(range.start), range.end - range.start)?;
    }
    Ok(())
}

/// Writes the argument of a call to the target's address `at`. Fails if the memory cannot be
/// written.
pub(super) fn pass(remote: &Remote<'_>, at: Avma, bytes: &[u8]) -> Result<(), SessionError> {
    let written = remote.text().write(at, bytes);
    written.map_err(|e| SessionError::Memory("write", at, e))
}

/// Closes a descriptor of the target. Fails if the call fails.
pub(super) fn close(remote: &mut Remote<'_>, fd: u64) -> Result<(), TraceeError> {
    let closed = remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    closed.map(drop)
}

/// Opens the named segment in the target, and returns the target's descriptor. Writes the name to
/// `scratch`, an address in the target. Returns `None` if the target cannot open it or sees another
/// file under its name.
pub(super) fn open_named(
    process: &Process,
    remote: &mut Remote<'_>,
    scratch: Avma,
    segment: &Segment,
) -> Option<u64> {
    let mut name = segment.path()?.to_str()?.as_bytes().to_vec();
    name.push(0);
    pass(remote, scratch, &name).ok()?;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64;
    let arguments = [libc::AT_FDCWD as u64, scratch.0, flags, 0, 0, 0];
    let fd = remote.call("open", libc::SYS_openat, arguments).ok()?;
    let theirs = fs::metadata(format!("/proc/{}/fd/{fd}", process.entry()));
    match (theirs, segment.file_id()) {
        (Ok(theirs), Ok(ours)) if file_id(&theirs) == ours => Some(fd),
        _ => {
            let _ = close(remote, fd);
            None
        }
    }
}

/// Creates an unnamed file of the target's own and opens it here too. Writes the document, if there
/// is one yet. Returns the segment with its lock, and the target's descriptor. Fails if the file
/// cannot be created, opened here or written.
pub(super) fn own_file(
    process: &Process,
    remote: &mut Remote<'_>,
    scratch: Avma,
    shape: &Shape,
    document: Option<&Document>,
) -> Result<((Segment, Lock), u64), SessionError> {
    pass(remote, scratch, b"ipath\0")?;
    let flags = u64::from(libc::MFD_CLOEXEC);
    let fd = remote.call(
        "memfd_create",
        libc::SYS_memfd_create,
        [scratch.0, flags, 0, 0, 0, 0],
    )?;
    let open = || {
        let path = PathBuf::from(format!("/proc/{}/fd/{fd}", process.entry()));
        let io = |e| SegmentError::Io(path.clone(), e);
        let file = descriptor::own_memfd(process, remote.tid(), fd as i32).map_err(io)?;
        file.set_len(shape.size()).map_err(io)?;
        let (segment, lock) = Segment::from_target(file, process, shape)?;
        // A command that finds the file mapped can see which session it belongs to.
        if let Some(document) = document {
            segment.write_document(document)?;
        }
        Ok::<_, SegmentError>((segment, lock))
    };
    match open() {
        Ok(own) => Ok((own, fd)),
        Err(error) => {
            let _ = close(remote, fd);
            Err(error.into())
        }
    }
}

/// Bytes from the thread pointer to the id of a thread: the only place in the stopped thread's
/// control block that contains it. glibc and musl have different offsets. `None` if there is no
/// such place.
fn tid_offset(process: &Process, memory: &Memory, thread: &Remote<'_>) -> Option<i32> {
    const BLOCK: usize = 1024;
    // The last of the ids is the one in the thread's own pid namespace.
    let ids = process.thread_status(thread.tid(), "NSpid")?;
    let tid = ids
        .split_whitespace()
        .last()?
        .parse::<u32>()
        .ok()?
        .to_le_bytes();
    let block = memory.read_vec(thread.thread_pointer(), BLOCK).ok()?;
    let mut places = (0..BLOCK).step_by(4).filter(|&at| block[at..at + 4] == tid);
    let place = places.next()?;
    places.next().is_none().then_some(place as i32)
}

#[cfg(test)]
mod tests {
    use super::ThreadPointer;

    #[test]
    fn threads_that_cannot_be_told_apart_are_refused() {
        assert_eq!(
            ThreadPointer::known(true, false),
            Some(ThreadPointer::SelfPointer)
        );
        assert_eq!(
            ThreadPointer::known(true, true),
            Some(ThreadPointer::SelfPointer)
        );
        assert_eq!(
            ThreadPointer::known(false, true),
            Some(ThreadPointer::Register)
        );
        assert_eq!(ThreadPointer::known(false, false), None);
    }
}
