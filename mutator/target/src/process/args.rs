//! The command line of a process.

use std::fs;

use patcher::Avma;

use super::{Process, read_text, stat_field};

impl Process {
    /// The process's command line. If the program has overwritten it (setproctitle(3)), only the
    /// new text, without leftover arguments. A single empty argument if it cannot be read.
    pub fn args(&self) -> Vec<String> {
        let bytes = self.of_living("cmdline", |path| fs::read(path));
        shown(&bytes.unwrap_or_default(), self.argument_count())
    }

    /// The number of arguments at the start: the first word of its initial stack (System V ABI,
    /// "Process Initialization"). `None` if it cannot be read.
    fn argument_count(&self) -> Option<usize> {
        /// The field `startstack` in proc(5).
        const START_OF_STACK: usize = 28;
        let stat = self.of_living("stat", |path| read_text(path)).ok()?;
        let at = stat_field(&stat, START_OF_STACK)?;
        let word = self.open_memory().ok()?.read_vec(Avma(at), 8).ok()?;
        usize::try_from(u64::from_le_bytes(word.try_into().ok()?)).ok()
    }
}

/// The arguments in the text of a command line that originally had `count` arguments, if that is
/// known. Never empty.
fn shown(bytes: &[u8], count: Option<usize>) -> Vec<String> {
    let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let parts = || text.split(|&b| b == 0).map(String::from_utf8_lossy);
    let is_as_started = count.is_none_or(|count| count == parts().count());
    if is_as_started && parts().count() > 1 {
        return parts().map(|part| part.into_owned()).collect();
    }
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let written = parts().map(|part| words(&part));
    let written: Vec<String> = written.filter(|part| !part.is_empty()).collect();
    if written.is_empty() {
        vec![String::new()]
    } else {
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_writes_over_its_arguments_is_shown_alone() {
        for (text, count, expected) in [
            (&b"app\0a b\0\0"[..], Some(3), &["app", "a b", ""][..]),
            (b"app\0", Some(1), &["app"]),
            (
                b"redis-server *:6379\0\0\0\0\0",
                Some(3),
                &["redis-server *:6379"],
            ),
            (b"worker\0\0\0--port\0", Some(2), &["worker", "--port"]),
            (b"nginx: master     \0", Some(1), &["nginx: master"]),
            (b"over the end of it   ", Some(2), &["over the end of it"]),
            (b"", Some(1), &[""]),
            (b"app\0\0", None, &["app", ""]),
        ] {
            assert_eq!(shown(text, count), expected, "{text:?}");
        }
    }

    #[test]
    fn the_count_of_arguments_is_read() {
        let own = Process::find(super::super::Pid(std::process::id() as i32)).expect("we run");
        assert_eq!(own.argument_count(), Some(std::env::args_os().count()));
    }
}
