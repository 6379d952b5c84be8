//! An image together with the files that it borrows from.

use std::sync::OnceLock;

use patcher::flow::ModuleContext;
use patcher::image::{Image, ImageError};
use self_cell::self_cell;

use ipath_base::files::FileBytes;

/// The contents of the files of an image.
struct Contents {
    file: FileBytes,
    /// The separate file with its symbols. Unset if there is none.
    symbols: OnceLock<FileBytes>,
}

/// An image and its context.
pub(super) struct Tables<'d> {
    image: Image<'d>,
    context: OnceLock<ModuleContext<'d>>,
}

self_cell!(
    struct Cell {
        owner: Contents,
        #[not_covariant]
        dependent: Tables,
    }
);

/// An image that owns its bytes.
pub(super) struct Parsed(Cell);

impl Parsed {
    /// Reads the headers of a file. `find_symbols` finds the separate file with the symbols that
    /// this one lacks.
    ///
    /// # Errors
    /// It is no image. `find_symbols` is not called then.
    pub(super) fn new(
        file: FileBytes,
        find_symbols: impl FnOnce(&[u8]) -> Option<FileBytes>,
    ) -> Result<Self, ImageError> {
        let symbols = OnceLock::new();
        let contents = Contents { file, symbols };
        Cell::try_new(contents, |contents| Tables::of(contents, find_symbols)).map(Self)
    }

    pub(super) fn file(&self) -> &FileBytes {
        &self.0.borrow_owner().file
    }

    /// True if there is a separate file with symbols.
    pub(super) fn has_symbol_file(&self) -> bool {
        self.0.borrow_owner().symbols.get().is_some()
    }

    pub(super) fn tables(&self) -> &Tables<'_> {
        self.0.with_dependent(|_, tables| tables.shortened())
    }
}

impl<'d> Tables<'d> {
    fn of(
        contents: &'d Contents,
        find_symbols: impl FnOnce(&[u8]) -> Option<FileBytes>,
    ) -> Result<Self, ImageError> {
        let data = contents.file.bytes();
        let mut image = Image::parse(data)?;
        if let Some(symbols) = find_symbols(data) {
            let symbols = contents.symbols.get_or_init(|| symbols);
            image = image.with_symbols_of(symbols.bytes());
        }
        Ok(Self {
            image,
            context: OnceLock::new(),
        })
    }

    fn shortened<'s>(&'s self) -> &'s Tables<'s> {
        // SAFETY: only the lifetime changes, from `'d` to the shorter `'s`. The compiler refuses
        // that because a `&Tables<'s>` could put references that live for `'s` into the cells
        // (`OnceLock`) of tables that live for `'d`. No function here or of `Image` takes data by
        // `&self`: all cells are filled from the data that the image was parsed from.
        unsafe { std::mem::transmute::<&'s Tables<'d>, &'s Tables<'s>>(self) }
    }

    pub(super) fn image(&self) -> &Image<'d> {
        &self.image
    }

    /// The context, computed at the first use. `begin` is called before, and its result is dropped
    /// afterwards.
    pub(super) fn context<T>(&self, begin: impl FnOnce() -> T) -> &ModuleContext<'d> {
        self.context.get_or_init(|| {
            let _step = begin();
            ModuleContext::new(&self.image)
        })
    }
}
