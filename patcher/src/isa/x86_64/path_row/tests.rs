use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::*;
use crate::isa::JUMP;

/// A number whose word does not fit the operand of an instruction.
const LARGE: u64 = 1 << 34;

/// The rows with these numbers, and the code of their hooks with these free registers.
fn hooks(number: u64, free: u16) -> Vec<(PathRow, Vec<u8>)> {
    let kinds = [
        PathRow::BEGINS,
        PathRow::ADDS,
        PathRow::ENDS,
        PathRow::RESTARTS,
    ];
    let counters = [PathRow::EACH, PathRow::TABLE, PathRow::HISTOGRAM];
    let all = kinds
        .iter()
        .flat_map(|&kind| counters.map(|counters| (kind, counters)));
    let all = all.flat_map(|row| [true, false].map(|by_fp| (row, by_fp)));
    let code = all.flat_map(|((kind, counters), by_fp)| {
        [true, false].map(|are_free| {
            let row = PathRow {
                kind,
                counters,
                key: PathKey {
                    by_fp,
                    key: -0x1234,
                    first: 40_000,
                },
                paths: 2 * number,
                add: number,
                start: number.wrapping_neg(),
                standing: 0,
            };
            let cells = PathCells {
                stub: Avma(0x1000),
                tables: Some([Avma(0x1010), Avma(0x1020)]),
            };
            let mut code = Code::new(Avma(0x10_0000));
            let label = code.label();
            let own = code.path_hook((label, &row), (Registers(free), are_free), cells);
            own.expect("is in reach");
            code.slow_paths().expect("is in reach");
            code.look_ups().expect("is in reach");
            code.path_row(label, &row);
            (row, code.finish().expect("all labels are placed"))
        })
    });
    code.collect()
}

#[test]
fn hooks_are_no_longer_than_their_limit() {
    let mut longest = 0;
    for number in [1, LARGE] {
        for free in [0, !(1 << 4)] {
            for (row, code) in hooks(number, free) {
                assert!(
                    code.len() <= PATH_HOOK + JUMP as usize,
                    "{row:?}: {}",
                    code.len()
                );
                longest = longest.max(code.len());
            }
        }
    }
    // The limit is not much too high either.
    assert!(longest > PATH_HOOK * 3 / 4, "{longest}");
}

/// Hooks of a table do without the stub with large numbers, too.
#[test]
fn hooks_of_tables_find_their_entry() {
    for number in [1, LARGE] {
        for (row, code) in hooks(number, 0) {
            let decoder = Decoder::with_ip(64, &code, 0x10_0000, DecoderOptions::NONE);
            let insns: Vec<_> = decoder.into_iter().collect();
            let has = |mnemonic: Mnemonic| insns.iter().any(|insn| insn.mnemonic() == mnemonic);
            let ends = matches!(row.kind, PathRow::ENDS | PathRow::RESTARTS);
            let is_table = row.counters == PathRow::TABLE;
            assert_eq!(has(Mnemonic::Imul), ends && is_table, "{row:?}");
            let is_power = row.counters == PathRow::HISTOGRAM && number == 1;
            assert_eq!(has(Mnemonic::Bsr), ends && is_power, "{row:?}");
        }
    }
}
