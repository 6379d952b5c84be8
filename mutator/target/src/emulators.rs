//! Programs whose code another program in their process translates or interprets. Code patched into
//! such a program is not executed as written.

use crate::process::Process;
use ipath_base::files::file_name;

/// The emulator or virtual machine that runs the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A tool of valgrind.
    Valgrind,
    /// QEMU's emulation of one program.
    Qemu,
    /// Apple's translation of x86-64 programs.
    Rosetta,
    /// DynamoRIO.
    DynamoRio,
    /// Intel's Pin.
    Pin,
    /// A Java virtual machine. Its own functions and native libraries run natively, methods do not.
    Java,
}

impl Runner {
    /// Returns the runner of a process whose program is `exe` and that has the files in `mapped`
    /// mapped. `None` if the code runs natively.
    pub fn of<'m>(exe: &str, mapped: impl IntoIterator<Item = &'m str>) -> Option<Self> {
        let name = file_name(exe);
        if exe.contains("/valgrind/") && name.contains("-linux") {
            return Some(Self::Valgrind);
        }
        if name.starts_with("qemu-") && !name.starts_with("qemu-system") {
            return Some(Self::Qemu);
        }
        mapped.into_iter().find_map(|path| match file_name(path) {
            name if name.starts_with("vgpreload_") => Some(Self::Valgrind),
            "rosetta" => Some(Self::Rosetta),
            name if name.starts_with("libdynamorio.so") => Some(Self::DynamoRio),
            "pinbin" => Some(Self::Pin),
            "libjvm.so" => Some(Self::Java),
            _ => None,
        })
    }

    /// Returns the runner of this process. `None` if none is recognized.
    pub fn of_process(process: &Process) -> Option<Self> {
        let exe = process.exe()?.to_string_lossy().into_owned();
        let maps = process.maps().ok()?;
        Self::of(&exe, maps.iter().map(|m| m.name.as_str()))
    }

    /// A note for the user about the effect on counts.
    pub fn note(self) -> String {
        let who = match self {
            Self::Valgrind => "valgrind",
            Self::Qemu => "QEMU",
            Self::Rosetta => "Rosetta",
            Self::DynamoRio => "DynamoRIO",
            Self::Pin => "Pin",
            Self::Java => {
                return "a Java virtual machine runs this program's methods: they are not called \
                    natively, so only functions of the virtual machine and of native libraries \
                    are counted; paths through compiled methods are complete only with \
                    -XX:+PreserveFramePointer"
                    .to_owned();
            }
        };
        format!(
            "{who} translates this program's code: its functions are not called natively, and few \
            or none of their calls are counted"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_known_by_their_files() {
        let plain = ["/usr/bin/app", "/usr/lib/libc.so.6", "[heap]", ""];
        for (exe, mapped, expected) in [
            ("/usr/bin/app", "/usr/lib/libm.so.6", None),
            (
                "/usr/libexec/valgrind/memcheck-amd64-linux",
                "",
                Some(Runner::Valgrind),
            ),
            (
                "/opt/tool",
                "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so",
                Some(Runner::Valgrind),
            ),
            ("/usr/bin/qemu-x86_64-static", "", Some(Runner::Qemu)),
            ("/usr/bin/qemu-system-x86_64", "", None),
            (
                "/media/rosetta/rosetta",
                "/media/rosetta/rosetta",
                Some(Runner::Rosetta),
            ),
            (
                "/usr/bin/java",
                "/usr/lib/jvm/lib/server/libjvm.so",
                Some(Runner::Java),
            ),
            (
                "/usr/bin/app",
                "/opt/dr/lib64/release/libdynamorio.so",
                Some(Runner::DynamoRio),
            ),
            (
                "/opt/pin/intel64/bin/pinbin",
                "/opt/pin/intel64/bin/pinbin",
                Some(Runner::Pin),
            ),
            ("/home/valgrind/app", "/home/valgrind/libapp.so", None),
        ] {
            let found = Runner::of(exe, plain.into_iter().chain([mapped]));
            assert_eq!(found, expected, "{exe} {mapped}");
        }
    }

    #[test]
    fn this_process_runs_natively() {
        let own = Process::find(crate::process::Pid(std::process::id() as i32)).unwrap();
        assert_eq!(Runner::of_process(&own), None);
    }
}
