//! A program that is in the way of what it looks at, attached for short stretches of time.
//!
//! A tracepoint that nobody listens to costs nothing, one that fires while a contended lock is held
//! makes all who wait for it wait longer, however little its program does. So the program comes and
//! goes: what it does not see is as what it sees, and the rest of the time is not disturbed.

use super::error::{WatchError, read};
use crate::system::clock_ns;
use aya::Ebpf;
use aya::programs::ProgramFd;
use aya::programs::tp_btf::{BtfTracePoint, BtfTracePointLinkId};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a program stays.
const STAY: Duration = Duration::from_millis(10);
/// How long it is away then.
const AWAY: Duration = Duration::from_millis(110);

/// A program that comes and goes.
pub(super) struct Stretches {
    /// Until it begins.
    ready: Option<ProgramFd>,
    window: (u64, u64),
    so_far: Arc<Mutex<SoFar>>,
    /// Tells the thread to end, by being dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread tells.
#[derive(Default)]
struct SoFar {
    /// Time with the program.
    there_ns: u64,
    /// Why it has stopped, if the kernel would not have the program again.
    refused: Option<String>,
}

impl Stretches {
    /// Takes a program that could be attached, and detaches it.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        program: &str,
        link: BtfTracePointLinkId,
    ) -> Result<Self, WatchError> {
        let found = ebpf.program_mut(program).ok_or_else(|| read(program))?;
        let found: &mut BtfTracePoint = found.try_into().map_err(read)?;
        found.detach(link).map_err(read)?;
        let fd = found.fd().map_err(read)?.try_clone().map_err(read)?;
        let (window, so_far) = ((0, 0), Arc::default());
        Ok(Self { ready: Some(fd), window, so_far, end: None, thread: None })
    }

    /// Lets the program come and go in `window`, in ns of `CLOCK_MONOTONIC`.
    pub(super) fn begin(&mut self, window: (u64, u64)) -> Result<(), WatchError> {
        let Some(fd) = self.ready.take() else {
            return Err(read("what counts was set before"));
        };
        self.window = window;
        let (end, ended) = channel::<()>();
        let so_far = Arc::clone(&self.so_far);
        let pause = move |length| ended.recv_timeout(length) == Err(RecvTimeoutError::Timeout);
        let name = "stretches".to_owned();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || come_and_go(&fd, window, &so_far, pause));
        self.end = Some(end);
        self.thread = Some(thread.map_err(read)?);
        Ok(())
    }

    /// All of the time that has passed, over that with the program.
    pub(super) fn share(&self) -> Result<f64, WatchError> {
        let so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &so_far.refused {
            return Err(WatchError::Refused(why.clone()));
        }
        let until_ns = clock_ns(libc::CLOCK_MONOTONIC).min(self.window.1);
        let passed_ns = until_ns.saturating_sub(self.window.0);
        Ok(if so_far.there_ns == 0 { 1.0 } else { passed_ns as f64 / so_far.there_ns as f64 })
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

/// Sleeps, attaches, sleeps, detaches, until the window is over or `pause` says to end.
fn come_and_go(
    program: &ProgramFd,
    (from_ns, until_ns): (u64, u64),
    so_far: &Mutex<SoFar>,
    pause: impl Fn(Duration) -> bool,
) {
    let now_ns = || clock_ns(libc::CLOCK_MONOTONIC);
    if !pause(Duration::from_nanos(from_ns.saturating_sub(now_ns()))) {
        return;
    }
    while now_ns() < until_ns {
        let link = match attach(program) {
            Ok(link) => link,
            Err(why) => {
                let mut so_far = so_far.lock().unwrap_or_else(PoisonError::into_inner);
                so_far.refused = Some(why.to_string());
                return;
            }
        };
        let begun_ns = now_ns();
        let goes_on = pause(STAY);
        let there_ns = now_ns().min(until_ns).saturating_sub(begun_ns.max(from_ns));
        drop(link);
        so_far.lock().unwrap_or_else(PoisonError::into_inner).there_ns += there_ns;
        if !goes_on || !pause(AWAY) {
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
