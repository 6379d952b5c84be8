//! The MPI example of `examples/halo`.

use crate::command::Run;
use crate::compile::{build, source};
use crate::place::workspace;
use std::path::PathBuf;
use std::time::Duration;

/// The executable of the MPI example, linked with Open MPI.
pub fn halo() -> PathBuf {
    halo_of(Mpi::Open)
}

/// An implementation of MPI in Debian's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI.
    Open,
    /// MPICH.
    Mpich,
}

impl Mpi {
    /// The program that starts its jobs.
    pub fn launcher(self) -> &'static str {
        match self {
            Self::Open => "mpirun.openmpi",
            Self::Mpich => "mpirun.mpich",
        }
    }

    /// The launcher's options: as root, and with more ranks than processors.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Open => &["--allow-run-as-root", "--oversubscribe"],
            Self::Mpich => &[],
        }
    }

    /// The flags that its compiler wrapper passes to the C compiler.
    fn flags(self) -> Vec<String> {
        let ask = |compiler: &str, what: &str| {
            let finished = Run::new(compiler).arg(what).run().expect(0);
            let words = finished.stdout.split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        match self {
            Self::Open => ["--showme:compile", "--showme:link"]
                .iter()
                .flat_map(|what| ask("mpicc.openmpi", what))
                .collect(),
            // The first word is the C compiler.
            Self::Mpich => ask("mpicc.mpich", "-link-info").split_off(1),
        }
    }

    /// The path of the library that counts calls of MPI_Wait, to be preloaded.
    pub fn wrapper(self) -> PathBuf {
        let mut flags = self.flags();
        flags.extend(["-shared".into(), "-fPIC".into()]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        build(&source("mpi_waits.c"), &flags)
    }
}

/// The executable of the MPI example, linked with this implementation.
///
/// # Panics
/// If it does not compile.
pub fn halo_of(mpi: Mpi) -> PathBuf {
    let mut flags = mpi.flags();
    flags.push("-g".into());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    build(&workspace().join("examples/halo/halo.c"), &flags)
}

/// Open MPI's mpirun with two ranks of a shell command; `$R` is the rank.
pub fn mpirun(command: &str) -> Run {
    Run::new("mpirun.openmpi")
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
