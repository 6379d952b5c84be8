//! The registers at entries and after returns of a program, by gdb.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One call of a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// rdi, rsi, rdx, rcx, r8, r9 at the entry.
    pub(super) integers: Vec<u64>,
    /// The lower halves of xmm0 to xmm7 at the entry.
    pub(super) vectors: Vec<u64>,
    /// The words above the return address at the entry.
    pub(super) stack: Vec<u64>,
    /// After the return.
    pub(super) rax: u64,
    pub(super) xmm0: u64,
}

const SCRIPT: &str = r#"
import gdb

def word(text):
    return int(gdb.parse_and_eval(text)) & 0xffffffffffffffff

def show(kind, at, texts):
    words = " ".join("%x" % word(text) for text in texts)
    gdb.write("%s %x %s\n" % (kind, at, words))

INTEGERS = ["(unsigned long)$" + r for r in "rdi rsi rdx rcx r8 r9".split()]
VECTORS = ["$xmm%d.v2_int64[0]" % n for n in range(8)]
STACK = ["*(unsigned long *)($rsp + %d)" % (8 + 8 * n) for n in range(SLOTS)]

for setting in ["pagination off", "confirm off", "language c", "debuginfod enabled off"]:
    gdb.execute("set " + setting)
for at in ADDRESSES:
    gdb.Breakpoint("*%#x" % at, temporary=True)
gdb.execute("run", to_string=True)
while gdb.selected_inferior().pid != 0:
    at = word("(unsigned long)$pc")
    show("E", at, INTEGERS + VECTORS + STACK)
    back = word("*(unsigned long *)$rsp")
    gdb.Breakpoint("*%#x" % back, temporary=True)
    gdb.execute("continue", to_string=True)
    show("R", at, ["(unsigned long)$rax", "$xmm0.v2_int64[0]"])
    gdb.execute("continue", to_string=True)
"#;

/// Runs the program. Returns the first call of the function at each address. These functions must
/// not call each other.
pub(super) fn calls(program: &Path, addresses: &[u64]) -> HashMap<u64, Call> {
    const SLOTS: usize = 64;
    let script = program.with_extension("py");
    let list: Vec<_> = addresses.iter().map(|at| format!("{at:#x}")).collect();
    let head = format!("ADDRESSES = [{}]\nSLOTS = {SLOTS}\n", list.join(", "));
    fs::write(&script, head + SCRIPT).unwrap();
    let out = Command::new("gdb")
        .args(["-batch", "-nx", "-x"])
        .arg(&script)
        .arg(program)
        .output()
        .unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    let mut calls: HashMap<u64, Call> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next();
        if !matches!(kind, Some("E" | "R")) {
            continue;
        }
        let mut words = words.map(|word| u64::from_str_radix(word, 16).unwrap());
        let call = calls.entry(words.next().unwrap()).or_default();
        let words: Vec<_> = words.collect();
        if kind == Some("E") {
            call.integers = words[..6].to_vec();
            call.vectors = words[6..14].to_vec();
            call.stack = words[14..].to_vec();
        } else {
            (call.rax, call.xmm0) = (words[0], words[1]);
        }
    }
    for at in addresses {
        assert!(calls.contains_key(at), "{at:#x}:\n{text}\n{errors}");
    }
    calls
}
