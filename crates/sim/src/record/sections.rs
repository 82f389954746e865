//! Sections: periods in which a CPU can run no other task, because preemption or interrupts are
//! off, or because it is in an interrupt. The kernel's preemptirqsoff tracer measures the same.
//!
//! A section begins when the first of the three begins and ends when the last one ends. Idling is
//! no section, from the halt until the wake-up. Time that is stolen from a CPU counts if it was in
//! a section, and is invisible otherwise, as it is to a kernel. Nothing is recorded unless a run
//! asks for it ([`crate::SimConfig::sections`]).

use crate::record::stats::{CLASSES, Stats};
use mmscale_arch::{CpuId, LockClass};

/// Consecutive windows; for each of them every CPU reports its longest section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The begin of the first window, in ns of virtual time.
    pub from_ns: u64,
    /// The length of each window, in ns; not 0.
    pub window_ns: u64,
    /// The number of windows.
    pub count: usize,
}

/// Buckets of the histogram: lengths of up to 2^40 ns.
pub const SECTION_BUCKETS: usize = 40;
/// Sections longer than these are counted, in ns.
pub const SECTION_LIMITS_NS: [u64; 3] = [1_000_000, 10_000_000, 50_000_000];
/// The number of longest sections kept for each CPU.
const LONGEST_KEPT: usize = 4;
/// Call paths that are recorded for one section, to find the one with most of its time; further
/// ones are left out.
const PATHS: usize = 24;

/// Cause of a wait in a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Waited {
    /// A spin lock.
    Lock(LockClass),
    /// Other CPUs, in a loop of [`mmscale_arch::Cpu::relax`].
    Loop,
    /// The hypervisor or firmware that stole the time: [`crate::Noise::stolen`].
    Stolen,
    /// A foreign interrupt handler on the CPU: [`crate::Noise::irq_off`].
    Handler,
}

impl Waited {
    const COUNT: usize = CLASSES + 3;

    const fn slot(self) -> usize {
        match self {
            Self::Lock(class) => class as usize,
            Self::Loop => CLASSES,
            Self::Stolen => CLASSES + 1,
            Self::Handler => CLASSES + 2,
        }
    }
    const fn of_slot(slot: usize) -> Self {
        match slot {
            CLASSES => Self::Loop,
            slot if slot == CLASSES + 1 => Self::Stolen,
            slot if slot == CLASSES + 2 => Self::Handler,
            slot => Self::Lock(LockClass::ALL[slot]),
        }
    }
}

/// One section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// The CPU.
    pub cpu: CpuId,
    /// Its begin, in ns of virtual time.
    pub begin_ns: u64,
    /// Its length, in ns.
    pub ns: u64,
    /// The call path with most of its time, outermost first.
    pub path: Vec<String>,
    /// Waits by cause, with their total time in ns, longest first. The rest of the section is work.
    pub waits: Vec<(Waited, u64)>,
    /// The CPU for which a call waited longest, as far as tracepoints report it.
    pub target: Option<CpuId>,
}

/// Waits in loops within sections, by call path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopRow {
    /// The call path of the loop, outermost first.
    pub path: Vec<String>,
    /// Sections with such a wait.
    pub sections: u64,
    /// The waits of one section are added up. Their sum over all sections, in ns.
    pub total_ns: u64,
    /// The longest sum of one section, in ns.
    pub max_ns: u64,
    /// Sections whose sum was above each of [`SECTION_LIMITS_NS`].
    pub over: [u64; SECTION_LIMITS_NS.len()],
}

/// The sections of one CPU that ended within the windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuSections {
    /// The longest section that ended in each window, in ns.
    pub window_max_ns: Vec<u64>,
    /// Sections of `2^n` ns or more and less than twice that, by n.
    pub buckets: [u64; SECTION_BUCKETS],
    /// Sections longer than each of [`SECTION_LIMITS_NS`].
    pub over: [u64; SECTION_LIMITS_NS.len()],
    /// The longest ones, longest first.
    pub longest: Vec<Section>,
    /// Waits in loops, by path.
    pub loops: Vec<LoopRow>,
}

/// A recorded section, with the number of its call path.
struct LongSection {
    begin_ps: u64,
    ps: u64,
    path: u32,
    waits: Vec<(Waited, u64)>,
    target: Option<CpuId>,
}

#[derive(Clone, Copy, Default)]
struct LoopSum {
    path: u32,
    sections: u64,
    total_ps: u64,
    max_ps: u64,
    over: [u64; SECTION_LIMITS_NS.len()],
}

/// Section statistics of one CPU.
pub(crate) struct SectionStats {
    from_ps: u64,
    window_ps: u64,
    window_max_ps: Vec<u64>,
    buckets: [u64; SECTION_BUCKETS],
    over: [u64; SECTION_LIMITS_NS.len()],
    longest: Vec<LongSection>,
    loops: Vec<LoopSum>,
    /// The open section: its waits, its call paths, its loops.
    waits_ps: [u64; Waited::COUNT],
    waited: bool,
    /// The longest wait of a call, and the CPU that it waited for.
    target: Option<(u64, CpuId)>,
    paths: Vec<(u32, u64)>,
    looped: Vec<(u32, u64)>,
    /// The begin of a loop's current round, and the time lost to disturbance before that.
    pub(crate) loop_since: u64,
    pub(crate) loop_lost: u64,
}

/// Counts `ns` under each limit that it exceeds.
fn count_over(over: &mut [u64; SECTION_LIMITS_NS.len()], ns: u64) {
    for (count, limit) in over.iter_mut().zip(SECTION_LIMITS_NS) {
        *count += u64::from(ns > limit);
    }
}

impl SectionStats {
    pub(crate) fn new(windows: Windows) -> Self {
        Self {
            from_ps: windows.from_ns.saturating_mul(1000),
            window_ps: windows.window_ns.saturating_mul(1000).max(1),
            window_max_ps: vec![0; windows.count],
            buckets: [0; SECTION_BUCKETS],
            over: [0; SECTION_LIMITS_NS.len()],
            target: None,
            longest: Vec::new(),
            loops: Vec::new(),
            waits_ps: [0; Waited::COUNT],
            waited: false,
            paths: Vec::with_capacity(PATHS),
            looped: Vec::new(),
            loop_since: 0,
            loop_lost: 0,
        }
    }
    /// Adds a wait to the open section.
    pub(crate) fn wait(&mut self, what: Waited, ps: u64) {
        self.waits_ps[what.slot()] += ps;
        self.waited = true;
    }
    pub(crate) fn lost_ps(&self) -> u64 {
        self.waits_ps[Waited::Stolen.slot()] + self.waits_ps[Waited::Handler.slot()]
    }
    /// Adds `ps` on `path` to the open section.
    pub(crate) fn spent(&mut self, path: u32, ps: u64) {
        let full = self.paths.len() == PATHS;
        match self.paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, sum)) => *sum += ps,
            None if full => {}
            None => self.paths.push((path, ps)),
        }
    }
    /// Adds a wait in a loop on `path` to the open section.
    pub(crate) fn looped(&mut self, path: u32, ps: u64) {
        self.wait(Waited::Loop, ps);
        match self.looped.iter_mut().find(|(known, _)| *known == path) {
            Some((_, sum)) => *sum += ps,
            None => self.looped.push((path, ps)),
        }
    }
    /// Records that a call of the open section waited `ns` for `target`.
    pub(crate) fn waited_for(&mut self, target: CpuId, ns: u64) {
        if self.target.is_none_or(|(longest, _)| longest < ns) {
            self.target = Some((ns, target));
        }
    }
    /// Ends the open section.
    pub(crate) fn close(&mut self, begin_ps: u64, end_ps: u64) {
        let window = end_ps.checked_sub(self.from_ps).map(|ps| ps / self.window_ps);
        let window = window.map_or(usize::MAX, |nth| nth as usize);
        if window < self.window_max_ps.len() {
            self.note(begin_ps, end_ps - begin_ps, window);
        }
        self.paths.clear();
        self.looped.clear();
        if std::mem::take(&mut self.waited) {
            self.waits_ps = [0; Waited::COUNT];
            self.target = None;
        }
    }
    fn note(&mut self, begin_ps: u64, ps: u64, window: usize) {
        let max = &mut self.window_max_ps[window];
        *max = (*max).max(ps);
        let ns = ps / 1000;
        let bucket = ns.max(1).ilog2() as usize;
        self.buckets[bucket.min(SECTION_BUCKETS - 1)] += 1;
        count_over(&mut self.over, ns);
        for &(path, ps) in &self.looped {
            let known = self.loops.iter().position(|sum| sum.path == path);
            let at = known.unwrap_or_else(|| {
                self.loops.push(LoopSum { path, ..LoopSum::default() });
                self.loops.len() - 1
            });
            let sum = &mut self.loops[at];
            sum.sections += 1;
            sum.total_ps += ps;
            sum.max_ps = sum.max_ps.max(ps);
            count_over(&mut sum.over, ps / 1000);
        }
        let place = self.longest.partition_point(|kept| kept.ps >= ps);
        if place < LONGEST_KEPT {
            self.keep(place, begin_ps, ps);
        }
    }
    #[cold]
    fn keep(&mut self, place: usize, begin_ps: u64, ps: u64) {
        let path = self.paths.iter().max_by_key(|(path, ps)| (*ps, std::cmp::Reverse(*path)));
        let mut waits: Vec<_> =
            self.waits_ps.iter().enumerate().filter(|(_, ps)| **ps > 0).collect();
        waits.sort_by_key(|&(slot, ps)| (std::cmp::Reverse(*ps), slot));
        let waits = waits.into_iter().map(|(slot, ps)| (Waited::of_slot(slot), *ps)).collect();
        let path = path.map_or(crate::record::stats::ROOT_PATH, |(path, _)| *path);
        let target = self.target.map(|(_, target)| target);
        self.longest.insert(place, LongSection { begin_ps, ps, path, waits, target });
        self.longest.truncate(LONGEST_KEPT);
    }
    pub(crate) fn into_sections(self, cpu: CpuId, stats: &Stats) -> CpuSections {
        let section = |kept: LongSection| Section {
            cpu,
            begin_ns: kept.begin_ps / 1000,
            ns: kept.ps / 1000,
            path: stats.names(kept.path),
            waits: kept.waits.into_iter().map(|(what, ps)| (what, ps / 1000)).collect(),
            target: kept.target,
        };
        let row = |sum: LoopSum| LoopRow {
            path: stats.names(sum.path),
            sections: sum.sections,
            total_ns: sum.total_ps / 1000,
            max_ns: sum.max_ps / 1000,
            over: sum.over,
        };
        let mut loops: Vec<_> = self.loops.into_iter().map(row).collect();
        loops.sort_by(|a, b| a.path.cmp(&b.path));
        CpuSections {
            window_max_ns: self.window_max_ps.into_iter().map(|ps| ps / 1000).collect(),
            buckets: self.buckets,
            over: self.over,
            longest: self.longest.into_iter().map(section).collect(),
            loops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_slot_of_its_own() {
        for slot in 0..Waited::COUNT {
            assert_eq!(Waited::of_slot(slot).slot(), slot);
        }
    }

    #[test]
    fn a_section_counts_in_the_window_in_which_it_ends() {
        let mut watch = SectionStats::new(Windows { from_ns: 100, window_ns: 10, count: 3 });
        // Ends before the windows, in the first, in the last, after them; in ps.
        for (begin, end) in [(1, 99), (90, 101), (129, 130), (118, 129), (125, 129), (0, 131)] {
            watch.wait(Waited::Loop, 5);
            watch.spent(7, 1);
            watch.close(begin * 1000, end * 1000);
        }
        assert_eq!(watch.window_max_ps, [11_000, 0, 11_000]);
        assert_eq!(watch.buckets.iter().sum::<u64>(), 3);
        assert_eq!((watch.buckets[3], watch.buckets[2]), (2, 1));
        assert_eq!(
            watch.longest.iter().map(|kept| kept.ps).collect::<Vec<_>>(),
            [11_000, 11_000, 4_000]
        );
        assert!(watch.longest.iter().all(|kept| kept.waits == [(Waited::Loop, 5)]));
        assert_eq!(watch.over, [0; 3]);
    }
}
