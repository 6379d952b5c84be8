//! Files are replaced as a whole, links are not followed, and pipes receive the bytes.

use super::*;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ipath-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let to = Destination::of(path)?;
    to.check()?;
    to.write(|out| out.write_all(text.as_bytes()))
}

#[test]
fn a_file_is_replaced_whole_or_stays() {
    let folder = Folder::new("whole");
    let path = folder.file("p.json");
    write(&path, "first").unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    write(&path, "second").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_ne!(fs::metadata(&path).unwrap().ino(), before);
    let failed = Destination::of(&path).unwrap().write(|out| {
        out.write_all(&[b'x'; 100_000])?;
        Err(io::Error::other("enough"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "enough");
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(folder.names(), ["p.json"]);
    // The longest possible name.
    write(&folder.file(&"n".repeat(255)), "long").unwrap();
}

#[test]
fn a_link_is_replaced_and_what_it_leads_to_stays() {
    let folder = Folder::new("link");
    let (victim, path) = (folder.file("victim"), folder.file("p.json"));
    fs::write(&victim, "precious").unwrap();
    for target in [&victim, &folder.file("nothing"), Path::new("/dev/null")] {
        let _ = fs::remove_file(&path);
        symlink(target, &path).unwrap();
        write(&path, "profile").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(folder.names(), ["p.json", "victim"]);
}

#[test]
fn what_cannot_be_written_is_refused_before() {
    let folder = Folder::new("refused");
    symlink(&folder.0, folder.file("to-folder")).unwrap();
    for path in [
        "",
        "/",
        "/tmp/",
        "/nonexistent/p.json",
        "/dev/fd/1000000",
        "/dev/fd/-1",
    ] {
        assert!(write(Path::new(path), "x").is_err(), "{path}");
    }
    assert!(write(&folder.file("to-folder"), "x").is_err());
    assert!(write(&folder.file("no/p.json"), "x").is_err());
    assert_eq!(folder.names(), ["to-folder"]);
}

#[test]
fn pipes_and_devices_get_what_is_written() {
    let folder = Folder::new("direct");
    let fifo = folder.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::read_to_string(fifo).unwrap())
    };
    write(&fifo, "through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    write(Path::new("/dev/null"), "away").unwrap();
    let full = write(Path::new("/dev/full"), "no room").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(folder.names(), ["fifo"]);
}

/// In the view, readers are not waited for.
#[test]
fn a_pipe_is_not_waited_for_by_those_who_cannot() {
    let folder = Folder::new("soon");
    let fifo = folder.file("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let soon = |bytes: &[u8]| {
        let to = Destination::of(&fifo).unwrap();
        to.write_soon(|out| out.write_all(bytes))
    };
    assert_eq!(soon(b"x").unwrap_err().to_string(), "it has no reader");
    let mut options = File::options();
    let reading = options.read(true).custom_flags(libc::O_NONBLOCK);
    let reader = reading.open(&fifo).unwrap();
    soon(&[b'x'; 5000]).unwrap();
    let mut taken = Vec::new();
    (&reader).read_to_end(&mut taken).unwrap();
    assert_eq!(taken, [b'x'; 5000]);
    let error = soon(&[0; 1 << 20]).unwrap_err().to_string();
    assert_eq!(error, "its reader does not read any more");
}

#[test]
fn names_of_descriptors_are_descriptors() {
    for (path, number) in [
        ("-", 1),
        ("/dev/stdout", 1),
        ("/dev/stderr", 2),
        ("/dev/fd/7", 7),
        ("/proc/self/fd/9", 9),
    ] {
        let to = Destination::of(Path::new(path)).unwrap();
        assert_eq!(to, Destination::Descriptor(number), "{path}");
    }
}

#[test]
fn the_mode_is_that_of_any_new_file() {
    let folder = Folder::new("mode");
    write(&folder.file("p"), "x").unwrap();
    File::create(folder.file("q")).unwrap();
    let mode = |name| fs::metadata(folder.file(name)).unwrap().mode();
    assert_eq!(mode("p"), mode("q"));
}
