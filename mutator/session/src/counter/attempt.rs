//! Determines if a counter is available: the command opens it for itself.

use std::fs::{self, File};
use std::io;
use std::os::fd::FromRawFd;

use memmap2::MmapOptions;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};
use perf_event_open_sys::perf_event_open;

use super::event::Event;
use super::reason::{NotHere, RDPMC};
use ipath_base::error::io_text;

/// Returns an error if there is no counter of this event that programs can read by themselves.
pub fn attempt(event: &Event) -> Result<(), NotHere> {
    let file = open(event).map_err(|e| NotHere::Refused(cause(&e)))?;
    match capabilities(&file) {
        Ok(capabilities) if capabilities & CAP_USER_RDPMC != 0 => Ok(()),
        Ok(_) => Err(match fs::read_to_string(RDPMC) {
            Ok(text) if text.trim() == "0" => NotHere::Forbidden,
            _ => NotHere::Unreadable,
        }),
        Err(error) => Err(NotHere::Refused(cause(&error))),
    }
}

/// `struct perf_event_attr` as the runtime fills it: [`abi::counter::words`].
fn attributes(event: &Event) -> perf_event_attr {
    let [config, config1, config2] = event.config;
    let mut attributes = perf_event_attr {
        type_: event.kind,
        size: 8 * abi::counter::WORDS as u32,
        config,
        ..perf_event_attr::default()
    };
    attributes.__bindgen_anon_3.config1 = config1;
    attributes.__bindgen_anon_4.config2 = config2;
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes
}

/// Opens a counter of the event for this thread, on any processor.
fn open(event: &Event) -> io::Result<File> {
    const SELF: i32 = 0;
    const ANY_CPU: i32 = -1;
    const NO_GROUP: i32 = -1;
    let flags = u64::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attributes state their own size. Nothing else owns the descriptor.
    unsafe {
        match perf_event_open(&mut attributes(event), SELF, ANY_CPU, NO_GROUP, flags) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(File::from_raw_fd(descriptor)),
        }
    }
}

/// The bit of `capabilities` in a `struct perf_event_mmap_page` that permits reads of counters
/// without the kernel.
const CAP_USER_RDPMC: u64 = 1 << 2;
/// The offset of `capabilities` in that structure, in bytes.
const CAPABILITIES: usize = 40;

/// The word `capabilities` of an open counter's page.
fn capabilities(file: &File) -> io::Result<u64> {
    // SAFETY: the kernel writes to the page. Only eight bytes are copied, and these stay as they
    // are.
    let page = unsafe { MmapOptions::new().len(abi::PAGE as usize).map(file)? };
    let bytes = page.get(CAPABILITIES..).and_then(|rest| rest.first_chunk());
    Ok(bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// The reason why the kernel refuses an event.
fn cause(error: &io::Error) -> String {
    let said = io_text(error);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            format!("the processor, or the host of this virtual machine, has none ({said})")
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("the kernel does not allow it ({said}; kernel.perf_event_paranoid)")
        }
        Some(libc::EINVAL) => format!("the processor has no such event ({said})"),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runtime requests exactly the same event.
    #[test]
    fn attributes_are_those_of_the_runtime() {
        for config in [[1, 0, 0], [0x5300c0, 7, 9], [u64::MAX, 0, u64::MAX]] {
            let event = Event {
                name: "event".into(),
                kind: 4,
                config,
            };
            let attributes = attributes(&event);
            // SAFETY: it consists of initialized integers, and has at least that many words.
            let words: [u64; abi::counter::WORDS] =
                unsafe { (&raw const attributes).cast::<[u64; 9]>().read_unaligned() };
            assert_eq!(words, abi::counter::words(event.kind, config));
        }
    }

    /// Every machine has this event of the kernel. It is counted, but programs cannot read it.
    #[test]
    fn what_the_kernel_counts_is_not_to_be_read() {
        const SOFTWARE: u32 = 1;
        let event = |kind, config| Event {
            name: "event".into(),
            kind,
            config: [config, 0, 0],
        };
        let not = attempt(&event(SOFTWARE, 0)).expect_err("no counter");
        assert!(matches!(not, NotHere::Unreadable | NotHere::Forbidden));
        // There is no such type.
        let not = attempt(&event(u32::MAX, 0)).expect_err("no event");
        assert!(matches!(not, NotHere::Refused(_)), "{not}");
    }
}
