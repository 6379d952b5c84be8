//! Mini debug information: `.gnu_debugdata`, an ELF file with the function symbols stripped from
//! the program, compressed by xz (GDB manual, "MiniDebugInfo"). Fedora and related distributions
//! ship it.

use super::sections::{Sections, believed};
use std::io::{Cursor, Read};
use std::num::NonZeroUsize;
use xz4rust::{DICT_SIZE_MIN, DICT_SIZE_PROFILE_9, XzDecoder, XzReader};

/// Bytes read at a time.
const PIECE: NonZeroUsize = NonZeroUsize::new(64 << 10).unwrap();

/// The ELF file in `.gnu_debugdata`. `None` if there is none, or if it is broken or too large.
pub(super) fn file_in(image: &Sections<'_>) -> Option<Vec<u8>> {
    unpacked(&image.get(".gnu_debugdata")?)
}

fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let most = believed(packed.len());
    // The dictionary size follows the compression level, not the file size; `xz -9` uses the
    // largest.
    let decoder = XzDecoder::in_heap_with_alloc_dict_size(DICT_SIZE_MIN, DICT_SIZE_PROFILE_9);
    let packed = Cursor::new(packed.to_vec());
    let reader = XzReader::new_with_buffer_size_and_decoder(packed, PIECE, decoder);
    let mut file = Vec::new();
    reader.take(most + 1).read_to_end(&mut file).ok()?;
    (file.len() as u64 <= most).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::unpacked;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn packed(bytes: &[u8], options: &[&str]) -> Vec<u8> {
        let mut xz = Command::new("xz");
        let xz = xz.arg("-c").args(options);
        let xz = xz.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut xz = xz.unwrap();
        let mut input = xz.stdin.take().unwrap();
        let bytes = bytes.to_owned();
        let writer = std::thread::spawn(move || input.write_all(&bytes));
        let output = xz.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.stdout
    }

    #[test]
    fn what_xz_has_packed_is_unpacked() {
        let text: Vec<u8> = (0..200_000u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect();
        for options in [
            &["-6"][..],
            &["-9e", "--check=crc32"],
            &["--block-size=65536"],
        ] {
            let packed = packed(&text, options);
            assert!(unpacked(&packed).as_ref() == Some(&text), "{options:?}");
            // Truncated or damaged input yields nothing and does not panic.
            for at in (0..packed.len()).step_by(packed.len() / 50 + 1) {
                assert_eq!(unpacked(&packed[..at]), None, "{at}");
                let mut damaged = packed.clone();
                damaged[at] ^= 0x55;
                let _ = unpacked(&damaged);
            }
        }
    }

    #[test]
    fn what_claims_too_much_is_refused() {
        let zeroes = vec![0; 64 << 20];
        let packed = packed(&zeroes, &["-9"]);
        assert!(packed.len() < 100_000);
        assert_eq!(unpacked(&packed), None);
    }
}
