//! A processor without a port. Registers, rules and steps are those of x86-64, and there are no
//! steps over signal frames.

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

    /// Replaces the registers by those of the interrupted code, and returns its program counter.
    /// Always `None` here.
    pub fn step(_: &mut Regs, _: &dyn Fn(u64) -> Option<u64>) -> Option<u64> {
        None
    }
}
