//! Unwind tables, read as the runtime reads them in the target.

use abi::arch::registers::OTHERS;
use ipath_fuzz::{Target, mutate, run};
use rtlib::code::cfi::{Cfa, Region, RegisterRule, Row, find_fde, row_at};
use unwind::arch::register::COLUMNS;
use unwind::{Expression, Regs, Saved};

const TARGET: Target = Target {
    name: "unwind",
    corpus: "elf",
    change: mutate::elf,
    cases: 4000,
};

/// The value of each register.
const PLACE: u64 = 0x7fff_0000_1000;
/// The number of addresses looked up in a file.
const ADDRESSES: u64 = 64;

#[test]
fn unwind_tables_of_any_bytes_are_read_or_rejected() {
    run(&TARGET, read);
}

fn read(input: &[u8]) -> bool {
    let start = input.as_ptr() as u64;
    // SAFETY: the input outlives the region.
    let region = unsafe { Region::new(start, start + input.len() as u64) };
    // As in a file whose first segment contains all of it.
    let Some(header) = header(input) else {
        return false;
    };
    let mut found = false;
    let step = (input.len() as u64 / ADDRESSES).max(1);
    for offset in (0..input.len() as u64).step_by(step as usize) {
        let pc = start + offset;
        let Some(fde) = find_fde(region, start.wrapping_add(header), pc) else {
            continue;
        };
        for pc in [fde.start, pc, fde.end.wrapping_sub(1)] {
            let rows = row_at(&fde, pc);
            found |= rows.is_some();
            rows.iter().for_each(follow);
        }
    }
    found
}

/// Evaluates the expressions of a row.
fn follow(row: &Row) {
    let saved = Saved {
        fp: PLACE,
        others: [PLACE; OTHERS],
    };
    let mut registers = Regs::new(PLACE, &saved);
    (0..COLUMNS).for_each(|column| registers[column] = PLACE);
    let load = |at: u64| Some(at.rotate_left(7));
    if let Cfa::Expression(expression) = row.cfa {
        expression.evaluate(&registers, None, &load);
    }
    for rule in row.registers {
        if let RegisterRule::Expression(e) | RegisterRule::ValueExpression(e) = rule {
            e.evaluate(&registers, Some(0x7fff_0000_2000), &load);
        }
    }
}

/// The offset of PT_GNU_EH_FRAME in the file.
fn header(input: &[u8]) -> Option<u64> {
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    let word = |at: usize| Some(u64::from_le_bytes(*input.get(at..at + 8)?.first_chunk()?));
    let programs = usize::try_from(word(32)?).ok()?;
    (0..32).find_map(|index| {
        let at = programs.checked_add(index * 56)?.checked_add(16)?;
        let kind = word(at - 16)? as u32;
        (kind == PT_GNU_EH_FRAME).then(|| word(at))?
    })
}
