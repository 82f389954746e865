//! Callbacks of the machine. All go to the memory manager, except the start of program threads.

use crate::Kernel;
use mmscale_arch::{Callbacks, CpuId, Func, Ipi, Machine, Span, TaskEntry};

impl<A: Machine> Callbacks for Kernel<A> {
    fn ipi(&self, reason: Ipi) {
        self.mm.ipi(reason);
    }
    fn timer(&self) {
        self.mm.timer();
    }
    fn idle_enter(&self) {
        self.mm.idle_enter();
    }
    fn idle_exit(&self) {
        self.mm.idle_exit();
    }
    fn context_switch(&self) {
        self.mm.context_switch();
    }
    fn task(&self, entry: TaskEntry) {
        if !self.mm.task(entry) {
            let _span = Span::<A>::enter(Func::Program);
            self.run_thread(entry);
        }
    }
    fn cpu_dying(&self) -> bool {
        self.mm.cpu_dying()
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.mm.cpu_down_prepare(cpu);
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.mm.cpu_dead(cpu);
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.mm.cpu_online(cpu);
    }
}
