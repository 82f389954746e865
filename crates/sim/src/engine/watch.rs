//! Begin and end of sections, and the waits within them: see [`crate::record::sections`].

use crate::cpu::Cpu;
use crate::engine::Engine;
use crate::heap::NEVER;
use crate::record::sections::{CpuSections, Waited};
use crate::rng::Mix64;
use mmscale_arch::{CpuId, LockClass};

impl Cpu {
    /// Begins a section, unless one is open.
    #[inline]
    pub(crate) fn open_section(&mut self) {
        if self.watched && self.section_since == NEVER {
            self.section_since = self.clock;
        }
    }
    /// Ends the open section.
    #[inline]
    pub(crate) fn close_section(&mut self) {
        if self.watched && self.section_since != NEVER {
            self.note_section();
        }
    }
    #[cold]
    #[inline(never)]
    fn note_section(&mut self) {
        let since = std::mem::replace(&mut self.section_since, NEVER);
        let stretch = self.clock - since.max(self.path_since).min(self.clock);
        if let Some(watch) = &mut self.watch {
            watch.spent(self.path, stretch);
            watch.close(since, self.clock);
        }
    }
    /// Charges the open section's time since the last change to the call path that the CPU leaves.
    #[cold]
    #[inline(never)]
    pub(crate) fn section_on_path(&mut self) {
        let since = self.section_since.max(self.path_since);
        if let Some(watch) = &mut self.watch
            && since < self.clock
        {
            watch.spent(self.path, self.clock - since);
        }
    }
    /// Records that the CPU just lost `ps` to a disturbance. A handler is a section by itself if
    /// none is open; stolen time is not.
    pub(crate) fn section_lost(&mut self, what: Waited, ps: u64) {
        if !self.watched {
            return;
        }
        let open = self.section_since != NEVER;
        if !open && what == Waited::Handler {
            self.section_since = self.clock - ps;
        }
        if let Some(watch) = &mut self.watch
            && self.section_since != NEVER
        {
            watch.wait(what, ps);
        }
        if !open {
            self.close_section();
        }
    }
}

impl Engine {
    /// Records that CPU `at` waited `ps` for a lock.
    #[inline]
    pub(crate) fn section_waited(&mut self, at: usize, class: LockClass, ps: u64) {
        let cpu = &mut self.cpus[at];
        if cpu.section_since != NEVER
            && let Some(watch) = &mut cpu.watch
        {
            watch.wait(Waited::Lock(class), ps);
        }
    }
    /// Records that the running CPU waited for a call, longest for `target`.
    pub(crate) fn section_waited_for(&mut self, target: CpuId, ns: u64) {
        let cpu = self.cpus.running_mut();
        if cpu.section_since != NEVER
            && let Some(watch) = &mut cpu.watch
        {
            watch.waited_for(target, ns);
        }
    }
    /// Begins a round of a wait loop on the running CPU.
    #[inline]
    pub(crate) fn loop_begins(&mut self) {
        let cpu = self.cpus.running_mut();
        if let Some(watch) = &mut cpu.watch {
            watch.loop_since = cpu.clock;
            watch.loop_lost = watch.lost_ps();
        }
    }
    /// Ends a round of a wait loop: it counts if all of it was within a section.
    #[inline]
    pub(crate) fn loop_ends(&mut self) {
        let cpu = self.cpus.running_mut();
        if let Some(watch) = &mut cpu.watch
            && cpu.section_since <= watch.loop_since
        {
            let lost_ps = watch.lost_ps() - watch.loop_lost;
            let ps = (cpu.clock - watch.loop_since).saturating_sub(lost_ps);
            watch.looped(cpu.path, ps);
        }
    }
    /// Returns the recorded sections by CPU, and mixes them into the fingerprint.
    pub(crate) fn take_sections(&mut self, mix: &mut Mix64) -> Vec<CpuSections> {
        let stats = &self.stats;
        let watches = self.cpus.iter_mut().enumerate();
        let watches = watches.filter_map(|(at, cpu)| Some((at, cpu.watch.take()?)));
        let all: Vec<_> =
            watches.map(|(at, watch)| watch.into_sections(CpuId::new(at), stats)).collect();
        for cpu in &all {
            let words = cpu.window_max_ns.iter().chain(&cpu.buckets).chain(&cpu.over);
            words.for_each(|&word| mix.word(word));
        }
        all
    }
}
