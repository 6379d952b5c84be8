use super::*;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

/// A temporary folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("ipath-files-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn nothing_but_a_regular_file_is_opened() {
    let folder = Folder::new("kinds");
    let (fifo, ring) = (folder.0.join("fifo"), folder.0.join("loop"));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    symlink(&ring, &ring).unwrap();
    let cause = |path: &Path| FileBytes::open(path).unwrap_err().to_string();
    assert_eq!(cause(&fifo), "not a regular file");
    assert_eq!(cause(Path::new("/dev/null")), "not a regular file");
    assert!(cause(&ring).contains("symbolic links"), "{}", cause(&ring));
    assert!(cause(&folder.0).contains("directory"));
    let file = folder.file("file", b"contents");
    let link = folder.0.join("link");
    symlink(&file, &link).unwrap();
    assert_eq!(FileBytes::open(&link).unwrap().bytes(), b"contents");
    let empty = folder.file("empty", b"");
    assert!(FileBytes::open(&empty).unwrap().bytes().is_empty());
}

#[test]
fn a_sparse_file_is_not_read() {
    let folder = Folder::new("sparse");
    let path = folder.file("sparse", b"\x7fELF");
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let cause = FileBytes::open(&path).unwrap_err().to_string();
    assert!(cause.starts_with("sparse: "), "{cause}");
}

#[test]
fn a_file_that_is_cut_short_reads_as_zeroes_from_there() {
    const PAGES: usize = 64;
    let folder = Folder::new("cut");
    let contents = vec![7; PAGES * abi::PAGE as usize];
    let path = folder.file("mapped", &contents);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mapped = FileBytes::open(&path).unwrap();
    assert!(matches!(&*mapped.contents, Contents::Mapped(_)) && !mapped.is_cut());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(abi::PAGE).unwrap();
    assert!(mapped.bytes()[..abi::PAGE as usize].iter().all(|&b| b == 7));
    assert!(mapped.bytes()[abi::PAGE as usize..].iter().all(|&b| b == 0));
    assert!(mapped.is_cut());
}

#[test]
fn what_others_can_change_is_read() {
    let folder = Folder::new("others");
    let path = folder.file("file", b"before");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let read = FileBytes::open(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"after!", 0).unwrap();
    assert_eq!(read.bytes(), b"before");
}
