//! What the memory of a process tells of a file, against the file.

use patcher::Svma;

use super::of_module;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Pid, Process};

/// The tables in the memory of this process tell the same functions as its file.
#[test]
fn functions_start_where_the_file_says() {
    let process = Process::find(Pid(std::process::id() as i32)).expect("this one");
    let modules = modules(&process, &process.maps().expect("its maps"));
    let own = functions_start_where_the_file_says as fn() as usize as u64;
    let holds = |m: &&Module| m.code.iter().any(|c| c.contains(patcher::Avma(own)));
    let module = modules.iter().find(holds).expect("the test");
    let image = of_module(module).expect("its file");
    let bias = module.bias_in_memory().expect("a bias");
    assert_eq!(Some(bias), module.bias(image.image));
    let tables = module.unwind_tables_in_memory(bias).expect("tables");
    let at = bias.to_svma(patcher::Avma(own));
    for at in [at, Svma(at.0 + 1)] {
        let function = image.function_at(at).expect("known");
        assert_eq!(tables.start_before(at), Some(function.range.start));
    }
    assert_eq!(tables.start_before(Svma(0)), None);
}
