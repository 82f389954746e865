//! Costs on the running CPU: operations, lines, atomics, clearing.

use crate::cpu::{Counted, Moved};
use crate::engine::Engine;
use crate::heap::order_of;
use crate::lines::{Atomics, Fetched, FrameLine, LineState, Lines, Usage, name_of};
use crate::profile::Costs;
use crate::speed::Pace;
use crate::topology::NO_CPU;
use mmscale_arch::{Access, Line, Op, Order, Pfn};

/// Lines in 4 KiB.
const PAGE_LINES: u64 = 64;
/// Bytes of a page whose clearing costs `clear_page_ns`.
const PAGE_BYTES: u64 = 4096;

impl Engine {
    /// Uses `line` on the running CPU; returns the cost, in ps.
    #[inline]
    pub(crate) fn touch(&mut self, line: Line, access: Access) -> u64 {
        let Line::Frame(pfn) = line else {
            if let Line::Percpu(number) | Line::EachPercpu(number) = line {
                return self.touch_percpu(number, matches!(line, Line::EachPercpu(_)), access);
            }
            let fetched = self.lines.touch(line, self.cpus.at(), access, &self.distances);
            let hit = usize::from(fetched.from) == self.cpus.at();
            let in_work = matches!(line, Line::LruLists(_) | Line::LruSizes(_) | Line::RmapTree(_));
            if hit && in_work {
                return 0;
            }
            let cost = self.scaled(fetched.cost_ps);
            self.note_miss(fetched, name_of(line).number(), cost);
            return cost;
        };
        let (index, at) = (pfn.index(), self.cpus.at());
        let cpu = self.cpus.running_mut();
        let pair = index as u32 / 2;
        let is_in_row = cpu.is_in_row(pair);
        if access != Access::Store && pair != cpu.last_pairs[0] {
            cpu.last_pairs = [pair, cpu.last_pairs[0]];
        }
        if self.lines.is_own(index, at, cpu.cache_age, &self.caches) {
            return self.scaled(self.distances.own_ps());
        }
        self.touch_frame(pfn, access, is_in_row)
    }
    /// Uses the line `number` of the running CPU's copy of per-CPU data, or of `each` CPU's. A loop
    /// over all CPUs does not wait for a line before it asks for the next, as with the lines of
    /// frames in a row.
    #[inline(never)]
    fn touch_percpu(&mut self, number: u32, each: bool, access: Access) -> u64 {
        let (at, cpus) = (self.cpus.at(), self.cpus.len());
        let name = name_of(Line::Percpu(number)).number();
        if !each {
            let fetched = self.percpu.touch((number, at, cpus), at, access, &self.distances);
            if usize::from(fetched.from) == at {
                return 0;
            }
            let cost = self.scaled(fetched.cost_ps);
            self.note_misses(fetched, name, cost, 1);
            return cost;
        }
        let seen = u64::from(1024_u32.saturating_sub(self.costs.frame_hidden_1024));
        let kinds = self.percpu.touch_each((number, cpus), at, access, &self.distances).len();
        let mut sum_ps = 0;
        for kind in 0..kinds {
            let (fetched, count) = self.percpu.found(kind);
            if usize::from(fetched.from) != at {
                let cost = self.scaled((fetched.cost_ps * seen) >> 10);
                self.note_misses(fetched, name, cost, count);
                sum_ps += cost * u64::from(count);
            }
        }
        sum_ps
    }
    /// Uses the line of a frame that is not fresh in the running CPU's cache.
    #[inline(never)]
    fn touch_frame(&mut self, pfn: Pfn, access: Access, is_in_row: bool) -> u64 {
        let (at, index) = (self.cpus.at(), pfn.index());
        let now = self.cpus[at].cache_age;
        let fetched = if access == Access::Peek {
            let line = self.frame_line_now(pfn);
            let is_lost = Lines::is_lost(line, at, now, (&self.caches, &self.distances));
            let from = if is_lost { NO_CPU } else { line.writer() };
            Fetched { from, cost_ps: self.distances.transfer_ps(from, at) }
        } else {
            self.note_move(pfn, access);
            self.lines.touch_frame(index, at, access, now, (&self.caches, &self.distances))
        };
        let cpu = &mut self.cpus[at];
        cpu.brought += u32::from(usize::from(fetched.from) != at);
        let is_hidden = is_in_row || access == Access::Store;
        let hidden = if is_hidden { self.costs.frame_hidden_1024 } else { 0 };
        let seen = u64::from(1024_u32.saturating_sub(hidden));
        let cost = self.scaled(((fetched.cost_ps * seen) >> 10).max(self.distances.own_ps()));
        self.note_miss(fetched, name_of(Line::Frame(pfn)).number(), cost);
        cost
    }
    /// Adds the lines that the running CPU has brought in, and `more`, to those of its cluster, at
    /// its turn.
    #[inline]
    pub(crate) fn settle_caches(&mut self, more: u64) {
        let cluster = self.distances.cluster_of(self.cpus.at());
        let cpu = self.cpus.running_mut();
        let lines = u64::from(std::mem::take(&mut cpu.brought)) + more;
        cpu.cache_age = self.caches.bring(cluster, lines);
    }
    /// Records the line of a frame before the running CPU marks it as its own.
    #[inline]
    fn note_move(&mut self, pfn: Pfn, access: Access) {
        let before = self.lines.frame(pfn.index());
        let is_own = usize::from(before.writer()) == self.cpus.at();
        if !is_own && !access.writes() {
            return;
        }
        let floor = self.heap.first_time_ps();
        let cpu = self.cpus.running_mut();
        if cpu.moved.len() == cpu.moved.capacity() {
            // No CPU reads the state before the earliest CPU's time any more.
            cpu.moved.retain(|moved| moved.time_ps >= floor);
        }
        cpu.moved.push(Moved { pfn, time_ps: cpu.clock, before });
    }
    /// Returns the line of a frame as of the running CPU's time. At its turn, everything that
    /// happened before is complete. Later writes of a writer that runs ahead are in its notes. No
    /// third CPU can have used the line in between: it would have obtained the frame at a turn of
    /// its own.
    fn frame_line_now(&self, pfn: Pfn) -> FrameLine {
        let line = self.lines.frame(pfn.index());
        let now = self.cpus.running().order();
        let Some(cpu) = self.cpus.get(usize::from(line.writer())) else { return line };
        if cpu.order() <= now {
            return line;
        }
        let later = |moved: &&Moved| moved.pfn == pfn && order_of(moved.time_ps, cpu.rank) > now;
        cpu.moved.iter().find(later).map_or(line, |moved| moved.before)
    }
    /// Records a byte or number of the running CPU before a change without a turn.
    #[inline]
    pub(crate) fn note_count(&mut self, name: usize, before: i64) {
        if self.quiet {
            return;
        }
        let floor = self.heap.first_time_ps();
        let cpu = self.cpus.running_mut();
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
        let now = self.cpus.running().order();
        let owner = self.cpus.get(owner)?;
        let later = |counted: &&Counted| {
            counted.name == name && order_of(counted.time_ps, owner.rank) > now
        };
        owner.counted.iter().find(later).map(|counted| counted.before)
    }
    /// Uses the line of an atomic and charges the running CPU for it, at its turn.
    #[inline]
    pub(crate) fn use_atomic(&mut self, line: &LineState, usage: Usage) {
        self.use_atomic_after(line, usage, false);
    }
    /// Reads an atomic, and updates it in the same step if `updates`.
    #[inline]
    pub(crate) fn read_and_update(&mut self, line: &LineState, updates: bool) {
        let joins = self.use_atomic_after(line, Usage::Load, false);
        if updates {
            self.use_atomic_after(line, Usage::Update, joins);
        }
    }
    /// Uses the line of an atomic as [`Self::use_atomic`]; with `joined`, after a read that joined
    /// another CPU's request. Returns whether this one joins one, or has joined.
    #[inline]
    fn use_atomic_after(&mut self, line: &LineState, usage: Usage, joined: bool) -> bool {
        let (own_ps, atomic_ps) = (self.distances.own_ps(), self.costs.atomic_ps);
        let clock = self.cpus.running().clock;
        let (cost, joins) = match line.take_own(self.cpus.at(), usage, clock, own_ps, atomic_ps) {
            Some(cost) => (cost, joined),
            None => self.fetch_atomic(line, usage, joined),
        };
        let cost = self.scaled(cost);
        self.cpus.running_mut().clock += cost;
        joins
    }
    #[inline(never)]
    fn fetch_atomic(&mut self, line: &LineState, usage: Usage, joined: bool) -> (u64, bool) {
        let (fetched, joins) = self.take_atomic(line, usage, joined);
        self.note_miss(fetched, line.name(), self.scaled(fetched.cost_ps));
        (fetched.cost_ps, joins)
    }
    /// Brings the line of an atomic to the running CPU. Returns whether another CPU of its cluster
    /// waits for it already.
    fn take_atomic(&mut self, line: &LineState, usage: Usage, joined: bool) -> (Fetched, bool) {
        let (at, clock) = (self.cpus.at(), self.cpus.running().clock);
        let Costs { atomic_ps, far_add_ps, .. } = self.costs;
        let distances = &self.distances;
        let Some(visits) = &mut self.visits else {
            let atomics = Atomics { atomic_ps, far_add_ps, joins: false };
            return (line.take(at, usage, clock, distances, atomics), false);
        };
        let joins = joined || visits.joins(line, at, clock, distances);
        let fetched =
            line.take(at, usage, clock, distances, Atomics { atomic_ps, far_add_ps, joins });
        let reads = matches!(usage, Usage::Load | Usage::LoadUncharged);
        if !reads && !joins {
            visits.comes(line, at, clock + fetched.cost_ps, distances);
        }
        (fetched, joins)
    }
    /// Records a line, by the number of its name, that was not in the running CPU's cache and costs
    /// it the next `ps`.
    #[inline]
    fn note_miss(&mut self, fetched: Fetched, name: usize, ps: u64) {
        self.note_misses(fetched, name, ps, 1);
    }
    /// Records `count` such lines, each of which costs `ps`.
    #[inline]
    fn note_misses(&mut self, fetched: Fetched, name: usize, ps: u64, count: u32) {
        let cpu = self.cpus.running();
        if usize::from(fetched.from) == self.cpus.at() {
            return;
        }
        let logged = cpu.logged;
        if fetched.from != NO_CPU {
            self.stats.fetched(cpu.path, name, cpu.clock, (ps, count));
            self.cpu().note_fetched((ps, count));
        }
        if logged {
            (0..count).for_each(|_| self.blame_missed(fetched.from, ps));
        }
    }
    /// Scales `ps` of the running CPU's own work by the factor of the locks that it holds.
    #[inline]
    pub(crate) fn scaled(&self, ps: u64) -> u64 {
        if self.cpus.running().scaled == 0 { ps } else { self.scaled_hold(ps) }
    }
    #[inline(never)]
    fn scaled_hold(&self, ps: u64) -> u64 {
        let factor_1024 = self.hold_scale.map_or(1024, |scale| scale.factor_1024);
        ((u128::from(ps) * u128::from(factor_1024)) >> 10) as u64
    }
    /// Clears a block, at the running CPU's turn. Returns the time, in ps: the work, or the wait
    /// for the node's memory if that is longer.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) -> u64 {
        let pages = self.memory.bytes(order).div_ceil(PAGE_BYTES);
        let work_ps = self.op_ps(Op::ClearPage, pages as u32);
        let now_ps = self.cpu().clock;
        self.tables.clear(pfn, order);
        self.settle_caches(PAGE_LINES * pages);
        work_ps.max(self.memory.clear(pfn, order, now_ps) - now_ps)
    }
    /// Copies a frame, at the running CPU's turn. Returns the time as for clearing, but every byte
    /// is moved twice.
    pub(crate) fn copy(&mut self, from: Pfn, to: Pfn) -> u64 {
        let pages = self.memory.bytes(Order::ZERO).div_ceil(PAGE_BYTES);
        let work_ps = self.op_ps(Op::CopyPage, pages as u32);
        let now_ps = self.cpu().clock;
        self.settle_caches(2 * PAGE_LINES * pages);
        work_ps.max(self.memory.copy(from, to, now_ps) - now_ps)
    }
    /// Clears bytes that are of no frame, or copies them, as [`Self::clear`] does. Fewer than a
    /// page stay in the CPU's cache.
    pub(crate) fn move_bytes(&mut self, op: Op, bytes: u64) -> u64 {
        let work_ps = self.op_ps(op, 1) * bytes / PAGE_BYTES;
        if bytes < PAGE_BYTES {
            return work_ps;
        }
        let (node, now_ps) = (self.distances.node_of(self.cpus.at()), self.cpu().clock);
        self.settle_caches(PAGE_LINES * bytes / PAGE_BYTES);
        let there_ps = match op {
            Op::CopyPage => self.memory.copy_on(node, bytes, now_ps),
            _ => self.memory.clear_on(node, bytes, now_ps),
        };
        work_ps.max(there_ps - now_ps)
    }
    /// Returns the time of `count` times `op` on the running CPU, jitter included, in ps.
    #[inline]
    pub(crate) fn op_ps(&mut self, op: Op, count: u32) -> u64 {
        let base = self.costs.op_ps[op as usize] * u64::from(count);
        let cpu = self.cpus.running();
        let times_1024 = match op {
            Op::ClearPage | Op::CopyPage => u64::from(cpu.page_times_1024),
            _ => u64::from(cpu.op_times_1024),
        };
        self.jittered(base, times_1024)
    }
    /// Returns the time of `count` instructions on the running CPU, jitter included, in ps.
    pub(crate) fn instructions_ps(&mut self, count: u32, pace: Pace) -> u64 {
        let each_ps = match pace {
            Pace::Usual => self.costs.instruction_ps,
            Pace::InHold => self.costs.hold_instruction_ps,
        };
        let times_1024 = u64::from(self.cpus.running().op_times_1024);
        self.jittered(each_ps * u64::from(count), times_1024)
    }
    /// Uses the line of an atomic for a store, at the running CPU's turn; charges nothing. Returns
    /// the time at which the CPU has the line, in ps.
    pub(crate) fn store_later(&mut self, line: &LineState) -> u64 {
        let (at, clock) = (self.cpus.at(), self.cpus.running().clock);
        let (usage, atomic_ps) = (Usage::StoreUncharged, self.costs.atomic_ps);
        let own = line.take_own(at, usage, clock, self.distances.own_ps(), atomic_ps);
        clock + own.unwrap_or_else(|| self.take_atomic(line, usage, false).0.cost_ps)
    }
    /// Returns `base` ps of the running CPU's work, which takes `times_1024` times as long on it,
    /// with jitter.
    #[inline]
    fn jittered(&mut self, base: u64, times_1024: u64) -> u64 {
        let cpu = self.cpus.running_mut();
        let factor = (self.jitter.factor_1024(&mut cpu.rng) * times_1024) >> 10;
        // No overflow: a piece of work takes less than 2^53 ps, two and a half hours.
        self.scaled(base.wrapping_mul(factor) >> 10)
    }
}
