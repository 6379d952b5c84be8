//! DWARF's numbers of registers: psABI, figure 3.36.

use crate::values::value::ValueRegister;

/// DWARF's numbers of the integer registers for arguments, in the order of the arguments.
const INTEGERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
/// DWARF's number of the first vector register for arguments. The others follow.
const FIRST_VECTOR: u16 = 17;
/// The number of vector registers for arguments.
const VECTORS: u16 = 8;

/// The place of an argument that is in the register with this DWARF number. `None` if the register
/// takes no arguments.
pub fn place(register: u16) -> Option<ValueRegister> {
    let integer = INTEGERS.iter().position(|&number| number == register);
    let vector = register.checked_sub(FIRST_VECTOR);
    match (integer, vector) {
        (Some(n), _) => Some(ValueRegister::Integer(n as u8)),
        (None, Some(n)) if n < VECTORS => Some(ValueRegister::Vector(n as u8)),
        _ => None,
    }
}
