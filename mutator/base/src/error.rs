//! I/O errors in words.

use std::io;

/// Errors for which a shorter or plainer text than that of strerror(3) is shown.
const WORDS: [(i32, &str); 5] = [
    (libc::EAGAIN, "try again"),
    (libc::EBADF, "bad file number"),
    (libc::EIO, "i/o error"),
    (libc::ELOOP, "too many symbolic links encountered"),
    (libc::ENOMEM, "out of memory"),
];

/// An I/O error in words: the text of strerror(3) in lower case, with few exceptions, and without
/// Rust's "(os error N)". An error that has no errno has its own text.
pub fn io_text(error: &io::Error) -> String {
    let number = error.raw_os_error();
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| Some(*known) == number) {
        return (*words).to_owned();
    }
    let text = error.to_string();
    let words = text.split_once(" (os error ").filter(|_| number.is_some());
    words.map_or(text.clone(), |(words, _)| words.to_lowercase())
}
