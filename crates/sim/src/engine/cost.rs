//! Costs on the running CPU: operations, lines, atomics, clearing.

use crate::cpu::{Counted, Moved};
use crate::engine::Engine;
use crate::heap::order_of;
use crate::lines::{Fetched, LineState, Usage};
use crate::topology::NO_CPU;
use mmscale_arch::{Access, Line, Op, Order, Pfn};

impl Engine {
    /// Uses `line` on the running CPU; returns the cost, in ps.
    #[inline]
    pub(crate) fn touch(&mut self, line: Line, access: Access) -> u64 {
        let Line::Frame(pfn) = line else {
            let fetched = self.lines.touch(line, self.cur, access, &self.distances);
            let cost = self.scaled(fetched.cost_ps);
            self.note_miss(fetched, cost);
            return cost;
        };
        if self.lines.is_own(pfn.index(), self.cur) {
            return self.scaled(self.distances.own_ps());
        }
        self.touch_frame(pfn, access)
    }
    #[inline(never)]
    fn touch_frame(&mut self, pfn: Pfn, access: Access) -> u64 {
        let line = Line::Frame(pfn);
        let fetched = if access == Access::Peek {
            let from = self.frame_writer_now(pfn);
            Fetched { from, cost_ps: self.distances.transfer_ps(from, self.cur) }
        } else {
            if access == Access::Write {
                self.note_move(pfn);
            }
            self.lines.touch(line, self.cur, access, &self.distances)
        };
        let seen = u64::from(1024_u32.saturating_sub(self.costs.frame_hidden_1024));
        let cost = self.scaled(((fetched.cost_ps * seen) >> 10).max(self.distances.own_ps()));
        self.note_miss(fetched, cost);
        cost
    }
    /// Records the last writer of the frame's line before the running CPU writes to it.
    #[inline]
    fn note_move(&mut self, pfn: Pfn) {
        let before = self.lines.frame_writer(pfn.index());
        if usize::from(before) == self.cur {
            return;
        }
        let floor = self.heap.first_time_ps();
        let cpu = &mut self.cpus[self.cur];
        if cpu.moved.len() == cpu.moved.capacity() {
            // No CPU reads the state before the earliest CPU's time any more.
            cpu.moved.retain(|moved| moved.time_ps >= floor);
        }
        cpu.moved.push(Moved { pfn, time_ps: cpu.clock, before });
    }
    /// Returns the last writer of a frame's line at the running CPU's time. At its turn, everything
    /// that happened before is complete. Later writes of a writer that runs ahead are in its notes.
    /// No third CPU can have used the line in between: it would have obtained the frame at a turn
    /// of its own.
    fn frame_writer_now(&self, pfn: Pfn) -> u16 {
        let writer = self.lines.frame_writer(pfn.index());
        let now = self.cpus[self.cur].order();
        let Some(cpu) = self.cpus.get(usize::from(writer)) else { return writer };
        if cpu.order() <= now {
            return writer;
        }
        let later = |moved: &&Moved| moved.pfn == pfn && order_of(moved.time_ps, cpu.rank) > now;
        cpu.moved.iter().find(later).map_or(writer, |moved| moved.before)
    }
    /// Records a byte or number of the running CPU before a change without a turn.
    #[inline]
    pub(crate) fn note_count(&mut self, name: usize, before: i64) {
        if self.quiet {
            return;
        }
        let floor = self.heap.first_time_ps();
        let cpu = &mut self.cpus[self.cur];
        if cpu.counted.len() == cpu.counted.capacity() {
            // No CPU reads the state before the earliest CPU's time any more.
            cpu.counted.retain(|counted| counted.time_ps >= floor);
        }
        cpu.counted.push(Counted { name, time_ps: cpu.clock, before });
    }
    /// Returns a byte or number of CPU `owner` as of the running CPU's turn; `None` if it has
    /// not changed since.
    pub(crate) fn count_before(&self, owner: usize, name: usize) -> Option<i64> {
        if self.quiet {
            return None;
        }
        let now = self.cpus[self.cur].order();
        let owner = self.cpus.get(owner)?;
        let later = |counted: &&Counted| {
            counted.name == name && order_of(counted.time_ps, owner.rank) > now
        };
        owner.counted.iter().find(later).map(|counted| counted.before)
    }
    /// Uses the line of an atomic and charges the running CPU for it, at its turn.
    #[inline]
    pub(crate) fn use_atomic(&mut self, line: &LineState, usage: Usage) {
        let (own_ps, atomic_ps) = (self.distances.own_ps(), self.costs.atomic_ps);
        let clock = self.cpus[self.cur].clock;
        let cost = match line.take_own(self.cur, usage, clock, own_ps, atomic_ps) {
            Some(cost) => cost,
            None => self.fetch_atomic(line, usage),
        };
        let cost = self.scaled(cost);
        self.cpus[self.cur].clock += cost;
    }
    #[inline(never)]
    fn fetch_atomic(&mut self, line: &LineState, usage: Usage) -> u64 {
        let clock = self.cpus[self.cur].clock;
        let (distances, atomic_ps) = (&self.distances, self.costs.atomic_ps);
        let fetched = line.take(self.cur, usage, clock, distances, atomic_ps);
        self.note_miss(fetched, self.scaled(fetched.cost_ps));
        fetched.cost_ps
    }
    /// Records a line that was not in the running CPU's cache and costs it the next `ps`.
    #[inline]
    fn note_miss(&mut self, fetched: Fetched, ps: u64) {
        let cpu = &self.cpus[self.cur];
        if usize::from(fetched.from) == self.cur {
            return;
        }
        if fetched.from != NO_CPU {
            self.stats.fetched(cpu.path, cpu.clock, ps);
        }
        if cpu.logged {
            self.blame_missed(fetched.from, ps);
        }
    }
    /// Scales `ps` of the running CPU's own work by the factor of the locks that it holds.
    #[inline]
    pub(crate) fn scaled(&self, ps: u64) -> u64 {
        if self.cpus[self.cur].scaled == 0 { ps } else { self.scaled_hold(ps) }
    }
    #[inline(never)]
    fn scaled_hold(&self, ps: u64) -> u64 {
        let factor_1024 = self.hold_scale.map_or(1024, |scale| scale.factor_1024);
        ((u128::from(ps) * u128::from(factor_1024)) >> 10) as u64
    }
    /// Clears a block, at the running CPU's turn. Returns the time, in ps: the work, or the wait
    /// for the node's memory if that is longer.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) -> u64 {
        let pages = self.memory.bytes(order).div_ceil(4096);
        let work_ps = self.op_ps(Op::ClearPage, pages as u32);
        let now_ps = self.cpu().clock;
        self.tables.clear(pfn, order);
        work_ps.max(self.memory.clear(pfn, order, now_ps) - now_ps)
    }
    /// Copies a frame, at the running CPU's turn. Returns the time as for clearing, but every byte
    /// is moved twice.
    pub(crate) fn copy(&mut self, from: Pfn, to: Pfn) -> u64 {
        let pages = self.memory.bytes(Order::ZERO).div_ceil(4096);
        let work_ps = self.op_ps(Op::CopyPage, pages as u32);
        let now_ps = self.cpu().clock;
        work_ps.max(self.memory.copy(from, to, now_ps) - now_ps)
    }
    /// Returns the time of `count` times `op` on the running CPU, jitter included, in ps.
    #[inline]
    pub(crate) fn op_ps(&mut self, op: Op, count: u32) -> u64 {
        let base = self.costs.op_ps[op as usize] * u64::from(count);
        let cpu = &mut self.cpus[self.cur];
        let times_1024 = match op {
            Op::ClearPage | Op::CopyPage => 1024,
            _ => cpu.op_times_1024,
        };
        let factor = (self.jitter.factor_1024(&mut cpu.rng) * times_1024) >> 10;
        // No overflow: a piece of work takes less than 2^53 ps, two and a half hours.
        self.scaled(base.wrapping_mul(factor) >> 10)
    }
}
