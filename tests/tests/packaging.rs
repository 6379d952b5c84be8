//! Packages: reproducible for every packager, with the licenses of their contents.

use ipath_tests::command::Run;
use ipath_tests::place::{Scratch, ipath, workspace};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Packs the program of the tests after these shell commands, which set folder, time zone and
/// umask. Returns the checksums of the result.
fn packed(output: &Path, words: &str) -> String {
    let script = format!(
        "{words}; exec '{}' '{}' '{}'",
        workspace().join("packaging/pack").display(),
        ipath().display(),
        output.display()
    );
    let packed = Run::new("bash").args(["-euc", &script]);
    let packed = packed.env("SOURCE_DATE_EPOCH", "1700000000");
    packed.limit(Duration::from_secs(300)).run().expect(0);
    fs::read_to_string(output.join("SHA256SUMS")).expect("sums")
}

#[test]
fn packages_are_the_same_whoever_makes_them() {
    let scratch = Scratch::new("packages");
    let one = packed(&scratch.file("one"), "umask 077; cd /");
    let other = packed(&scratch.file("other"), "umask 002; export TZ=Asia/Tokyo");
    assert_eq!(one, other);
    assert_eq!(one.lines().count(), 4, "{one}");
    let names = one
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    let package = names.into_iter().find(|name| name.ends_with(".deb"));
    let package = scratch.file("one").join(package.expect("a package"));
    let listed = Run::new("dpkg-deb").arg("--contents").arg(&package).run();
    let listed = listed.expect(0).stdout;
    for line in listed.lines() {
        let is_plain = line.starts_with("-rw-r--r-- ") || line.starts_with("drwxr-xr-x ");
        assert!(is_plain || line.ends_with("/usr/bin/ipath"), "{line}");
        assert!(
            line.contains(" root/root ") && line.contains(" 2023-11-14 "),
            "{line}"
        );
    }
    for file in [
        "man/man1/ipath-attach.1.gz",
        "man/man1/ipath.1.gz",
        "doc/ipath/docs/reference/configuration.md",
    ] {
        assert!(
            listed.contains(&format!("./usr/share/{file}\n")),
            "{file}: {listed}"
        );
    }
}

/// The licenses are exactly those of the linked packages, each with its text.
#[test]
fn licences_are_those_of_what_is_in_the_program() {
    let top = workspace();
    let target = "x86_64-unknown-linux-gnu";
    let script = format!(
        "cd '{}' && exec python3 packaging/licences.py {target}",
        top.display()
    );
    let text = Run::new("bash")
        .args(["-c", &script])
        .run()
        .expect(0)
        .stdout;
    let listed = text.lines().filter(|line| line.starts_with("  "));
    let listed = listed.filter_map(|line| line.trim().split_once(": "));
    let listed: BTreeSet<&str> = listed.map(|(title, _)| title).collect();
    let tree = format!(
        "cd '{}' && cargo tree --locked --package ipath --target {target}",
        top.display()
    );
    let tree = format!("{tree} --edges normal,no-proc-macro --prefix none --format '{{p}}'");
    let tree = Run::new("bash").args(["-c", &tree]).run().expect(0).stdout;
    let linked = tree.lines().filter(|line| !line.contains('/'));
    let mut number = 0;
    for line in linked {
        let title = line.trim_end_matches(" (*)").replacen(" v", " ", 1);
        assert!(
            listed.contains(title.as_str()),
            "{title} is not in {listed:?}"
        );
        number += 1;
    }
    assert!(number > 50, "{tree}");
    // A crate that the view could use, but does not.
    assert!(!text.contains("termwiz"), "{text}");
    for place in [
        top.to_string_lossy().into_owned(),
        "registry/src".to_owned(),
    ] {
        assert!(!text.contains(&place), "{place}");
    }
}
