//! A whole memory manager on the one-thread machine, driven by its own timers.

use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Cpu as _, CpuId, Machine as _, NodeId, TickEvent, Trace};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_frames::vmstat::NodeItem;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::Step;
use mmscale_stepped::{self as stepped, Stepped};

pub(crate) const SEC: u64 = 1_000_000_000;

/// The machine, and which of its CPUs are idle.
pub(crate) struct Machine {
    pub(crate) mm: Mm<Stepped>,
    pub(crate) cpus: usize,
    pub(crate) idle: Vec<bool>,
}

impl Machine {
    /// Boots with all CPUs busy and no counts.
    pub(crate) fn boot(cpus: usize, hz: u32, tick: TickPolicy) -> Self {
        stepped::boot(cpus, hz);
        let config = MmConfig::new(MemoryMap::single(1 << 18), tick);
        let machine = Self { mm: Mm::new(&config).unwrap(), cpus, idle: vec![false; cpus] };
        machine.mm.start().expect("there is memory to start with");
        for cpu in 0..cpus {
            machine.on(cpu, || stepped::interrupt(|| machine.mm.idle_exit()));
        }
        machine
    }

    /// Runs `f` on `cpu` and returns to the current CPU.
    pub(crate) fn on<R>(&self, cpu: usize, f: impl FnOnce() -> R) -> R {
        let back = Stepped::cpu().index();
        stepped::set_cpu(cpu);
        let result = f();
        stepped::set_cpu(back);
        result
    }

    /// Adds a pending count on `cpu`.
    pub(crate) fn count(&self, cpu: usize) {
        self.on(cpu, || {
            let (off, node) = (IrqGuard::new(), NodeId::new(0));
            self.mm.frames().stats().mod_node(&off, node, NodeItem::FilePages, 1);
        });
    }

    pub(crate) fn go_idle(&mut self, cpu: usize) {
        self.on(cpu, || stepped::interrupt(|| self.mm.idle_enter()));
        self.idle[cpu] = true;
    }

    pub(crate) fn wake(&mut self, cpu: usize) {
        self.on(cpu, || stepped::interrupt(|| self.mm.idle_exit()));
        self.idle[cpu] = false;
    }

    /// Prepares `cpu` for going offline. No task can sleep on this machine, so the worker is
    /// stopped, and returns, before the wait for it.
    pub(crate) fn down_prepare(&self, cpu: usize) {
        self.mm.work().close(CpuId::new(cpu));
        self.work_on(cpu);
        self.mm.cpu_down_prepare(CpuId::new(cpu));
    }

    /// Runs the queued work of `cpu`; returns whether there was any.
    pub(crate) fn work_on(&self, cpu: usize) -> bool {
        self.on(cpu, || {
            let mut ran = false;
            let id = CpuId::new(cpu);
            while self.mm.work().step(id, &mut |item| self.mm.run(item)) == Step::Ran {
                ran = true;
            }
            ran
        })
    }

    /// Advances time to `end_ns`: timers fire, then the workers run. Calls `each` after every
    /// timer, on the timer's CPU.
    pub(crate) fn run_until(&mut self, end_ns: u64, mut each: impl FnMut(&Self, usize)) {
        while let Some((cpu, at_ns)) = stepped::earliest_timer()
            && at_ns <= end_ns
        {
            stepped::set_clock(at_ns.max(Stepped::now_ns()));
            stepped::set_cpu(cpu.index());
            if self.timer(cpu.index()) {
                (0..self.cpus).for_each(|other| {
                    self.work_on(other);
                });
            }
            each(self, cpu.index());
        }
        stepped::set_clock(end_ns.max(Stepped::now_ns()));
    }

    /// Like [`Machine::run_until`], for `cpu` only.
    pub(crate) fn run_one(&self, cpu: usize, end_ns: u64, mut each: impl FnMut(&Self)) {
        while let Some(at_ns) = stepped::timer_of(cpu)
            && at_ns <= end_ns
        {
            stepped::set_clock(at_ns.max(Stepped::now_ns()));
            self.on(cpu, || self.timer(cpu));
            each(self);
        }
    }

    /// Fires the timer of the current CPU, `cpu`. Returns whether work was done.
    fn timer(&self, cpu: usize) -> bool {
        stepped::take_timer();
        let idle = self.idle[cpu];
        stepped::interrupt(|| {
            if idle {
                self.mm.idle_exit();
            }
            self.mm.timer();
        });
        self.ipis();
        let worked = self.work_on(cpu);
        if idle {
            stepped::interrupt(|| self.mm.idle_enter());
        }
        worked
    }

    pub(crate) fn ipis(&self) {
        for (cpu, reason) in stepped::take_ipis() {
            self.on(cpu.index(), || stepped::interrupt(|| self.mm.ipi(reason)));
        }
    }
}

/// The times, in ns, at which the ticks of each CPU started, in a run in which every CPU counts all
/// the time.
pub(crate) fn firings(cpus: usize, hz: u32, tick: TickPolicy, seconds: u64) -> Vec<Vec<u64>> {
    let mut machine = Machine::boot(cpus, hz, tick);
    let mut begun = vec![Vec::new(); cpus];
    stepped::record(true);
    (0..cpus).for_each(|cpu| machine.count(cpu));
    machine.run_until(seconds * SEC, |machine, _| {
        for (cpu, event) in stepped::take_traces() {
            if event == Trace::Tick(TickEvent::Begin) {
                begun[cpu.index()].push(Stepped::now_ns());
                machine.count(cpu.index());
            }
        }
    });
    stepped::assert_quiet();
    begun
}
