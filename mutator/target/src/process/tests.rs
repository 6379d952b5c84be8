use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn a_name_with_brackets_does_not_confuse_stat() {
    let tail: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
    let stat = format!("42 (a) b) (c) S {}", tail.join(" "));
    assert_eq!(parse_stat(&stat), Some(('S', 22)));
}

#[test]
fn offsets_of_time_namespaces_are_read() {
    let text = "monotonic           0         0\nboottime        -1000  20000000\n";
    assert_eq!(parse_boot_offset(text), Some(-99_998));
    assert_eq!(parse_boot_offset("boottime 5 0\n"), Some(500));
    assert_eq!(parse_boot_offset(""), None);
}

#[test]
fn finds_itself_but_is_no_target() {
    let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
    assert!(own.life() == Presence::Here && !own.args().is_empty());
    assert!(matches!(own.check(), Err(ProcessError::Own(_))));
    assert!(
        own.maps()
            .expect("readable")
            .iter()
            .any(|m| m.name == "[stack]")
    );
    assert_eq!(own.auxiliary(6), Some(4096));
}

/// A mapping is found whatever bytes its file's name contains.
#[test]
fn names_that_are_no_text_hide_no_mapping() {
    let name = OsStr::from_bytes(b"ipath \xff\n[heap] (deleted) ");
    let path = std::env::temp_dir().join(format!("ipath-maps-{}", std::process::id()));
    fs::create_dir_all(&path).expect("room for a folder");
    let file = path.join(name);
    fs::write(&file, [0; 64]).expect("room for a file");
    let opened = fs::File::open(&file).expect("there");
    // SAFETY: no other process uses the file.
    let map = unsafe { memmap2::Mmap::map(&opened) }.expect("it can be mapped");
    let own = Process::find(Pid(std::process::id() as i32)).expect("we run");
    let maps = own.maps().expect("readable");
    let found = maps.iter().find(|m| m.range.start.0 == map.as_ptr() as u64);
    let found = found.expect("it is mapped");
    assert!(identity::is_mapped_as(&opened, &found.file).expect("known"));
    fs::remove_dir_all(&path).expect("ours");
}
