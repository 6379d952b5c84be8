//! Instructions as text.

use iced_x86::{Formatter, FormatterOptions, IntelFormatter};

use super::insn::Insn;

/// Writes instructions in the syntax of Intel's manuals: `mov eax, [rdi+0x10]`.
pub struct Texts(IntelFormatter);

impl Default for Texts {
    fn default() -> Self {
        let mut texts = IntelFormatter::new();
        let options: &mut FormatterOptions = texts.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(true);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_add_leading_zero_to_hex_numbers(false);
        Self(texts)
    }
}

impl Texts {
    /// The instruction as text. Addresses are absolute. `(bad)` if it is invalid.
    pub fn of(&mut self, insn: &Insn) -> String {
        let mut text = String::new();
        self.0.format(&insn.0, &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Texts;
    use crate::addr::Svma;
    use crate::isa::decode;

    fn texts(bytes: &[u8]) -> Vec<String> {
        let mut texts = Texts::default();
        let all = decode(bytes, Svma(0x1000));
        all.map(|insn| texts.of(&insn)).collect()
    }

    #[test]
    fn instructions_are_written_in_intel_syntax() {
        let expected = [
            "push rbp",
            "mov eax, [rdi+0x10]",
            "je 0x1010",
            "lea rax, [0x1020]",
            "call 0x1110",
            "ret",
            "(bad)",
        ];
        let bytes = [
            0x55, 0x8b, 0x47, 0x10, 0x74, 0x0a, 0x48, 0x8d, 0x05, 0x13, 0, 0, 0, 0xe8, 0xfe, 0, 0,
            0, 0xc3, 0x06,
        ];
        assert_eq!(texts(&bytes), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_have_short_plain_texts(bytes in any::<Vec<u8>>()) {
            for text in texts(&bytes) {
                prop_assert!(!text.is_empty() && text.len() < 160, "{text}");
                prop_assert!(text.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{text}");
            }
        }
    }
}
