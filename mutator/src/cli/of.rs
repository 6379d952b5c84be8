//! The process that a command is about: by its id or by its name, as an argument or by `-p`.

use std::fmt;
use std::str::FromStr;

use clap::Args;

/// A process, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By its id.
    Id(i32),
    /// By its name. Looking it up fails unless it is the name of exactly one process.
    Name(String),
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
        match text.parse() {
            Ok(pid) if pid > 0 => Ok(Self::Id(pid)),
            Err(_) if !is_number && !text.is_empty() => Ok(Self::Name(text.to_owned())),
            _ => Err("a process id is a positive number".to_owned()),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(pid) => pid.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// Arguments that name a process, by its place or as an option.
macro_rules! process_arguments {
    ($(#[$doc:meta])* $name:ident, required = $required:literal, $help:literal) => {
        $(#[$doc])*
        #[derive(Debug, Args)]
        #[group(id = "process", required = $required, multiple = false)]
        pub struct $name {
            #[doc = $help]
            #[arg(value_name = "PID")]
            pid: Option<Subject>,
            /// Process id or name, as an option
            #[arg(short = 'p', long = "pid", id = "by_option", value_name = "PID")]
            by_option: Option<Subject>,
        }

        impl $name {
            fn given(&self) -> Option<&Subject> {
                self.pid.as_ref().or(self.by_option.as_ref())
            }
        }
    };
}

process_arguments!(
    /// A required process.
    Of,
    required = true,
    "Process id, or the name of exactly one process"
);
process_arguments!(
    /// An optional process.
    MayBeOf,
    required = false,
    "Process id, or the name of exactly one process; for an MPI job, that of its launcher \
    (mpirun, mpiexec, srun)"
);

impl Of {
    /// The given process.
    ///
    /// # Panics
    /// Without either argument, which clap refuses.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        self.given().expect("the group is required")
    }
}

impl MayBeOf {
    /// The process given on the command line. `None` if none was given.
    #[must_use]
    pub fn subject(&self) -> Option<&Subject> {
        self.given()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_ids_and_names() {
        assert_eq!("42".parse(), Ok(Subject::Id(42)));
        assert_eq!(
            "redis-server".parse(),
            Ok(Subject::Name("redis-server".to_owned()))
        );
        for bad in ["", "0", "-1", "+", "12x", "99999999999"] {
            assert!(bad.parse::<Subject>().is_err(), "{bad}");
        }
    }
}
