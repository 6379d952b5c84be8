//! The file that a command line names as the program, as execvp(3) finds it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use patcher::elf::{ImageError, other_machine};

/// Why a program cannot be started.
#[derive(Debug)]
pub enum Unfit {
    /// There is no such file.
    Missing,
    /// The program is for another machine.
    OtherMachine(ImageError),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(Errno::ENOENT.desc().to_lowercase().as_str()),
            Self::OtherMachine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unfit {}

/// Checks that the program exists, and is not for another machine. execvp(3) passes a file that the
/// kernel does not recognize to a shell, and the shell would be measured.
///
/// # Errors
/// There is no such file, or it is for another machine.
pub fn check(program: &OsStr) -> Result<(), Unfit> {
    let path = file(program, std::env::var_os("PATH")).ok_or(Unfit::Missing)?;
    let mut head = [0; 20];
    // A file that cannot be read may be executable, and execve(2) reports other problems.
    // Opening a FIFO would wait for a writer.
    let read = || File::open(&path).and_then(|mut f| f.read_exact(&mut head));
    let is_read = path.is_file().then(read);
    match is_read
        .and_then(Result::ok)
        .and_then(|()| other_machine(&head))
    {
        Some(error) => Err(Unfit::OtherMachine(error)),
        None => Ok(()),
    }
}

/// True if execvp(3) finds this file by this name.
pub fn leads_to(name: &str, file: &str) -> bool {
    let found = self::file(OsStr::new(name), std::env::var_os("PATH"));
    let found = found.and_then(|found| found.canonicalize().ok());
    found.is_some() && found == Path::new(file).canonicalize().ok()
}

/// The file of a program with this name. `path` is the value of PATH. A file that cannot be
/// executed is returned only if there is no other. `None` if there is no file.
fn file(program: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|file| file.exists());
    }
    let folders = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    // An empty name is the current folder.
    let files = || folders.iter().map(|folder| folder.join(program));
    let mut there = files().filter(|file| file.is_file());
    let can_be_executed = |file: &Path| access(file, AccessFlags::X_OK).is_ok();
    let found = files().find(|file| file.is_file() && can_be_executed(file));
    found.or_else(|| there.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_for_other_machines_are_named() {
        let head = |class, order, machine: [u8; 2]| {
            let mut head = [0; 20];
            head[..4].copy_from_slice(b"\x7fELF");
            head[4..6].copy_from_slice(&[class, order]);
            head[18..].copy_from_slice(&machine);
            head
        };
        assert_eq!(other_machine(&head(2, 1, [62, 0])), None);
        assert_eq!(other_machine(b"#!/bin/sh\necho hello"), None);
        let named = |head| other_machine(&head).map(|e| e.to_string());
        let arm = named(head(2, 1, [183, 0])).unwrap_or_default();
        assert!(arm.contains("AArch64"), "{arm}");
        let s390 = named(head(2, 2, [0, 22])).unwrap_or_default();
        assert!(s390.contains("S/390"), "{s390}");
        let i386 = named(head(1, 1, [3, 0])).unwrap_or_default();
        assert!(i386.contains("x86 (i386), 32 bits"), "{i386}");
    }

    #[test]
    fn a_name_leads_to_the_file_that_execvp_finds() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let shell = shell.to_str().unwrap();
        assert!(leads_to("sh", shell) && leads_to("/bin/sh", shell));
        assert!(!leads_to("ls", shell) && !leads_to("./sh", shell));
        assert!(!leads_to("no-such-program", "/no/such/program"));
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let path = |text: &str| Some(OsString::from(text));
        let sh = file(OsStr::new("sh"), path("/nosuch:/bin:/usr/bin"));
        assert_eq!(sh, Some(PathBuf::from("/bin/sh")));
        assert_eq!(file(OsStr::new("sh"), path("/nosuch")), None);
        assert_eq!(
            file(OsStr::new("/bin/sh"), None),
            Some(PathBuf::from("/bin/sh"))
        );
        assert_eq!(file(OsStr::new("./no/such"), path("/bin")), None);
        assert!(file(OsStr::new("sh"), None).is_some());
    }
}
