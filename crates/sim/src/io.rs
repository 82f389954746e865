//! Requests to the swap device from the running CPU, and their completion interrupts.

use crate::cpu::{Reason, WaitState};
use crate::device::Request;
use crate::engine::Engine;
use mmscale_arch::{CpuId, IoBusy, IoDirection, IoDone, Ipi, Order, PageIo};

impl Engine {
    /// Submits a request of the running CPU to the device, at its turn.
    pub(crate) fn io_submit(&mut self, io: PageIo) -> Result<(), IoBusy> {
        if self.quiet {
            return Ok(());
        }
        let (at, now_ps, share) = (self.cpus.at(), self.cpu().clock, self.faults.io_fail_1024);
        let due = self.device.enqueue(io.direction, now_ps)?;
        let failed = self.cpu().noise_rng.chance_1024(share);
        self.check_use(io.pfn, Order::ZERO);
        let block = io.block;
        let stamp = match io.direction {
            IoDirection::Read => self.device.blocks.get(&block).copied().unwrap_or(0),
            IoDirection::Write if failed => 0,
            IoDirection::Write => {
                let stamp = self.memory.read_stamp(io.pfn);
                self.device.blocks.insert(block, stamp);
                stamp
            }
        };
        self.device.numbered += 1;
        let (key, done) = ((due, self.device.numbered), IoDone { io, failed });
        self.device.requests[at].insert(key, Request { done, stamp });
        self.post(at, Reason::Ipi(Ipi::Block), due);
        Ok(())
    }
    /// Reads or writes a block on the running CPU itself, at its turn. The caller has charged the
    /// cost before.
    pub(crate) fn io_now(&mut self, io: PageIo) -> bool {
        if self.quiet {
            return true;
        }
        let share = self.faults.io_fail_1024;
        if self.cpu().noise_rng.chance_1024(share) {
            return false;
        }
        self.check_use(io.pfn, Order::ZERO);
        match io.direction {
            IoDirection::Read => {
                let stamp = self.device.blocks.get(&io.block).copied().unwrap_or(0);
                self.memory.write_stamp(io.pfn, stamp);
            }
            IoDirection::Write => {
                let stamp = self.memory.read_stamp(io.pfn);
                self.device.blocks.insert(io.block, stamp);
            }
        }
        true
    }
    /// Takes a request that has finished, at the running CPU's turn.
    pub(crate) fn io_done(&mut self) -> Option<IoDone> {
        let now_ps = self.cpu().clock;
        let has = |at: usize| self.device.next_of(at).is_some_and(|due| due <= now_ps);
        let gone = |at: &usize| self.cpus[*at].wait == WaitState::Offline && has(*at);
        let from = if has(self.cpus.at()) {
            self.cpus.at()
        } else if self.online.count() < self.cpus.len() {
            (0..self.cpus.len()).find(gone)?
        } else {
            return None;
        };
        let (_, request) = self.device.requests[from].pop_first()?;
        let io = request.done.io;
        if io.direction == IoDirection::Read && !request.done.failed {
            self.check_use(io.pfn, Order::ZERO);
            self.memory.write_stamp(io.pfn, request.stamp);
        }
        Some(request.done)
    }
    /// Plans the completion interrupt of the running CPU's next request, during that of an earlier
    /// one.
    pub(crate) fn plan_block_interrupt(&mut self) {
        let (at, now_ps) = (self.cpus.at(), self.cpu().clock);
        let mut later = self.device.requests[at].range((now_ps + 1, 0)..);
        if let Some(due) = later.next().map(|(&(due, _), _)| due) {
            self.post(at, Reason::Ipi(Ipi::Block), due);
        }
    }
    /// Returns the number of requests of `cpu`, which is offline, that no CPU has taken.
    pub(crate) fn requests_left(&self, cpu: CpuId) -> usize {
        self.device.requests[cpu.index()].len()
    }
}
