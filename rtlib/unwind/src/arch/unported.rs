//! A processor without a port. Registers, rules, and steps are those of x86-64, and signal frames
//! lead nowhere.

#[path = "x86_64/register.rs"]
pub mod register;
#[path = "x86_64/regs.rs"]
mod regs;
#[path = "x86_64/rule.rs"]
pub mod rule;
#[path = "x86_64/step.rs"]
mod step;

pub use regs::{Regs, Saved};
pub use rule::Rule;
pub use step::step;

/// The step from the restorer of a signal handler to the interrupted code.
pub mod signal_frame {
    use super::Regs;

    /// Takes the registers to the interrupted code, and returns its program counter.
    pub fn step(_: &mut Regs, _: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        None
    }
}
