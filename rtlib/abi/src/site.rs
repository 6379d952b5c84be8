//! The keys of the calling-context tree: call sites, and what follows them on a path.

/// Bit of [`Node::key`](crate::segment::Node::key) that distinguishes the end of a path from a call
/// site.
pub const NODE_IS_PATH: u64 = 1 << 63;

/// Bit at which the module of a call site begins in [`Node::key`](crate::segment::Node::key), above
/// all addresses of a process.
const SITE_MODULE: u32 = 48;

/// The call site that returns to `address`. `module` is 0 if the file mapped there is the first one
/// that the runtime saw at this address. Otherwise it is the index of the file's predecessor in the
/// [`ModuleEntry`](crate::segment::ModuleEntry) area, plus one.
pub const fn call_site(address: u64, module: u64) -> u64 {
    address | module << SITE_MODULE
}

/// The `address` and `module` of a [`call_site`].
pub const fn address_and_module(site: u64) -> (u64, u64) {
    (site & ((1 << SITE_MODULE) - 1), site >> SITE_MODULE)
}

/// Flag of a call site that is the number of a path inside the function, above all modules of
/// [`call_site`]. It is the innermost site of the function's path.
const PATH_SITE: u64 = 1 << 62;

/// The call site that stands for path `number` inside the function.
pub const fn path_site(number: u64) -> u64 {
    number | PATH_SITE
}

/// The bits of a site that is a [`Part`](crate::apart::Part), which no [`path_site`] has.
pub const APART_SITE: u64 = PATH_SITE | 1 << 61;

/// True if the site is a [`Part`](crate::apart::Part).
pub const fn is_apart(site: u64) -> bool {
    site & (NODE_IS_PATH | APART_SITE) == APART_SITE
}

/// Flag of a site that stands for a call of a measured function, above all modules of
/// [`call_site`].
const CALLER_SITE: u64 = 1 << 61;

/// The site that stands for an open call of the measured function with this id. Paths of measured
/// functions only (`--path probes`) consist of these sites.
pub const fn caller_site(function: u32) -> u64 {
    function as u64 | CALLER_SITE
}

/// The id of the function of a [`caller_site`]; `None` for other sites.
pub const fn caller_of_site(site: u64) -> Option<u32> {
    if site & (NODE_IS_PATH | APART_SITE) == CALLER_SITE {
        Some(site as u32)
    } else {
        None
    }
}

/// The number of the path inside the function, if the call site is a [`path_site`]; otherwise
/// `None`.
pub const fn number_of_path(site: u64) -> Option<u64> {
    if site & APART_SITE != PATH_SITE {
        None
    } else {
        Some(site & !PATH_SITE)
    }
}
