//! Remains of a parent's session in a forked process: jumps in its text that lead to trampolines in
//! its own memory. The runtime there does nothing, because its page `ALIVE` is empty after a fork.

use patcher::Avma;

use crate::runtime_image::RuntimeImage;
use crate::segment::Segment;
use ipath_target::process::{Extent, Mapping, Memory, Pid, Process, Space};

/// The first byte of a jump with a displacement of 32 bits (`jmp rel32`).
const JUMP: u8 = 0xe9;
/// The length of a displacement in bytes.
const DISPLACEMENT: u64 = 4;

/// True if a patch at `at` is a jump to inherited memory: the code there is a jump, or the
/// displacement of one. `own` is the image of the process's own session.
pub(super) fn is_jump(maps: &[Mapping], memory: &Memory, at: Avma, own: Extent) -> bool {
    let first = memory.read_vec(at, 1).unwrap_or_default();
    let displacements = [(first == [JUMP]).then(|| at.plus(1)), Some(at)];
    let leads_to_memory = |displacement: Avma| {
        let bytes = memory.read_vec(displacement, DISPLACEMENT as usize).ok()?;
        let by = i32::from_le_bytes(bytes.try_into().ok()?);
        let next = displacement.plus(DISPLACEMENT);
        let target = Avma(next.0.wrapping_add_signed(by.into()));
        Some(maps.iter().any(|m| m.contains(target) && is_code(m)))
    };
    let mut displacements = displacements.into_iter().flatten();
    displacements.any(|at| leads_to_memory(at) == Some(true)) && has_image(maps, memory, Some(own))
}

/// True if the mapping is code without a file.
fn is_code(mapping: &Mapping) -> bool {
    mapping.execute && mapping.file.1 == 0 && mapping.name.is_empty()
}

/// True if the process maps a runtime's image outside `own`.
fn has_image(maps: &[Mapping], memory: &Memory, own: Option<Extent>) -> bool {
    let Ok(image) = RuntimeImage::built_in() else {
        return false;
    };
    let head = image.document().head;
    let is_image = |mapping: &&Mapping| {
        let at = mapping.range.start;
        let is_own = own.is_some_and(|own| own.contains(at));
        let first = memory.read_vec(at, head.len());
        !is_own && is_code(mapping) && first.is_ok_and(|first| first == head)
    };
    maps.iter().any(|mapping| is_image(&mapping))
}

/// True if a process without a session has memory inherited from one.
pub fn is_in(process: &Process) -> bool {
    let looked = || {
        let space = Space::open(process).ok()?;
        let maps = space.maps().ok()?;
        Some(has_image(&maps, space.memory(), None))
    };
    Segment::open(process).is_err() && looked().unwrap_or(false)
}

/// The parent of a process. `None` if the parent has no session.
pub fn parent_with_session(process: &Process) -> Option<Pid> {
    let parent = process.parent().and_then(|pid| Process::find(pid).ok());
    let measured = parent.filter(|parent| Segment::open(parent).is_ok());
    measured.map(|parent| parent.pid)
}
