//! System calls and page faults of a process and all that it starts, counted by the kernel.

use std::ffi::CString;
use std::fs;
use std::io::{Error, Result};

/// Calls that a script or its twin makes by itself.
const CALLS: [&str; 14] = [
    "mmap",
    "munmap",
    "mremap",
    "madvise",
    "mprotect",
    "mlock2",
    "munlock",
    "mbind",
    "mincore",
    "memfd_create",
    "close",
    "clone",
    "clone3",
    "wait4",
];

/// Memory of programs is below this address, and nothing else of the process is.
pub(crate) const PROGRAMS_END: u64 = 1 << 46;

/// The places at which tracefs is mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The first version of `perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    bytes: u32,
    config: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    more: u64,
}

const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const SOFTWARE_FAULTS: u64 = 2;
const INHERIT: u64 = 1 << 1;
const SET_FILTER: libc::c_ulong = 0x4008_2406;

/// Counts of a moment.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Calls of [`CALLS`].
    pub(crate) calls: u64,
    /// All system calls.
    pub(crate) all_calls: u64,
    /// Faults at addresses of programs' memory.
    pub(crate) faults: u64,
    /// All page faults.
    pub(crate) all_faults: u64,
}

/// The counters of a process and all that it starts later. They can be read after its end.
pub(crate) struct Counter {
    calls: Vec<Event>,
    all_calls: Event,
    faults: Event,
    all_faults: Event,
}

impl Counter {
    /// Counts since this call. `pid` 0 is the calling thread.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let call = |name: &&str| Event::tracepoint(&format!("syscalls/sys_enter_{name}"), pid);
        let faults = Event::tracepoint("exceptions/page_fault_user", pid)?;
        faults.filter(&format!("address < {PROGRAMS_END:#x}"))?;
        Ok(Self {
            calls: CALLS.iter().map(call).collect::<Result<_>>()?,
            all_calls: Event::tracepoint("raw_syscalls/sys_enter", pid)?,
            faults,
            all_faults: Event::open(SOFTWARE, SOFTWARE_FAULTS, pid)?,
        })
    }
    pub(crate) fn read(&self) -> Counts {
        Counts {
            calls: self.calls.iter().map(Event::read).sum(),
            all_calls: self.all_calls.read(),
            faults: self.faults.read(),
            all_faults: self.all_faults.read(),
        }
    }
}

struct Event(i32);

impl Event {
    fn tracepoint(name: &str, pid: i32) -> Result<Self> {
        let paths = TRACEFS.map(|root| format!("{root}/events/{name}/id"));
        let id = paths.iter().find_map(|path| fs::read_to_string(path).ok());
        let id = id.and_then(|id| id.trim().parse().ok());
        let missing = || Error::other(format!("no tracepoint {name}: tracefs is not mounted?"));
        Self::open(TRACEPOINT, id.ok_or_else(missing)?, pid)
    }
    fn open(kind: u32, config: u64, pid: i32) -> Result<Self> {
        let attr = Attr {
            kind,
            bytes: size_of::<Attr>() as u32,
            config,
            flags: INHERIT,
            ..Attr::default()
        };
        // SAFETY: the attributes have the size that they name.
        let fd =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, -1, -1, 8) };
        if fd < 0 { Err(Error::last_os_error()) } else { Ok(Self(fd as i32)) }
    }
    fn filter(&self, text: &str) -> Result<()> {
        let text = CString::new(text)?;
        // SAFETY: a descriptor of ours and a text with a 0 at its end.
        let set = unsafe { libc::ioctl(self.0, SET_FILTER, text.as_ptr()) };
        if set < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }
    fn read(&self) -> u64 {
        let mut count = 0_u64;
        // SAFETY: a place of 8 bytes, which is what the event has.
        let read = unsafe { libc::read(self.0, (&raw mut count).cast(), 8) };
        assert_eq!(read, 8, "an event has a count: {}", Error::last_os_error());
        count
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours that is not used any more.
        unsafe { libc::close(self.0) };
    }
}
