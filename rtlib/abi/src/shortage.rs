//! The exhausted resources that cause calls to be missed or to share the overflow path.

/// An exhausted resource.
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
    /// The stack is deeper than the limit of a walk.
    Depth = 7,
    /// The profile has as many frames as the command reads. The runtime never sets this.
    Frames = 8,
}

impl Shortage {
    /// All shortages.
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

    /// The shortage's bit in [`Header::overflow_by`](crate::segment::Header::overflow_by) and
    /// [`Header::missed_by`](crate::segment::Header::missed_by).
    #[inline(always)]
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The shortages whose bits are set in `bits`, in the order of [`Shortage::ALL`]. Unknown bits
    /// are ignored.
    pub fn of(bits: u64) -> impl Iterator<Item = Self> {
        let all = Self::ALL.into_iter();
        all.filter(move |shortage| bits & shortage.bit() != 0)
    }

    /// The name of the shortage in profiles.
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

    /// The shortage with this name ([`Shortage::name`]); `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|shortage| shortage.name() == name)
    }
}
