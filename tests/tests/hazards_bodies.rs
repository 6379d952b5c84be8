//! Functions in which the bytes that a patch overwrites are not simply executed in order: branches,
//! jump tables and calls lead into them.

use ipath_tests::command::Run;
use ipath_tests::compile::{build, program_with, source};
use ipath_tests::program::Program;
use ipath_tests::survive::survives;

fn compiled(name: &str, flags: &[&str]) -> Program {
    Program::new(&program_with(name, flags), [""; 0])
}

const INTO: &str = "branch-into-window";

#[test]
fn branch_into_window_is_counted_exactly_or_refused() {
    let call = ("enters_call", "call-in-window");
    survives(&compiled("branch_into_window.c", &[]), &[call]);
    // Without padding there is no room for a jump elsewhere.
    let entered = [
        call,
        ("entered_short", INTO),
        ("entered_short_padded", INTO),
        ("entered_long", INTO),
        ("entered_long_padded", INTO),
        ("entered_if", INTO),
        ("entered_if_padded", INTO),
        ("entered_pointer", INTO),
        ("entered_pointer_padded", INTO),
        ("entered_call", INTO),
        ("entered_call_padded", INTO),
    ];
    survives(
        &compiled("branch_into_window.c", &["-DPADDING=0"]),
        &entered,
    );
}

#[test]
fn jump_table_into_window_is_counted_exactly_or_refused() {
    let unknown = "indirect-jump";
    let bare = [
        ("offsets_to_start", INTO),
        ("addresses_to_start", INTO),
        ("unknown_to_start", unknown),
        ("unknown_to_start_padded", unknown),
        ("offsets_to_end", INTO),
        ("addresses_to_end", INTO),
    ];
    let padded = compiled("jump_table_into_window.c", &[]);
    survives(&padded, &bare);
    let all = [
        &bare[..],
        &[
            ("offsets_to_start_padded", INTO),
            ("addresses_to_start_padded", INTO),
            ("offsets_to_end_padded", INTO),
        ],
    ]
    .concat();
    // Tables of addresses are found in other ways in a program at a fixed address.
    for flags in [&["-DPADDING=0"][..], &["-DPADDING=0", "-no-pie"]] {
        survives(&compiled("jump_table_into_window.c", flags), &all);
    }
    // None has a second exit: a jump through a table is not taken for a tail call.
    let list = Run::ipath(["list", "--json"]).arg(&padded.path);
    let list = list.args(["*_to_start*"]).run().expect(0).json();
    for function in list["functions"].as_array().expect("functions") {
        let exits = function["exits"].as_array().expect("exits").len();
        assert!(exits == 1 || function["refused"] == unknown, "{function}");
    }
}

#[test]
fn landing_pad_into_window_is_counted_exactly_or_refused() {
    let bare = [
        ("pad_to_pop", INTO),
        ("pad_to_ret", INTO),
        ("pad_to_start", INTO),
    ];
    survives(&compiled("landing_pad_into_window.cc", &[]), &bare);
    let none = [("pad_to_pop_padded", INTO), ("pad_to_ret_padded", INTO)];
    survives(
        &compiled("landing_pad_into_window.cc", &["-DPADDING=0"]),
        &[&bare[..], &none].concat(),
    );
}

#[test]
fn cold_part_counts_exactly_with_and_without_symbols() {
    let named = compiled("cold_part.c", &["-rdynamic"]);
    let symbols = Run::new("nm").arg(&named.path).run().expect(0).stdout;
    for name in ["comes_back", "returns", "tail_calls", "tail_calls_at_once"] {
        assert!(symbols.contains(&format!("{name}.cold")), "{symbols}");
    }
    survives(&named, &[]);
    // The parts have no names any more, but still their own unwind entries.
    survives(&compiled("cold_part.c", &["-rdynamic", "-s"]), &[]);
}

#[test]
fn data_in_code_is_counted_exactly_or_refused() {
    let data = "data-in-code";
    let refusable = [
        ("jumped_over", data),
        ("jumped_over_padded", data),
        ("after_return", data),
        ("after_return_padded", data),
        ("table_after", data),
        ("table_after_padded", data),
        ("before_entry", data),
        ("before_entry_padded", data),
        ("overlapping", data),
        ("overlapping_padded", data),
        ("not_code_at_all", data),
        ("not_code_at_all_padded", data),
    ];
    for flags in [&[][..], &["-DPADDING=0"]] {
        survives(&compiled("data_in_code.c", flags), &refusable);
    }
}

#[test]
fn endbr64_entry_is_counted_exactly() {
    let program = compiled("entries.c", &["-fcf-protection=full"]);
    let code = Run::new("objdump").arg("-d").arg(&program.path).run();
    let marked = |name: &str| code.stdout.contains(&format!("<{name}>:\n"));
    assert!(marked("leaf") && code.stdout.matches("endbr64").count() > 10);
    survives(&program, &[]);
}

#[test]
fn patchable_entry_is_counted_exactly() {
    for (bytes, protection) in [
        ("5", "none"),
        ("5,2", "none"),
        ("5,2", "full"),
        ("1", "full"),
        ("16,8", "none"),
    ] {
        let room = format!("-fpatchable-function-entry={bytes}");
        let protection = format!("-fcf-protection={protection}");
        survives(&compiled("entries.c", &[&room, &protection]), &[]);
    }
}

#[test]
fn pg_entry_is_counted_exactly() {
    let traced = [
        "-c",
        "-DFENTRY",
        "-pg",
        "-mfentry",
        "-fno-omit-frame-pointer",
    ];
    for flags in [&["-no-pie"][..], &["-pie"], &["-pie", "-Wl,--no-relax"]] {
        let mode = if flags[0] == "-pie" {
            "-fpie"
        } else {
            "-fno-pie"
        };
        let object = build(&source("entries.c"), &[&traced[..], &[mode]].concat());
        let object = object.display().to_string();
        let program = build(
            &source("fentry.S"),
            &[&[object.as_str()][..], flags].concat(),
        );
        let program = Program::new(&program, [""; 0]);
        let seen = program.plain().expect(0).stdout;
        assert!(
            seen.contains("traced ") && !seen.contains("traced 0"),
            "{seen}"
        );
        survives(&program, &[]);
    }
}
