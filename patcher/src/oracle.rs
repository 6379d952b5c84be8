//! Test support: sample programs, and readelf's view of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The path of the C library.
pub(crate) const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// A temporary folder, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ipath-patcher-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// Writes the sources (name, text), runs `tool` on them, and returns the contents of its output
    /// file.
    pub(crate) fn build(&self, tool: &str, flags: &[&str], sources: &[(&str, &str)]) -> Vec<u8> {
        for (name, text) in sources {
            std::fs::write(self.0.join(name), text).expect("a source");
        }
        let names = sources.iter().map(|s| s.0);
        let mut command = Command::new(tool);
        command
            .current_dir(&self.0)
            .args(["-o", "out"])
            .args(names)
            .args(flags);
        assert!(
            command.status().expect("a compiler").success(),
            "{command:?}"
        );
        self.read("out")
    }

    /// The contents of the file `name` in the folder.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("the file is there")
    }

    /// Runs a tool that changes files in the folder.
    pub(crate) fn run(&self, tool: &str, arguments: &[&str]) {
        let status = Command::new(tool)
            .current_dir(&self.0)
            .args(arguments)
            .status();
        assert!(
            status.expect("the tool starts").success(),
            "{tool} {arguments:?}"
        );
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // On failure, the folder remains in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn readelf(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("readelf")
        .args(arguments)
        .arg(file)
        .output()
        .expect("binutils");
    // The exit status is ignored: it reports debug files that are not installed.
    assert!(!output.stdout.is_empty(), "readelf {}", file.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A symbol from readelf's output.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The type as readelf prints it, such as `FUNC`.
    pub(crate) kind: String,
    /// The name without its symbol version.
    pub(crate) name: String,
}

/// All symbols that are defined in a section of the file.
pub(crate) fn symbols(file: &Path) -> Vec<Symbol> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let symbol = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, address, size, kind, _, _, section, name, ..] = fields.as_slice() else {
            return None;
        };
        section.parse::<u16>().ok()?;
        Some(Symbol {
            address: u64::from_str_radix(address, 16).ok()?,
            size: number(size)?,
            kind: kind.to_owned(),
            name: name.split('@').next()?.to_owned(),
        })
    };
    readelf(&["-sW"], file).lines().filter_map(symbol).collect()
}

/// A frame description: its range, and the rows of its table. A row has the address, the CFA, and
/// true if the return address is undefined.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<(u64, String, bool)>,
    /// True for the frame of a signal handler's caller.
    pub(crate) is_signal: bool,
}

/// All frame descriptions in `.eh_frame`.
pub(crate) fn frames(file: &Path) -> Vec<Frame> {
    let text = readelf(&["--debug-dump=frames-interp"], file);
    let mut frames: Vec<Frame> = Vec::new();
    let mut is_signal = std::collections::HashMap::new();
    let mut in_fde = false;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [offset, _, _, "CIE", augmentation, ..] => {
                is_signal.insert((*offset).to_owned(), augmentation.contains('S'));
                in_fde = false;
            }
            [_, _, _, "FDE", cie, pc] => {
                let (start, end) = pc
                    .strip_prefix("pc=")
                    .and_then(|p| p.split_once(".."))
                    .unwrap();
                let address = |text| u64::from_str_radix(text, 16).unwrap();
                let cie = cie.strip_prefix("cie=").unwrap();
                frames.push(Frame {
                    start: address(start),
                    end: address(end),
                    rows: Vec::new(),
                    is_signal: is_signal[cie],
                });
                in_fde = true;
            }
            ["LOC", ..] | [_, "ZERO", ..] => {}
            [at, cfa, ..] if in_fde => {
                if let Ok(at) = u64::from_str_radix(at, 16) {
                    let rows = &mut frames.last_mut().unwrap().rows;
                    rows.retain(|r| r.0 != at);
                    // The return address is in the last column.
                    rows.push((at, (*cfa).to_owned(), fields.last() == Some(&"u")));
                }
            }
            _ => {}
        }
    }
    frames
}

/// A program with everything that symbol tables can contain, in C and assembly.
pub(crate) const C: [(&str, &str); 3] = [
    (
        "a.c",
        r#"
        #include <stdlib.h>
        int global_name(int x) { return x * 3 + 1; }
        int weak_name(int) __attribute__((weak, alias("global_name")));
        extern void rare(int) __attribute__((cold, noinline));
        static __attribute__((noinline)) int twice(int x) {
            if (__builtin_expect(x == 77, 0)) { rare(x); return abs(x) * 7; }
            return x + 1;
        }
        int call_a(int x) { return twice(x) * 2; }
        static int one(void) { return 1; }
        static void *resolve(void) { return one; }
        int resolved(void) __attribute__((ifunc("resolve")));
        static __attribute__((noinline, noclone)) int fixed(int x) { return x - 5; }
        int clones(int x, int y);
        extern int labelled(void), unsized_code(void);
        int call_b(int);
        int main(int argc, char **argv) {
            return call_a(argc) + call_b(argc) + resolved() + fixed(argc) + clones(argc, 3)
                + clones(argc, 3) + labelled() + unsized_code() + weak_name(2);
        }
        "#,
    ),
    (
        "b.c",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        void rare(int) __attribute__((cold, noinline));
        void rare(int x) { puts("rare"); if (x > 100) abort(); }
        static __attribute__((noinline)) int twice(int x) {
            if (__builtin_expect(x == 78, 0)) { rare(x + 1); rare(x); return x * 9; }
            return x + 2;
        }
        int call_b(int x) { return twice(x) * 3; }
        static __attribute__((noinline)) int cloned(int x, int y) {
            int s = 0;
            for (int i = 0; i < x; i++) s += rand() % y;
            return s;
        }
        int clones(int x, int y) { (void)y; return cloned(x, 13) + cloned(x + 1, 13); }
        "#,
    ),
    (
        "c.s",
        r#"
        .text
        .globl labelled
        labelled:
            xor %eax, %eax
        inside_label:
            ret
        .globl unsized_code
        .type unsized_code, @function
        unsized_code:
            mov $1, %eax
        .globl inner_label
        inner_label:
            ret
        .globl sized_code
        .type sized_code, @function
        sized_code:
            .cfi_startproc
            nop
        .globl second_entry
        second_entry:
            ret
            .cfi_endproc
        .size sized_code, .-sized_code
        .globl undersized_code
        .type undersized_code, @function
        undersized_code:
            .cfi_startproc
            nop
        .size undersized_code, .-undersized_code
            nop
            ret
            .cfi_endproc
        .type called.cold.1, @function
        called.cold.1: ret
        .size called.cold.1, .-called.cold.1
        .type called, @function
        called:
            call called.cold.1
            ret
        .size called, .-called
        .type jumped.cold.0, @function
        jumped.cold.0: ret
        .size jumped.cold.0, .-jumped.cold.0
        .type jumped, @function
        jumped: jmp jumped.cold.0
        .size jumped, .-jumped
        .globl absolute_name
        .type absolute_name, @function
        .set absolute_name, 0x1234
        .data
        .globl in_data
        .type in_data, @function
        in_data: .quad 0
        .section .note.GNU-stack,"",@progbits
        "#,
    ),
];

/// A program with overloads, templates, hidden names, and exceptions.
pub(crate) const CPP: (&str, &str) = (
    "a.cpp",
    r#"
    #include <stdexcept>
    #include <string>
    #define KEEP __attribute__((noinline, noclone, used))
    namespace ns {
        KEEP int work(int x) { return x + 1; }
        KEEP int work(const char *x) { return x[0]; }
        template <class T> KEEP T templated(T x) { return x * 2; }
        struct A {
            KEEP A() {}
            KEEP ~A() {}
            KEEP int operator()(int x) const { return x; }
            KEEP A &operator*=(int) { return *this; }
            KEEP int get() const { return 4; }
        };
    }
    namespace { KEEP int hidden(int x) { return x * 3; } }
    KEEP int work(int x) { return x - 1; }
    KEEP int may_throw(int x) { if (x == 9) throw std::runtime_error("nine"); return x; }
    KEEP int catches(int x) {
        std::string kept = "kept while unwinding, long enough for the heap";
        try { return may_throw(x); } catch (const std::exception &e) { return kept.size(); }
    }
    int main(int argc, char **argv) {
        ns::A a;
        a *= 2;
        return ns::work(argc) + ns::work(argv[0]) + ns::templated(argc) + ns::templated(1.5)
            + a(3) + a.get() + hidden(argc) + work(argc) + catches(argc);
    }
    "#,
);

/// The file without its section headers, as `sstrip` leaves it.
pub(crate) fn without_sections(mut file: Vec<u8>) -> Vec<u8> {
    file[0x28..0x30].fill(0);
    file[0x3c..0x40].fill(0);
    file
}
