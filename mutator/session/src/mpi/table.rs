//! The table of processes that a launcher has for debuggers (MPIR, sections 4.7 and 5): `MPIR_proctable`, a pointer to as many
//! `MPIR_PROCDESC {char *host_name; char *executable_name; int pid;}` as `MPIR_proctable_size` says, by their ranks.

use patcher::Avma;

use super::rank::{Rank, rank_of};
use ipath_symbols::elf_symbols;
use ipath_symbols::images;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Pid, Process, Space};

/// Bytes of a descriptor, and where in it the process id is.
const DESCRIPTOR: u64 = 24;
const PID: usize = 16;
/// More ranks than any job has on one machine.
const MOST: u64 = 1 << 16;

/// The ranks that a launcher lists as processes of this machine; none where it has no table. A process id of another machine
/// may be one of this machine too: what was not started as a rank is none.
pub(super) fn ranks(launcher: &Process) -> Vec<Rank> {
    read(launcher).unwrap_or_default()
}

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
    let count = u64::from(u32::from_le_bytes(count)).min(MOST);
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

/// Where a module has a variable of this name.
fn address(module: &Module, name: &str) -> Option<Avma> {
    let opened = images::of_module(module).ok()?;
    let bias = module.bias(opened.image)?;
    let [found] = elf_symbols::defined(opened.image.data(), [name]);
    Some(bias.to_avma(found?))
}
