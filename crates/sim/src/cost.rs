//! What things cost on the running CPU: operations, lines, atomics, clearing.

use crate::engine::Engine;
use crate::lines::{LineState, Usage};
use mmscale_mm::arch::{Access, Line, Op, Order, Pfn};

impl Engine {
    /// The running CPU uses `line`; returns what that costs, in ps.
    #[inline]
    pub(crate) fn touch(&mut self, line: Line, access: Access) -> u64 {
        let mut cost = self.lines.touch(line, self.cur, access, &self.seats);
        if matches!(line, Line::Frame(_)) {
            let seen = u64::from(1024_u32.saturating_sub(self.costs.frame_hidden_1024));
            cost = ((cost * seen) >> 10).max(self.seats.own_ps());
        }
        self.scaled(cost)
    }
    /// Uses the line of an atomic: the cost, on the running CPU, at its turn.
    #[inline]
    pub(crate) fn use_atomic(&mut self, line: &LineState, usage: Usage) {
        let clock = self.cpus[self.cur].clock;
        let cost = line.take(self.cur, usage, clock, &self.seats, self.costs.atomic_ps);
        self.cpus[self.cur].clock += self.scaled(cost);
    }
    /// What `ps` of a CPU's own work take while it holds what it holds.
    #[inline]
    pub(crate) fn scaled(&self, ps: u64) -> u64 {
        match self.hold_scale {
            Some(scale) if self.cpus[self.cur].scaled != 0 => {
                ((u128::from(ps) * u128::from(scale.factor_1024)) >> 10) as u64
            }
            _ => ps,
        }
    }
    /// Clears a block, at the running CPU's turn; returns what that takes, in ps: the work, or the
    /// wait for the node's memory if that is longer.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) -> u64 {
        let pages = self.memory.bytes(order).div_ceil(4096);
        let work_ps = self.op_ps(Op::ClearPage, pages as u32);
        let now_ps = self.cpu().clock;
        work_ps.max(self.memory.clear(pfn, order, now_ps) - now_ps)
    }
    /// What `count` times `op` take on the running CPU, jitter included, in ps.
    #[inline]
    pub(crate) fn op_ps(&mut self, op: Op, count: u32) -> u64 {
        let jitter = u64::from(self.costs.jitter_1024.min(1024));
        let base = self.costs.op_ps[op as usize] * u64::from(count);
        let ps = if jitter == 0 {
            base
        } else {
            let factor = 1024 - jitter + self.cpu().rng.below(2 * jitter + 1);
            // No overflow: a piece of work takes less than 2^53 ps, two and a half hours.
            base.wrapping_mul(factor) >> 10
        };
        self.scaled(ps)
    }
}
