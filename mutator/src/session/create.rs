//! Making a session: the runtime and the segment are mapped into the target by the target's own
//! system calls, made on a stopped thread, and filled from outside.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

use abi::image::{ALIVE, Parameters, SYMBOL_ALIVE, SYMBOL_PARAMETERS};
use abi::segment::STATE_ACTIVE;
use patcher::Avma;
use patcher::plan::Effects;

use super::apply::write;
use super::{Changed, Selection, Session, SessionError};
use crate::clock;
use crate::process::modules::Module;
use crate::process::{Mapping, Memory, Process};
use crate::runtime_image::RuntimeImage;
use crate::segment::{Document, MetricDoc, Segment, SegmentError, Shape};
use crate::tracee::{Remote, Stopped, StoppedThread};

/// What is measured beside the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time by the clock on the wall, ns.
    Wall,
    /// Cycles; reference cycles where there are no counters.
    Cycles,
}

/// What a session is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Timers.
    pub metrics: Vec<Metric>,
    /// Most distinct paths.
    pub max_paths: u64,
    /// Innermost callers kept; 0 for all.
    pub depth: u64,
    /// Keep paths apart by thread.
    pub per_thread: bool,
}

impl Options {
    /// Which probe points the metrics need.
    pub fn wanted(&self) -> Effects {
        Effects {
            entry: true,
            exits: !self.metrics.is_empty(),
        }
    }
}

/// In which state the target is when the session is made.
pub enum Where<'s> {
    /// It runs: it is stopped for the moments that need it.
    Running,
    /// It has been stopped by the caller, and stays so.
    Stopped(&'s mut Stopped),
}

/// The parts of a session before its first function is in.
struct Parts {
    image: RuntimeImage,
    base: Avma,
    segment: Segment,
    mapped_at: Avma,
    tid_offset: Option<i32>,
}

impl Session {
    /// Makes a session in a process and instruments what was selected. Where that fails, nothing
    /// of it stays.
    pub fn create(
        process: &Process,
        options: &Options,
        modules: &[Module],
        selection: Selection,
        state: Where<'_>,
    ) -> Result<(Self, Changed), SessionError> {
        match Segment::open(process) {
            Ok(_) => return Err(SessionError::Exists),
            Err(SegmentError::Missing) => {}
            Err(error) => return Err(error.into()),
        }
        let mut stopped = match state {
            Where::Running => None,
            Where::Stopped(stopped) => Some(stopped),
        };
        let hz = clock::frequency();
        let maps = process.maps()?;
        let memory = process.memory()?;
        let shape = Shape {
            max_paths: options.max_paths,
            timers: options.metrics.len(),
        };
        let (parts, stop) = match stopped.as_deref_mut() {
            Some(stopped) => (map_parts(process, &maps, &memory, stopped, &shape)?, None),
            None => {
                // All threads, though one makes the calls: it would wait for a processor otherwise.
                let mut all = Stopped::all(process)?;
                let result = map_parts(process, &maps, &memory, &mut all, &shape);
                let duration = all.resume()?;
                (result?, Some(duration))
            }
        };
        let document = document(process, options, hz, &parts);
        let mut session = Self {
            process: process.clone(),
            segment: parts.segment,
            document,
        };
        if let Some(duration) = stop {
            session.note_stop("attach", duration);
        }
        let parameters = session.parameters(options, modules, parts.tid_offset);
        let result = session
            .fill(&memory, &parts.image, parts.base, hz, &parameters)
            .and_then(|()| {
                session.add_locked("attach", modules, selection, stopped.as_deref_mut())
            });
        match result {
            Ok(changed) => {
                session.segment.unlock();
                Ok((session, changed))
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = match stopped {
                    Some(stopped) => session.unmap_in(stopped),
                    None => session.end().map(drop),
                };
                Err(error)
            }
        }
    }

    /// Writes the runtime and its parameters; nothing of it runs yet.
    fn fill(
        &mut self,
        memory: &Memory,
        image: &RuntimeImage,
        base: Avma,
        hz: u64,
        parameters: &Parameters,
    ) -> Result<(), SessionError> {
        for (at, bytes) in image.writes(base) {
            write(memory, at, &bytes)?;
        }
        let at = |symbol| image.address(base, symbol).map_err(SessionError::Image);
        write(memory, at(SYMBOL_PARAMETERS)?, &bytes_of(parameters))?;
        write(memory, at(SYMBOL_ALIVE)?, &ALIVE.to_le_bytes())?;
        let header = self.segment.header();
        header.started_tsc.store(clock::tsc(), Relaxed);
        header.started_unix_ns.store(clock::unix_ns(), Relaxed);
        header.clock_hz.store(hz, Relaxed);
        header.state.store(STATE_ACTIVE, Relaxed);
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    fn parameters(
        &self,
        options: &Options,
        modules: &[Module],
        tid_offset: Option<i32>,
    ) -> Parameters {
        const AT_HWCAP2: u64 = 26;
        const FSGSBASE: u64 = 2;
        const AT_BASE: u64 = 7;
        /// The loader's entry code calls the constructors; glibc's is 70 bytes long.
        const ENTRY_CODE: u64 = 128;
        let scale = |index: usize| {
            let metric = self.document.metrics.get(index + 1);
            abi::image::Scale {
                mult: metric.map_or(1, |m| m.mult).into(),
                shift: metric.map_or(0, |m| m.shift).into(),
            }
        };
        let process = &self.process;
        let hwcap2 = process.auxiliary(AT_HWCAP2).unwrap_or(0);
        // The loader itself is the program where there is no other.
        let loader = process.auxiliary(AT_BASE).filter(|&a| a != 0);
        let root = loader.and_then(|base| {
            let module = modules.iter().find(|m| m.range.start.0 == base)?;
            let image = crate::images::of_module(module).ok()?;
            Some(module.bias(&image.image)?.to_avma(image.image.entry()).0)
        });
        Parameters {
            segment: self.document.segment.0.into(),
            max_paths: options.max_paths.into(),
            depth: options.depth.into(),
            tid_offset: tid_offset.unwrap_or(-1).into(),
            fsgsbase: u32::from(hwcap2 & FSGSBASE != 0).into(),
            system_calls: 1.into(),
            timers: (options.metrics.len() as u32).into(),
            scale: std::array::from_fn(scale),
            root_start: root.unwrap_or(0).into(),
            root_end: root.map_or(0, |r| r + ENTRY_CODE).into(),
        }
    }
}

fn document(process: &Process, options: &Options, hz: u64, parts: &Parts) -> Document {
    let mut metrics = vec![MetricDoc {
        name: "count".into(),
        unit: "calls".into(),
        mult: 1,
        shift: 0,
    }];
    let mut notes = Vec::new();
    for metric in &options.metrics {
        let (name, unit, (mult, shift)) = match metric {
            Metric::Wall => ("wall", "ns", clock::scale_to_ns(hz)),
            Metric::Cycles => ("cycles", "cycles", (1, 0)),
        };
        if *metric == Metric::Cycles {
            notes.push("cycles are reference cycles (TSC)".to_owned());
        }
        metrics.push(MetricDoc {
            name: name.into(),
            unit: unit.into(),
            mult,
            shift,
        });
    }
    let host = nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned());
    Document {
        exe: process
            .exe()
            .map(|e| e.display().to_string())
            .unwrap_or_default(),
        args: process.args(),
        host: host.unwrap_or_default(),
        metrics,
        notes,
        depth: options.depth,
        per_thread: options.per_thread,
        image: (parts.base.0, parts.image.size),
        segment: (parts.mapped_at.0, parts.segment.size()),
        ..Document::default()
    }
}

/// Maps the runtime's pages and the segment.
fn map_parts(
    process: &Process,
    maps: &[Mapping],
    memory: &Memory,
    stopped: &mut Stopped,
    shape: &Shape,
) -> Result<Parts, SessionError> {
    const WIPEONFORK: i32 = libc::MADV_WIPEONFORK;
    let image = RuntimeImage::load().map_err(SessionError::Image)?;
    let thread = stopped.any().ok_or_else(|| {
        SessionError::Held("the thread is about to handle a signal; try again".into())
    })?;
    let tid_offset = tid_offset(process, memory, thread);
    let mut remote = Remote::new(process, maps, memory, thread)?;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let base = remote.map(None, image.size, executable, anonymous, -1)?;
    let result = map_segment(process, memory, &mut remote, base, &image, shape);
    let parts = result.and_then(|(segment, mapped_at)| {
        let alive = image
            .address(base, SYMBOL_ALIVE)
            .map_err(SessionError::Image)?;
        remote.advise(alive, abi::PAGE, WIPEONFORK)?;
        remote.advise(mapped_at, segment.size(), libc::MADV_DONTFORK)?;
        Ok((segment, mapped_at))
    });
    match parts {
        Ok((segment, mapped_at)) => Ok(Parts {
            image,
            base,
            segment,
            mapped_at,
            tid_offset,
        }),
        Err(error) => {
            let _ = remote.unmap(base, image.size);
            Err(error)
        }
    }
}

fn map_segment(
    process: &Process,
    memory: &Memory,
    remote: &mut Remote<'_>,
    base: Avma,
    image: &RuntimeImage,
    shape: &Shape,
) -> Result<(Segment, Avma), SessionError> {
    let writable = &image.writable;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    remote.protect(
        base.plus(writable.start),
        writable.end - writable.start,
        protection,
    )?;
    // The image's writable pages are free still: names are passed there.
    let scratch = base.plus(writable.start);
    let segment = Segment::create(process, shape)?;
    let named = open_named(process, memory, remote, scratch, &segment);
    let (segment, fd) = match named {
        Some(fd) => (segment, fd),
        None => {
            segment.remove_name();
            drop(segment);
            own_file(process, memory, remote, scratch, shape)?
        }
    };
    let mapped = remote.map(
        None,
        segment.size(),
        protection,
        libc::MAP_SHARED,
        fd as i64,
    );
    let closed = remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    // Zeroes again, as the image expects.
    write(memory, scratch, &[0; 128])?;
    match (mapped, closed) {
        (Ok(at), Ok(_)) => Ok((segment, at)),
        (Err(error), _) | (_, Err(error)) => {
            segment.remove_name();
            Err(error.into())
        }
    }
}

/// Opens the named segment in the target; `None` where the target sees another file system.
fn open_named(
    process: &Process,
    memory: &Memory,
    remote: &mut Remote<'_>,
    scratch: Avma,
    segment: &Segment,
) -> Option<u64> {
    let mut name = segment.path()?.to_str()?.as_bytes().to_vec();
    name.push(0);
    memory.write(scratch, &name).ok()?;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64;
    let arguments = [libc::AT_FDCWD as u64, scratch.0, flags, 0, 0, 0];
    let fd = remote.call("open", libc::SYS_openat, arguments).ok()?;
    let theirs = fs::metadata(format!("/proc/{}/fd/{fd}", process.pid));
    let ours = segment.file().metadata();
    match (theirs, ours) {
        (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino() => Some(fd),
        _ => {
            let _ = remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
            None
        }
    }
}

/// Makes a file of the target's own, without a name, and opens it here too.
fn own_file(
    process: &Process,
    memory: &Memory,
    remote: &mut Remote<'_>,
    scratch: Avma,
    shape: &Shape,
) -> Result<(Segment, u64), SessionError> {
    write(memory, scratch, b"ipath\0")?;
    let flags = u64::from(libc::MFD_CLOEXEC);
    let fd = remote.call(
        "memfd_create",
        libc::SYS_memfd_create,
        [scratch.0, flags, 0, 0, 0, 0],
    )?;
    let open = || {
        let path = format!("/proc/{}/fd/{fd}", process.pid);
        let io = |e| SegmentError::Io(path.clone().into(), e);
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(io)?;
        file.set_len(shape.size()).map_err(io)?;
        Segment::from_target(file, process, shape)
    };
    match open() {
        Ok(segment) => Ok((segment, fd)),
        Err(error) => {
            let _ = remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
            Err(error.into())
        }
    }
}

/// Where behind the FS base threads keep their id: the one place in the control block of the
/// stopped thread that holds it. glibc and musl have it at places of their own.
fn tid_offset(process: &Process, memory: &Memory, thread: &StoppedThread) -> Option<i32> {
    const BLOCK: usize = 1024;
    let path = format!("/proc/{}/task/{}/status", process.pid, thread.tid());
    let status = fs::read_to_string(path).ok()?;
    // The last of the ids is the one in the thread's own pid namespace.
    let ids = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    let tid = ids
        .split_whitespace()
        .last()?
        .parse::<u32>()
        .ok()?
        .to_le_bytes();
    let block = memory.read_vec(thread.fs_base(), BLOCK).ok()?;
    let mut places = (0..BLOCK).step_by(4).filter(|&at| block[at..at + 4] == tid);
    let place = places.next()?;
    places.next().is_none().then_some(place as i32)
}

/// A value as bytes.
fn bytes_of(parameters: &Parameters) -> Vec<u8> {
    let at: *const Parameters = parameters;
    // SAFETY: the type is repr(C) without padding (abi asserts its size) and every bit of it is
    // initialized; it is ours alone.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size_of::<Parameters>()) }.to_vec()
}
