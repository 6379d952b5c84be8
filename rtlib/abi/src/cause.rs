//! Why paths are incomplete.

/// The reason why a walk stopped before the root of the stack. Its number is the root node of the
/// paths from such walks ([`crate::segment::Node`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Cause {
    /// There is no rule for the frame from unwind tables, instructions or the frame pointer.
    NoRule = 2,
    /// The return address is not in executable memory.
    UnknownCode = 5,
    /// The word in the return address's place is no return address: no call precedes it.
    NoCall = 6,
    /// The rule leads to a place that is not on the stack.
    OffStack = 7,
    /// A signal has interrupted code that has no rule at that instruction.
    Interrupted = 8,
    /// A signal handler was called from an unknown stack, or there are too many nested handlers.
    OtherStack = 9,
    /// The return address is 0, usually the end of a stack that the program has created itself.
    NullReturn = 10,
    /// The code reaches the call with different stack heights, but the unwind table has only one of
    /// them.
    Ambiguous = 11,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 8] = [
        Self::NoRule,
        Self::UnknownCode,
        Self::NoCall,
        Self::OffStack,
        Self::Interrupted,
        Self::OtherStack,
        Self::NullReturn,
        Self::Ambiguous,
    ];

    /// The root node of paths with this cause.
    #[inline(always)]
    pub const fn node(self) -> u32 {
        self as u32
    }

    /// The cause whose root node is `node`; `None` if there is none.
    #[inline(always)]
    pub const fn of_node(node: u32) -> Option<Self> {
        Some(match node {
            2 => Self::NoRule,
            5 => Self::UnknownCode,
            6 => Self::NoCall,
            7 => Self::OffStack,
            8 => Self::Interrupted,
            9 => Self::OtherStack,
            10 => Self::NullReturn,
            11 => Self::Ambiguous,
            _ => return None,
        })
    }

    /// The name of the cause in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRule => "no-unwind-rule",
            Self::UnknownCode => "unknown-code",
            Self::NoCall => "no-return-address",
            Self::OffStack => "off-stack",
            Self::Interrupted => "interrupted",
            Self::OtherStack => "other-stack",
            Self::NullReturn => "null-return-address",
            Self::Ambiguous => "ambiguous-height",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cause;
    use crate::segment::{FIRST_NODE, ROOT_COMPLETE, ROOT_CUT, ROOT_OVERFLOW};

    #[test]
    fn every_cause_has_a_node_of_its_own() {
        let mut found = 0;
        for node in 0..FIRST_NODE + 1 {
            let Some(cause) = Cause::of_node(node) else {
                continue;
            };
            assert_eq!(cause.node(), node);
            assert!(node < FIRST_NODE && Cause::ALL.contains(&cause));
            assert!(![ROOT_COMPLETE, ROOT_OVERFLOW, ROOT_CUT].contains(&node));
            found += 1;
        }
        assert_eq!(found, Cause::ALL.len());
    }
}
