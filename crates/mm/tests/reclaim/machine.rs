//! A paged program on a machine with one CPU.

use crate::reclaim::paged::Paged;
use mmscale_arch::{Callbacks, CpuId, Ipi, TaskEntry};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::swap::SwapConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::Step;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

pub(crate) struct Machine(pub(crate) Paged<Stepped>);

impl core::ops::Deref for Machine {
    type Target = Paged<Stepped>;
    fn deref(&self) -> &Paged<Stepped> {
        &self.0
    }
}

impl Machine {
    /// Boots with `frames` frames of memory, `slots` slots of swap, and a program of `pages` pages
    /// in the last of `groups` groups. While a task sleeps, the device completes requests and the
    /// worker runs.
    pub(crate) fn boot(frames: u32, slots: u32, pages: usize, groups: usize) -> Rc<Self> {
        stepped::boot(1, 1000);
        let mut config = MmConfig::new(MemoryMap::single(frames), TickPolicy::Stock);
        (config.lru, config.groups) = (LruPolicy::Stock, groups);
        let swap = SwapConfig { pages: slots, ..SwapConfig::default() };
        let machine = Rc::new(Self(Paged::new(&config, swap, pages)));
        machine.mm.start().expect("there is memory to start with");
        let sleeper = Rc::downgrade(&machine);
        stepped::on_park(move || sleeper.upgrade().expect("it is there").rest());
        machine
    }
    /// Completes device requests and runs the worker, while the only task sleeps.
    pub(crate) fn rest(&self) {
        stepped::finish_ios(usize::MAX);
        stepped::deliver_ipis(self);
        work(&self.mm);
    }
    /// Drains all batches: every page is on its list.
    pub(crate) fn settle(&self) {
        self.memory().drain();
    }
}

fn work(mm: &Mm<Stepped>) {
    while mm.work().step(CpuId::new(0), &mut |item| mm.run(item)) == Step::Ran {}
}

impl Callbacks for Machine {
    fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::Block => self.swap.io_interrupt(self.memory()),
            _ => self.mm.ipi(reason),
        }
    }
    fn timer(&self) {
        self.mm.timer();
    }
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, _: TaskEntry) {}
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}
