//! Results on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;

use serde::Serialize;

use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_base::printable::{Page, Pages};
use ipath_view::outlet::is_nobody;

/// Writes text to standard output. A closed pipe is no error.
pub(super) fn print(page: &Page) -> Result<(), Failure> {
    print_data(page.as_str().as_bytes())
}

/// Writes text to standard output in pieces, for text that may be too long for memory.
pub(super) fn print_by(
    write: impl FnOnce(&mut Pages<BufWriter<StdoutLock>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = Pages(BufWriter::new(io::stdout().lock()));
    told(write(&mut out).and_then(|()| out.flush()))
}

/// Writes data for other programs to standard output, unchanged.
pub(super) fn print_data(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    told(out.write_all(data).and_then(|()| out.flush()))
}

/// Converts an error of writing to a failure. A closed pipe and a lost terminal are no errors.
fn told(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if !is_nobody(&error) && !is_lost_terminal(&error) => {
            Err(Failure::new("write", "standard output", io_text(&error)))
        }
        _ => Ok(()),
    }
}

/// Writes a value to standard output for other programs, as a line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer(&mut out, value).map_err(io::Error::from);
    told(
        written
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush()),
    )
}

/// True if standard output is a terminal that no longer exists.
fn is_lost_terminal(error: &io::Error) -> bool {
    let kind = || nix::sys::stat::fstat(io::stdout().as_fd()).map(|s| s.st_mode & libc::S_IFMT);
    error.raw_os_error() == Some(libc::EIO) && kind() == Ok(libc::S_IFCHR)
}
