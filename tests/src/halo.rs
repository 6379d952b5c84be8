//! The MPI example of `examples/halo`.

use crate::command::Run;
use crate::compile::build;
use crate::place::workspace;
use std::path::PathBuf;
use std::time::Duration;

/// The MPI example, compiled as its Makefile does.
///
/// # Panics
/// When there is no MPI compiler.
pub fn halo() -> PathBuf {
    let flags = |what| {
        let finished = Run::new("mpicc").arg(what).run().expect(0);
        finished
            .stdout
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut all = flags("--showme:compile");
    all.extend(flags("--showme:link"));
    all.push("-g".into());
    let flags: Vec<_> = all.iter().map(String::as_str).collect();
    build(&workspace().join("examples/halo/halo.c"), &flags)
}

/// mpirun with two ranks of a shell command, which knows its rank as `$R`.
pub fn mpirun(command: &str) -> Run {
    Run::new("mpirun")
        .args([
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "2",
            "sh",
            "-c",
        ])
        .arg(format!("R=$OMPI_COMM_WORLD_RANK; {command}"))
        .limit(Duration::from_secs(180))
}
