//! DWARF's numbers of registers: psABI, figure 3.36.

use crate::values::value::Place;

/// The registers of arguments in their order.
const INTEGERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
const FIRST_VECTOR: u16 = 17;
const VECTORS: u16 = 8;

/// The place of an argument that is in this register.
pub fn place(register: u16) -> Option<Place> {
    let integer = INTEGERS.iter().position(|&number| number == register);
    let vector = register.checked_sub(FIRST_VECTOR);
    match (integer, vector) {
        (Some(n), _) => Some(Place::Integer(n as u8)),
        (None, Some(n)) if n < VECTORS => Some(Place::Vector(n as u8)),
        _ => None,
    }
}
