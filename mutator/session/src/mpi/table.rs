//! The table of processes that a launcher has for debuggers (MPIR, sections 4.7 and 5).
//! `MPIR_proctable` points to `MPIR_proctable_size` descriptors, in the order of the ranks:
//! `MPIR_PROCDESC {char *host_name; char *executable_name; int pid;}`.

use patcher::Avma;

use super::rank::{Rank, rank_of};
use ipath_symbols::elf_symbols;
use ipath_symbols::images;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Pid, Process, Space};

/// The size of a process descriptor in bytes.
const DESCRIPTOR: u64 = 24;
/// The offset of the process id in a descriptor, in bytes.
const PID: usize = 16;
/// More ranks than any job has on one machine.
const MAX_RANKS: u64 = 1 << 16;

/// The ranks in a launcher's table that are processes of this machine; none if it has no table. A
/// process id of another machine may exist on this one too. So a process counts only if it was
/// started as that rank.
pub(super) fn ranks(launcher: &Process) -> Vec<Rank> {
    read(launcher).unwrap_or_default()
}

/// Like [`ranks`]. `None` if there is no table, or if it cannot be read.
fn read(launcher: &Process) -> Option<Vec<Rank>> {
    let maps = launcher.maps().ok()?;
    let modules = modules(launcher, &maps);
    let table = modules.iter().find_map(|m| address(m, "MPIR_proctable"))?;
    let size = modules
        .iter()
        .find_map(|m| address(m, "MPIR_proctable_size"))?;
    let space = Space::open(launcher).ok()?;
    let memory = space.memory();
    let mut count = [0; 4];
    memory.read(size, &mut count).ok()?;
    let count = u64::from(u32::from_le_bytes(count)).min(MAX_RANKS);
    let mut start = [0; 8];
    memory.read(table, &mut start).ok()?;
    let mut bytes = vec![0; (count * DESCRIPTOR) as usize];
    memory
        .read(Avma(u64::from_le_bytes(start)), &mut bytes)
        .ok()?;
    let listed = bytes.chunks_exact(DESCRIPTOR as usize).zip(0..);
    let rank = |(descriptor, number): (&[u8], u32)| {
        let pid = descriptor.get(PID..PID + 4)?.try_into().ok()?;
        let process = Process::find(Pid(i32::from_le_bytes(pid))).ok()?;
        let is_it = rank_of(&process)? == number;
        is_it.then_some(Rank { number, process })
    };
    Some(listed.filter_map(rank).collect())
}

/// The address of a module's variable with this name. `None` if the module does not define it.
fn address(module: &Module, name: &str) -> Option<Avma> {
    let opened = images::of_module(module).ok()?;
    let bias = module.bias(opened.image())?;
    let [found] = elf_symbols::defined(opened.image().data(), [name]);
    Some(bias.to_avma(found?))
}
