//! Call paths by number, up to a limit.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::code::{Code, Path};
use super::role::Role;
use crate::arch::Registers;

/// The number of a path: its index in [`Paths::all`].
pub(super) type PathId = u32;

/// The most paths to keep apart. Beyond that, the lightest ones are merged.
pub(super) const MAX_PATHS: usize = 16 << 10;

/// Assigns numbers to paths.
pub(super) struct Paths {
    pub(super) code: Code,
    all: Vec<Path>,
    /// The role of each path, computed on demand.
    roles: Vec<OnceCell<Role>>,
    ids: HashMap<Path, PathId>,
}

impl Paths {
    pub(super) fn of(code: Code) -> Self {
        Self {
            code,
            all: Vec::new(),
            roles: Vec::new(),
            ids: HashMap::new(),
        }
    }

    /// The path of a thread with these registers. `stack` holds the bytes from the stack pointer
    /// upwards. Without registers the path has no functions.
    pub(super) fn walk(&mut self, registers: Option<&Registers>, stack: &[u8]) -> PathId {
        let path = match registers {
            Some(registers) => self.code.walk(registers, stack),
            None => Path::default(),
        };
        self.id(path)
    }

    fn id(&mut self, path: Path) -> PathId {
        let next = self.all.len() as PathId;
        *self.ids.entry(path).or_insert_with_key(|path| {
            self.roles.push(OnceCell::new());
            self.all.push(path.clone());
            next
        })
    }

    /// The role of a path, from those of its functions.
    pub(super) fn role(&self, id: PathId) -> Role {
        let functions = || self.all[id as usize].functions.iter();
        let role = || Role::of_path(functions().map(|&f| self.code.function(f).role));
        *self.roles[id as usize].get_or_init(role)
    }

    /// Names functions by the debug files that have arrived since the last call. The numbers of
    /// paths stay.
    pub(super) fn renew(&mut self) {
        if let Some(now) = self.code.renew() {
            let functions = self.all.iter_mut().flat_map(|path| &mut path.functions);
            functions.for_each(|id| *id = now[*id as usize]);
            self.roles.fill_with(OnceCell::new);
            let ids = self.all.iter().cloned().zip(0..);
            self.ids = ids.collect();
        }
    }

    /// All paths, indexed by number.
    pub(super) fn all(&self) -> &[Path] {
        &self.all
    }

    /// True if there are more than [`MAX_PATHS`] paths.
    pub(super) fn are_many(&self) -> bool {
        self.all.len() > MAX_PATHS
    }

    /// Keeps the heaviest paths, half of [`MAX_PATHS`]. Others keep only their innermost function.
    /// `weights` are indexed by path. Returns the new number of each path, indexed by its old
    /// number.
    pub(super) fn fold(&mut self, weights: &[f64]) -> Vec<PathId> {
        let weight = |path: usize| weights.get(path).copied().unwrap_or(0.0);
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
        let mut is_kept = vec![false; self.all.len()];
        for &path in order.iter().take(MAX_PATHS / 2) {
            is_kept[path] = true;
        }
        self.ids.clear();
        self.roles.clear();
        let all = std::mem::take(&mut self.all);
        let mut new = Vec::with_capacity(all.len());
        for (path, is_kept) in all.into_iter().zip(is_kept) {
            let path = if is_kept { path } else { path.innermost() };
            new.push(self.id(path));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::{Pid, Process};

    #[test]
    fn the_lightest_paths_are_let_go() {
        let own = Process::find(Pid(std::process::id() as i32)).unwrap();
        let mut paths = Paths::of(Code::of(&own));
        let path = |n: u32| Path {
            functions: vec![n % 7, 100 + n],
            is_whole: true,
            is_folded: false,
        };
        let count = MAX_PATHS as u32 + 50;
        for n in 0..count {
            assert_eq!(paths.id(path(n)), n);
        }
        assert!(paths.are_many());
        let weights: Vec<f64> = (0..count).map(f64::from).collect();
        let new = paths.fold(&weights);
        assert_eq!(paths.all().len(), MAX_PATHS / 2 + 7);
        let heaviest = &paths.all()[new[count as usize - 1] as usize];
        assert_eq!(*heaviest, path(count - 1));
        let lightest = &paths.all()[new[3] as usize];
        assert_eq!(
            (&lightest.functions[..], lightest.is_folded),
            (&[3][..], true)
        );
        assert_eq!(new[3], new[10]);
    }
}
