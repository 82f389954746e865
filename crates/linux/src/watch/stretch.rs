//! A program that is in the way of what it looks at, attached for short stretches of time.
//!
//! A tracepoint that nobody listens to costs nothing, one that fires while a contended lock is held
//! makes all who wait for it wait longer, however little its program does. So the program comes and
//! goes: what it does not see is as what it sees, and the rest of the time is not disturbed.

use super::error::{WatchError, read};
use crate::system::clock_ns;
use aya::maps::{Array, MapData};
use aya::programs::ProgramFd;
use aya::programs::tp_btf::{BtfTracePoint, BtfTracePointLinkId};
use aya::{Ebpf, Pod};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a program looks.
const LOOK_NS: u64 = 10_000_000;
/// So much later than it was told it begins to: by then it knows.
const LEAD_NS: u64 = 2_000_000;
/// How long it is away then.
const AWAY_NS: u64 = 108_000_000;

/// As `struct stretch` in the program, in ns of `CLOCK_MONOTONIC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    from_ns: u64,
    until_ns: u64,
}

// SAFETY: numbers without gaps between them, as the program has them.
unsafe impl Pod for Stretch {}

impl Stretch {
    /// Its time until now.
    fn passed_ns(self) -> u64 {
        self.until_ns.min(now_ns()).saturating_sub(self.from_ns)
    }
}

fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// A program that comes and goes.
pub(super) struct Stretches {
    /// Until it begins.
    ready: Option<(ProgramFd, Array<MapData, Stretch>)>,
    window: Stretch,
    seen: Arc<Mutex<Vec<Stretch>>>,
    /// Tells the thread to end, by being dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Stretches {
    /// Takes a program that could be attached, and detaches it.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        program: &str,
        link: BtfTracePointLinkId,
    ) -> Result<Self, WatchError> {
        let map = ebpf.take_map("STRETCH").ok_or_else(|| read("no map STRETCH"))?;
        let map = Array::try_from(map).map_err(read)?;
        let found = ebpf.program_mut(program).ok_or_else(|| read(program))?;
        let found: &mut BtfTracePoint = found.try_into().map_err(read)?;
        found.detach(link).map_err(read)?;
        let fd = found.fd().map_err(read)?.try_clone().map_err(read)?;
        let (window, seen) = (Stretch::default(), Arc::default());
        Ok(Self { ready: Some((fd, map)), window, seen, end: None, thread: None })
    }

    /// Lets the program come and go in `window`, in ns of `CLOCK_MONOTONIC`.
    pub(super) fn begin(&mut self, window: (u64, u64)) -> Result<(), WatchError> {
        let Some((fd, map)) = self.ready.take() else {
            return Err(read("what counts was set before"));
        };
        self.window = Stretch { from_ns: window.0, until_ns: window.1 };
        let (end, ended) = channel::<()>();
        let (window, seen) = (self.window, Arc::clone(&self.seen));
        let pause = move |until_ns: u64| {
            let rest = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            ended.recv_timeout(rest) == Err(RecvTimeoutError::Timeout)
        };
        let thread = std::thread::Builder::new().name("stretches".to_owned());
        let thread = thread.spawn(move || come_and_go(&fd, map, window, &seen, pause));
        self.end = Some(end);
        self.thread = Some(thread.map_err(read)?);
        Ok(())
    }

    /// All of the time that has passed, over that in which the program has looked; none where it
    /// never has.
    pub(super) fn share(&self) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen_ns = seen.iter().map(|stretch| stretch.passed_ns()).sum::<u64>();
        (seen_ns > 0).then(|| self.window.passed_ns() as f64 / seen_ns as f64)
    }
}

impl Drop for Stretches {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits, attaches, waits, detaches, until the window is over or `pause` says to end. Where the
/// kernel will not have the program again, what was seen until then has to do.
fn come_and_go(
    program: &ProgramFd,
    mut map: Array<MapData, Stretch>,
    window: Stretch,
    seen: &Mutex<Vec<Stretch>>,
    pause: impl Fn(u64) -> bool,
) {
    if !pause(window.from_ns) {
        return;
    }
    while now_ns() < window.until_ns {
        let Ok(link) = attach(program) else { return };
        let from_ns = (now_ns() + LEAD_NS).max(window.from_ns);
        let until_ns = (from_ns + LOOK_NS).min(window.until_ns);
        let stretch = Stretch { from_ns, until_ns };
        // Before the program knows of it, or what it counts then would be of no time.
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(stretch);
        if map.set(0, stretch, 0).is_err() {
            seen.lock().unwrap_or_else(PoisonError::into_inner).pop();
            return;
        }
        let goes_on = pause(until_ns);
        drop(link);
        if !goes_on || !pause(until_ns + AWAY_NS) {
            return;
        }
    }
}

/// `struct bpf_attr` of `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct Open {
    /// None: the program knows its tracepoint.
    name: u64,
    program: u32,
    padding: u32,
    cookie: u64,
}

const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;

/// Attaches the program until the descriptor is closed.
fn attach(program: &ProgramFd) -> std::io::Result<OwnedFd> {
    let number = program.as_fd().as_raw_fd();
    let open = Open { name: 0, program: number as u32, padding: 0, cookie: 0 };
    let (at, bytes) = (&raw const open, size_of::<Open>());
    // SAFETY: the attributes are ours, as long as is said, and zero beyond what the call knows.
    let link = unsafe { libc::syscall(libc::SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, at, bytes) };
    if link < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call has just made it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
}
