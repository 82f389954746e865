//! A program that disturbs what it measures, attached for short stretches of time.
//!
//! A tracepoint without a listener costs nothing. One that fires while a contended lock is held
//! makes all waiters of the lock wait longer, even if its program is short. So the program is
//! attached and detached repeatedly. The unrecorded time is like the recorded time, and it is not
//! disturbed.

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

/// How long a program is attached.
const LOOK_NS: u64 = 10_000_000;
/// The delay from the announcement of a stretch to its start, so that the program knows it by then.
const LEAD_NS: u64 = 2_000_000;
/// How long the program is detached between two stretches.
const AWAY_NS: u64 = 108_000_000;

/// Corresponds to `struct stretch` in the program, in ns of `CLOCK_MONOTONIC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    from_ns: u64,
    until_ns: u64,
}

// SAFETY: numbers without padding between them, as in the program.
unsafe impl Pod for Stretch {}

impl Stretch {
    /// Returns how much of it has passed.
    fn passed_ns(self) -> u64 {
        self.until_ns.min(now_ns()).saturating_sub(self.from_ns)
    }
}

fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// A program that is attached and detached repeatedly.
pub(super) struct Stretches {
    /// The program and its map, until it begins.
    ready: Option<(ProgramFd, Array<MapData, Stretch>)>,
    window: Stretch,
    seen: Arc<Mutex<Vec<Stretch>>>,
    /// Ends the thread when it is dropped.
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

    /// Attaches and detaches the program in `window`, in ns of `CLOCK_MONOTONIC`.
    pub(super) fn begin(&mut self, window: (u64, u64)) -> Result<(), WatchError> {
        let Some((fd, map)) = self.ready.take() else {
            return Err(read("the window is already set"));
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

    /// Returns all of the time that has passed, divided by the time in which the program was
    /// attached; `None` if it never was.
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

/// Waits, attaches, waits, detaches, until the window is over or `pause` asks for the end. If the
/// kernel refuses to attach the program again, the stretches until then are the result.
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
        // Recorded before the program knows it; otherwise events could count without their time.
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
    // SAFETY: the attributes are ours, have the given size, and are zero beyond what the call
    // knows.
    let link = unsafe { libc::syscall(libc::SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, at, bytes) };
    if link < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
}
