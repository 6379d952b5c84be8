//! `/tmp/perf-PID.map`: a line `START SIZE NAME` for each piece of code, in hexadecimal numbers
//! (tools/perf/Documentation/jit-interface.txt of the kernel).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use patcher::Avma;

use super::ranges::Ranges;

/// The most bytes of a file to read.
const MAX_BYTES: u64 = 64 << 20;
/// The most bytes of a line. Longer lines are skipped.
const LONGEST: usize = 4096;

/// The progress in reading a file.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// The number of bytes read so far.
    done: u64,
    /// The number of lines read so far.
    lines: u64,
}

impl PerfMap {
    /// Adds the lines that were added to the file to `names`. `len` is the file's length. Malformed
    /// lines are skipped. A line without an end is not complete yet.
    pub(super) fn read(&mut self, file: &File, len: u64, names: &mut Ranges) -> io::Result<()> {
        let new = len.min(MAX_BYTES).saturating_sub(self.done);
        let mut bytes = vec![0; new as usize];
        let read = file.read_at(&mut bytes, self.done)?;
        bytes.truncate(read);
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        for line in bytes[..whole].split(|&b| b == b'\n') {
            self.lines += 1;
            let Some((start, size, name)) = parse(line) else {
                continue;
            };
            let end = Avma(start.saturating_add(size));
            names.insert(Avma(start)..end, self.lines, &name.into());
        }
        self.done += whole as u64;
        if bytes.len() - whole > LONGEST {
            self.done += (bytes.len() - whole) as u64;
        }
        Ok(())
    }
}

/// The start, the size and the name in a line. `None` if it is malformed.
fn parse(line: &[u8]) -> Option<(u64, u64, &str)> {
    if line.len() > LONGEST {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.splitn(3, ' ');
    let mut number = || {
        let field = fields.next()?;
        u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next()?.trim();
    (!name.is_empty()).then_some((start, size, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_taken_in_as_they_are_written() {
        let mut file = crate::jit::tests::own_file();
        let (mut map, mut names) = (PerfMap::default(), Ranges::default());
        let mut add = |text: &str, names: &mut Ranges| {
            file.write_all(text.as_bytes()).expect("there is room");
            let len = file.metadata().expect("open").len();
            map.read(&file, len, names).expect("readable");
        };
        let name = |names: &Ranges, at| names.at(Avma(at)).map(|n| n.name.to_string());
        add(
            "7f00 10 f of x.js:1\nnot a line\n0x8000 0x10 g\n9000 10",
            &mut names,
        );
        assert_eq!(name(&names, 0x7f0f).as_deref(), Some("f of x.js:1"));
        assert_eq!(name(&names, 0x8000).as_deref(), Some("g"));
        assert_eq!(name(&names, 0x9000), None, "its line has no end yet");
        add(" h\n7f00 8 moved\n", &mut names);
        assert_eq!(name(&names, 0x9000).as_deref(), Some("h"));
        assert_eq!(name(&names, 0x7f00).as_deref(), Some("moved"));
        add("ffffffffffffffff ffffffffffffffff end\n", &mut names);
        add(&"x".repeat(100_000), &mut names);
        add("\n7f00 8 again\n", &mut names);
        assert_eq!(name(&names, 0x7f00).as_deref(), Some("again"));
    }
}
