//! Results on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;

use serde::Serialize;

use ipath_base::error::{Failure, io_text};
use ipath_base::printable::{Page, Pages};
use ipath_view::outlet::is_nobody;

/// Writes text to standard output; a reader that has closed it wants no more.
pub(super) fn print(page: &Page) -> Result<(), Failure> {
    print_data(page.as_str().as_bytes())
}

/// Writes text to standard output as it comes, for what may be too long to be held.
pub(super) fn print_by(
    write: impl FnOnce(&mut Pages<BufWriter<StdoutLock>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = Pages(BufWriter::new(io::stdout().lock()));
    told(write(&mut out).and_then(|()| out.flush()))
}

/// Writes data for other programs to standard output, as it is.
pub(super) fn print_data(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    told(out.write_all(data).and_then(|()| out.flush()))
}

fn told(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if !is_nobody(&error) && !is_lost_terminal(&error) => {
            Err(Failure::new("write", "standard output", io_text(&error)))
        }
        _ => Ok(()),
    }
}

/// Writes a value for other programs to standard output, as JSON on a line.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer(&mut out, value).map_err(io::Error::from);
    told(
        written
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush()),
    )
}

fn is_lost_terminal(error: &io::Error) -> bool {
    let kind = || nix::sys::stat::fstat(io::stdout().as_fd()).map(|s| s.st_mode & libc::S_IFMT);
    error.raw_os_error() == Some(libc::EIO) && kind() == Ok(libc::S_IFCHR)
}
