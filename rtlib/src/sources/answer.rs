//! Buffers for answers of the kernel, in the thread's own memory.

/// Words of the longest answer, the text of a thread's `stat`.
pub const ANSWER: usize = 64;

/// The bytes of an answer.
pub fn bytes(answer: &mut [u64; ANSWER]) -> &mut [u8] {
    // SAFETY: all bytes of integers may be read and written.
    unsafe { core::slice::from_raw_parts_mut(answer.as_mut_ptr().cast(), 8 * ANSWER) }
}

/// The number after `before` words in a text separated by spaces. `None` if there is no such word,
/// or if it is no decimal number of 64 bits.
pub fn number_in(text: &[u8], before: usize) -> Option<u64> {
    let words = text.split(u8::is_ascii_whitespace);
    let word = words.filter(|word| !word.is_empty()).nth(before)?;
    word.iter().try_fold(0u64, |number, &digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_among_words() {
        assert_eq!(number_in(b"12 345 6\n", 1), Some(345));
        assert_eq!(number_in(b" S 1 -1 7 ", 3), Some(7));
        assert_eq!(number_in(b" S 1 -1 7 ", 2), None);
        assert_eq!(number_in(b"12", 1), None);
        assert_eq!(number_in(b"99999999999999999999", 0), None);
    }
}
