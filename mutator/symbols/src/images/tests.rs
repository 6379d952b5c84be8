//! Images of files: comparison with the memory of a process, and the number that stays open.

use std::os::unix::fs::MetadataExt;

use patcher::Svma;

use super::{MAX_UNUSED, OpenError, of_file, of_module, opened};
use ipath_base::files::FileBytes;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Pid, Process};

/// The tables in the memory of this process describe the same functions as its file.
#[test]
fn functions_start_where_the_file_says() {
    let process = Process::find(Pid(std::process::id() as i32)).expect("this one");
    let modules = modules(&process, &process.maps().expect("its maps"));
    let own = functions_start_where_the_file_says as fn() as usize as u64;
    let holds = |m: &&Module| m.code.iter().any(|c| c.contains(patcher::Avma(own)));
    let module = modules.iter().find(holds).expect("the test");
    let image = of_module(module).expect("its file");
    let bias = module.bias_in_memory().expect("a bias");
    assert_eq!(Some(bias), module.bias(image.image()));
    let tables = module.unwind_tables_in_memory(bias).expect("tables");
    let at = bias.to_svma(patcher::Avma(own));
    for at in [at, Svma(at.0 + 1)] {
        let function = image.function_at(at).expect("known");
        assert_eq!(tables.start_before(at), Some(function.range.start));
    }
    assert_eq!(tables.start_before(Svma(0)), None);
}

/// An ELF file with only a header.
fn smallest() -> Vec<u8> {
    const X86_64: u8 = 62;
    let mut file = vec![0; 64];
    file[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    file[16..24].copy_from_slice(&[3, 0, X86_64, 0, 1, 0, 0, 0]);
    file[52] = 64;
    file[54] = 56;
    file[58] = 64;
    file
}

/// A command that follows many short processes opens many files.
#[test]
fn the_number_of_open_files_is_bounded() {
    const FILES: usize = 3 * MAX_UNUSED;
    let folder = std::env::temp_dir().join(format!("ipath-images-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |n: usize| folder.join(format!("program-{n}"));
    let open = |n: usize| {
        let path = path(n);
        std::fs::write(&path, smallest()).expect("written");
        let inode = std::fs::metadata(&path).expect("there").ino();
        let bytes = || FileBytes::open(&path).map_err(OpenError::Io);
        let key = (String::from("fe:01"), inode);
        of_file(&path.to_string_lossy(), &key, bytes).expect("an image")
    };
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("its maps");
        let folder = folder.to_string_lossy();
        maps.lines().filter(|line| line.contains(&*folder)).count()
    };
    let first = open(0);
    let mut most = 0;
    for n in 1..FILES {
        open(n);
        most = most.max(opened().len());
    }
    assert!(most <= MAX_UNUSED + 10, "{most} images");
    assert!(mapped() <= MAX_UNUSED + 10, "{} maps", mapped());
    // The image in use was not dropped.
    assert!(std::sync::Arc::ptr_eq(&first, &open(0)));
    std::fs::remove_dir_all(&folder).expect("removed");
}
