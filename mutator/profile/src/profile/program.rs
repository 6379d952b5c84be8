//! Display names of programs.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use ipath_base::files::file_name;

/// Folders for programs.
const FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
/// The most characters shown of the name that a program gives itself.
const MAX_CHARS: usize = 120;

/// The display name of the program `exe` with these arguments, and the arguments to show after it.
/// If the program was started by another name or has changed its name, that name comes first and
/// the file follows in brackets.
pub fn program<'a>(exe: &'a str, args: &'a [String]) -> (Cow<'a, str>, &'a [String]) {
    let (first, rest) = match args.split_first() {
        Some((first, rest)) if !first.is_empty() => (first.as_str(), rest),
        _ => return (Cow::Borrowed(exe), &[]),
    };
    if file_name(first) == file_name(exe.strip_suffix(" (deleted)").unwrap_or(exe)) {
        return (Cow::Borrowed(exe), rest);
    }
    let shown = match first.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &first[..end])),
        None => Cow::Borrowed(first),
    };
    (Cow::Owned(format!("{shown} ({exe})")), rest)
}

/// The name of the link by which a program was started: in Debian, `redis-server` is a link to
/// `redis-check-rdb`. `None` if it was started by its file's name, if it changed its own name, or
/// if no such link is found.
pub fn started_as(exe: &str, args: &[String]) -> Option<String> {
    // Some programs append a status to their name.
    let first = args.first()?.split_whitespace().next()?;
    let (name, own) = (file_name(first), file_name(exe));
    if name.is_empty() || name == own {
        return None;
    }
    let beside = Path::new(exe).with_file_name(name);
    let links = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let given = first.starts_with('/').then(|| PathBuf::from(first));
    let mut links = given.into_iter().chain([beside]).chain(links);
    let program = fs::canonicalize(exe).ok()?;
    let leads_there = |link: PathBuf| fs::canonicalize(link).is_ok_and(|file| file == program);
    links.any(leads_there).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_as_they_were_started() {
        for (exe, args, expected) in [
            ("/bin/app", &["app", "x"][..], "/bin/app x"),
            ("/bin/app (deleted)", &["./app"], "/bin/app (deleted)"),
            (
                "/usr/bin/redis-check-rdb",
                &["redis-server", "--port", "1"],
                "redis-server (/usr/bin/redis-check-rdb) --port 1",
            ),
            (
                "/usr/bin/redis-check-rdb",
                &["/usr/bin/redis-server *:6379"],
                "/usr/bin/redis-server *:6379 (/usr/bin/redis-check-rdb)",
            ),
            ("/bin/app", &[""], "/bin/app"),
            ("/bin/app", &[], "/bin/app"),
        ] {
            let args: Vec<String> = args.iter().map(|&a| a.to_owned()).collect();
            let (shown, rest) = program(exe, &args);
            let rest: String = rest.iter().map(|a| format!(" {a}")).collect();
            assert_eq!(format!("{shown}{rest}"), expected);
        }
        let long = ["x".repeat(3000)];
        assert!(program("/bin/app", &long).0.len() < 200);
    }

    #[test]
    fn a_link_to_a_program_is_its_name() {
        let folder = std::env::temp_dir().join(format!("ipath-started-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let exe = file.to_str().unwrap();
        for (first, expected) in [
            ("link", Some("link")),
            (link.to_str().unwrap(), Some("link")),
            ("link *:6379", Some("link")),
            ("file", None),
            ("other: worker", None),
            ("", None),
        ] {
            let found = started_as(exe, &[first.to_owned()]);
            assert_eq!(found.as_deref(), expected, "{first}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
