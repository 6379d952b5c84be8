//! The table by which walks find the originals of copied code: [`CopiedCode`].

use abi::image::{CopiedCode, CopiedPc, SYMBOL_COPIES, Spilled};
use patcher::Avma;
use patcher::emit::Emitted;
use patcher::plan::Site;

use super::SessionError;
use super::locked::Locked;

const HEAD: usize = size_of::<CopiedCode>();
const EACH: usize = size_of::<CopiedPc>();
/// Tables begin at multiples of this address.
const ALIGN: u64 = align_of::<CopiedCode>() as u64;

/// The room that a site takes, in bytes: its trampoline, and the table of its copies.
pub(super) fn room_of(site: &Site) -> u64 {
    let code = site.max_len() as u64;
    match site.max_copied_pcs() {
        0 => code,
        pcs => code.next_multiple_of(ALIGN) + (HEAD + EACH * pcs) as u64,
    }
}

/// The address and the bytes of the table of a site whose trampoline is at `start`. `next` is the
/// address of the table before. `None` if the site has no copies.
pub(super) fn table(
    site: &Site,
    start: Avma,
    emitted: &Emitted,
    next: u64,
) -> Option<(Avma, Vec<u8>)> {
    let room = site.max_copied_pcs();
    if room == 0 {
        return None;
    }
    let same = emitted.pcs.iter().chain(&emitted.hook_starts);
    let same = same.map(|pair| (pair.trampoline.0, pair.original.0));
    let spilled = emitted.banked.iter().chain(&emitted.walked).map(|banked| {
        let spilled = Spilled {
            register: banked.register,
            saved_at: banked.saved_at,
        };
        let original = banked.pcs.original.0 | spilled.encode();
        (banked.pcs.trampoline.0, original)
    });
    let mut pcs: Vec<(u64, u64)> = same.chain(spilled).collect();
    pcs.sort_unstable();
    pcs.dedup_by_key(|pc| pc.0);
    // Without the rest, walks from signal handlers are incomplete.
    pcs.truncate(room);
    let end = start.plus(emitted.code.len() as u64);
    let head = [next, start.0, end.0, pcs.len() as u64];
    let words = head
        .into_iter()
        .chain(pcs.into_iter().flat_map(|(at, original)| [at, original]));
    let bytes = words.flat_map(u64::to_le_bytes).collect();
    Some((Avma(end.0.next_multiple_of(ALIGN)), bytes))
}

/// Publishes the newest table. The document with the tables has been written: their memory is not
/// given to anything else.
pub(super) fn publish(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let newest = locked.document.copies;
    if newest == 0 {
        return Ok(());
    }
    let at = locked.symbol(SYMBOL_COPIES)?;
    locked.write_own(&[(at, newest.to_le_bytes().to_vec())])
}
