//! What a program is called before people.

use std::borrow::Cow;

/// Characters of what a program calls itself that are shown.
const MOST: usize = 120;

/// What is after the last slash of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A program as its user knows it, of this file and with these arguments, and the arguments that are to be shown after it. Where it was
/// started by another name or calls itself otherwise, that comes first, and the file stands in brackets.
pub fn program<'a>(exe: &'a str, args: &'a [String]) -> (Cow<'a, str>, &'a [String]) {
    let (first, rest) = match args.split_first() {
        Some((first, rest)) if !first.is_empty() => (first.as_str(), rest),
        _ => return (Cow::Borrowed(exe), &[]),
    };
    if file_name(first) == file_name(exe.strip_suffix(" (deleted)").unwrap_or(exe)) {
        return (Cow::Borrowed(exe), rest);
    }
    let shown = match first.char_indices().nth(MOST) {
        Some((end, _)) => Cow::Owned(format!("{}…", &first[..end])),
        None => Cow::Borrowed(first),
    };
    (Cow::Owned(format!("{shown} ({exe})")), rest)
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
}
