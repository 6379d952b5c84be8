//! Why paths are incomplete.

/// Why a walk had to stop before the stack's root. Each is the number of the node that such a path ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Cause {
    /// Neither unwind tables nor instructions nor a frame pointer tell how the frame's code is left.
    NoRule = 2,
    /// The return address is in no mapping with code.
    UnknownCode = 5,
    /// What stands at the return address's place is none: no call ends there.
    NoCall = 6,
    /// The rule leads to a place that is not on the stack.
    OffStack = 7,
    /// A signal has interrupted code for which there is no rule at that instruction.
    Interrupted = 8,
    /// A signal's handler leads to a stack that is not known, or there are too many such.
    OtherStack = 9,
    /// The return address is 0: usually the end of a stack that the program has made itself.
    NullReturn = 10,
    /// Code reaches the call with different stack heights, and the unwind table has only one of
    /// them.
    Ambiguous = 11,
}

impl Cause {
    /// All of them.
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

    /// The node that such paths end in.
    #[inline(always)]
    pub const fn node(self) -> u32 {
        self as u32
    }

    /// The cause that this node stands for.
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

    /// As it stands in profiles.
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
