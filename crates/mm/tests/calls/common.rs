//! CPUs that call each other, stepped by the tests.

use mmscale_arch::{Callbacks, CpuId, Ipi, TaskEntry};
use mmscale_mm::smp::{Call, CallFunc, CallPolicy, Smp, SmpConfig};
use mmscale_mm::smp::{Here, Reached, Wait};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The calls that each CPU has run, in order.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) ran: RefCell<Vec<(usize, u64)>>,
}

/// CPUs that call each other, and a log of the calls.
pub(crate) struct World {
    pub(crate) smp: Rc<Smp<Stepped>>,
    pub(crate) log: Rc<Log>,
}

struct Owner {
    smp: Rc<Smp<Stepped>>,
    log: Rc<Log>,
}

impl Owner {
    fn run(&self, call: Call) {
        assert_eq!(call.func, CallFunc::FlushTlb);
        self.log.ran.borrow_mut().push((cpu(), call.info[0]));
    }
}

impl Callbacks for Owner {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        self.smp.interrupt(&|call| self.run(call));
    }
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, _: TaskEntry) {}
    fn cpu_dying(&self) -> bool {
        self.smp.cpu_dying()
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

pub(crate) fn cpu() -> usize {
    use mmscale_arch::Cpu as _;
    Stepped::cpu().index()
}

pub(crate) fn test(info: u64) -> Call {
    Call { func: CallFunc::FlushTlb, info: [info, 0] }
}

pub(crate) fn cpus(cpus: &[usize]) -> Vec<CpuId> {
    cpus.iter().map(|&cpu| CpuId::new(cpu)).collect()
}

impl World {
    /// Creates `count` CPUs. A waiting CPU delivers the interrupts.
    pub(crate) fn new(policy: CallPolicy, count: usize) -> Self {
        Self::with(SmpConfig { policy, ..SmpConfig::default() }, count)
    }
    pub(crate) fn with(config: SmpConfig, count: usize) -> Self {
        stepped::boot(count, 1000);
        let world = Self { smp: Rc::new(Smp::new(config)), log: Rc::new(Log::default()) };
        let owner = world.owner();
        stepped::on_relax(move || {
            stepped::deliver_ipis(&owner);
        });
        world
    }
    fn owner(&self) -> Owner {
        Owner { smp: Rc::clone(&self.smp), log: Rc::clone(&self.log) }
    }
    /// Delivers pending interrupts; returns their number.
    pub(crate) fn deliver(&self) -> usize {
        stepped::deliver_ipis(&self.owner())
    }
    pub(crate) fn call(&self, targets: &[usize], info: u64, wait: Wait) -> Reached {
        let run = |call: Call| self.log.ran.borrow_mut().push((cpu(), call.info[0]));
        let targets = cpus(targets);
        self.smp.call_function_many(targets, |_| true, test(info), Here::Run, wait, &run)
    }
    pub(crate) fn ran(&self) -> Vec<(usize, u64)> {
        self.log.ran.take()
    }
}

/// All policies.
pub(crate) const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;

/// A counter, shared by a closure and the test.
pub(crate) fn counter() -> (Rc<Cell<u32>>, Rc<Cell<u32>>) {
    let count = Rc::new(Cell::new(0));
    (Rc::clone(&count), count)
}
