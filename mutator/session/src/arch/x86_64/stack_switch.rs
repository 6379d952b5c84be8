//! Code that switches stacks sharing one memory range.

/// The offsets in `text` of code that adds a register to the stack pointer, and then to the frame
/// pointer:
///
/// ```text
/// add rax, rsp
/// add rax, rbp
/// ```
pub fn moves_of_both(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    /// `add r, r64` (Intel SDM volume 2, ADD): the middle bits of ModRM encode the added register.
    const ADD: u8 = 0x01;
    const TO_RSP: u8 = 0b1100_0100;
    const TO_RBP: u8 = 0b1100_0101;
    const REGISTER: u8 = 0b0011_1000;
    memchr::memchr_iter(ADD, text).filter_map(|at| {
        let start = at.checked_sub(1)?;
        let &[rex, _, first, again, add, second] = text.get(start..start + 6)? else {
            return None;
        };
        let is_wide = matches!(rex, 0x48 | 0x4c) && again == rex && add == ADD;
        let is_both = first & !REGISTER == TO_RSP && second & !REGISTER == TO_RBP;
        (is_wide && is_both && first & REGISTER == second & REGISTER).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_moved_by_one_register() {
        let found = |code: &[u8]| moves_of_both(code).collect::<Vec<_>>();
        assert_eq!(found(&[0x90, 0x48, 0x01, 0xc4, 0x48, 0x01, 0xc5]), [1]); // by rax
        assert_eq!(found(&[0x4c, 0x01, 0xe4, 0x4c, 0x01, 0xe5, 0xc3]), [0]); // by r12
        assert!(found(&[0x48, 0x01, 0xc4, 0x48, 0x01, 0xd5]).is_empty());
        assert!(found(&[0x48, 0x01, 0xc4, 0x4c, 0x01, 0xc5]).is_empty());
        assert!(found(&[0x48, 0x01, 0xc4, 0x48, 0x01]).is_empty());
    }
}
