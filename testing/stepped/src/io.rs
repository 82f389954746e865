//! Requests to the swap device, which finish only when the test asks for it.

use crate::device::Device;
use crate::machine::{cpu, expect, here, with};
use mmscale_arch::{CpuId, IoBusy, IoDirection, IoDone, Ipi, PageIo};

fn device<R>(f: impl FnOnce(&mut Device) -> R) -> R {
    with(|m| f(&mut m.device.borrow_mut()))
}

pub(crate) fn submit(io: PageIo) -> Result<(), IoBusy> {
    expect(here(|cpu| cpu.preempt > 0), "a request with preemption on");
    device(|device| {
        if device.queue.len() >= device.depth {
            return Err(IoBusy);
        }
        device.queue.push_back((cpu(), io));
        Ok(())
    })
}

pub(crate) fn done() -> Option<IoDone> {
    let mine = cpu();
    let online: Vec<bool> = with(|m| m.cpus.borrow().iter().map(|cpu| cpu.online).collect());
    device(|device| {
        let takes = |of: CpuId| of == mine || !online[of.index()];
        let at = device.finished.iter().position(|&(of, _)| takes(of))?;
        Some(device.finished.remove(at).1)
    })
}

/// Finishes the oldest `count` requests, or as many as there are; returns how many. Their CPUs are
/// interrupted if they are online.
pub fn finish_ios(count: usize) -> usize {
    let taken: Vec<(CpuId, PageIo)> = device(|device| {
        let count = count.min(device.queue.len());
        device.queue.drain(..count).collect()
    });
    for &(of, io) in &taken {
        let failed = !now(io);
        device(|device| device.finished.push((of, IoDone { io, failed })));
        with(|m| {
            if m.cpus.borrow()[of.index()].online {
                m.ipis.borrow_mut().push_back((of, Ipi::Block));
            }
        });
    }
    taken.len()
}

/// Reads or writes immediately, unless it is to fail.
pub(crate) fn now(io: PageIo) -> bool {
    let failed = device(|device| {
        let failed = device.failures > 0;
        device.failures = device.failures.saturating_sub(1);
        failed
    });
    if !failed {
        transfer(io);
    }
    !failed
}

fn transfer(io: PageIo) {
    with(|m| {
        let (mut stamps, mut device) = (m.stamps.borrow_mut(), m.device.borrow_mut());
        match io.direction {
            IoDirection::Write => {
                let stamp = stamps.get(&io.pfn).copied().unwrap_or(0);
                device.blocks.insert(io.block, stamp);
            }
            IoDirection::Read => {
                let stamp = device.blocks.get(&io.block).copied().unwrap_or(0);
                stamps.insert(io.pfn, stamp);
            }
        }
    });
}

/// Makes the next `count` requests to finish fail.
pub fn fail_ios(count: u32) {
    device(|device| device.failures = count);
}

/// Sets the number of unfinished requests that the device accepts; not reset by `boot`.
pub fn set_io_depth(depth: usize) {
    device(|device| device.depth = depth);
}

/// Returns the requests that have not finished, oldest first.
pub fn ios_in_flight() -> Vec<PageIo> {
    device(|device| device.queue.iter().map(|&(_, io)| io).collect())
}
