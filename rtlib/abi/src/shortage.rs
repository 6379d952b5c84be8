//! The exhausted resources for which calls have no path of their own, or are missed.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Shortage {
    /// The limit on paths is reached.
    Paths = 0,
    /// An area of the segment is full. Capacities follow from the limit on paths.
    Room = 1,
    /// The session has taken its part of the memory left in the process's cgroup.
    Group = 2,
    /// The kernel has no memory for the segment: /dev/shm is full.
    Shared = 3,
    /// The kernel gives the process no further mapping, or no memory for it.
    Mapping = 4,
    /// The list of the runtime's mappings is full.
    List = 5,
    /// A runtime without system calls has used up its reserve.
    Reserve = 6,
    /// The stack is deeper than a walk can be.
    Depth = 7,
    /// A profile has as many frames as the command reads. The runtime never notes this.
    Frames = 8,
}

impl Shortage {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Paths,
        Self::Room,
        Self::Group,
        Self::Shared,
        Self::Mapping,
        Self::List,
        Self::Reserve,
        Self::Depth,
        Self::Frames,
    ];

    /// Its bit in [`Header::overflow_by`](crate::segment::Header::overflow_by).
    #[inline(always)]
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The set bits.
    pub fn of(bits: u64) -> impl Iterator<Item = Self> {
        let all = Self::ALL.into_iter();
        all.filter(move |shortage| bits & shortage.bit() != 0)
    }

    /// As it stands in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paths => "max-paths",
            Self::Room => "segment-full",
            Self::Group => "memory-cgroup",
            Self::Shared => "shared-memory",
            Self::Mapping => "no-mapping",
            Self::List => "mappings-listed",
            Self::Reserve => "reserve",
            Self::Depth => "stack-depth",
            Self::Frames => "profile-frames",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|shortage| shortage.name() == name)
    }
}
