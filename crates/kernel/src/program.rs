//! The calls of [`System`].

use crate::Kernel;
use crate::thread::{self, Wait};
use mmscale_mm::arch::{self, Arch, CpuId, HotplugError, Op, Order, Pfn, TaskSpec};
use mmscale_mm::frame::MigrateType;
use mmscale_mm::page_alloc::Gfp;
use mmscale_system::{Body, Errno, Pages, Priority, System, ThreadId, ThreadSpec};

impl<A: Arch> System for Kernel<A> {
    fn cpus(&self) -> usize {
        A::cpus_possible()
    }

    fn clock_ns(&self) -> u64 {
        A::now_ns()
    }

    fn sleep_ns(&self, ns: u64) -> Result<(), Errno> {
        self.running()?;
        A::work(Op::Syscall, 1);
        self.mm.sleep_ns(ns);
        self.running()
    }

    fn compute_ns(&self, ns: u64) -> Result<(), Errno> {
        self.running()?;
        A::user(ns);
        self.running()
    }

    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno> {
        self.running()?;
        let cpu = existing_cpu::<A>(spec.cpu)?;
        let priority = match spec.priority {
            Priority::Fair => arch::Priority::Fair,
            Priority::RealTime(level) => arch::Priority::RealTime(level),
        };
        let thread = self.threads.lock_irqsave().insert(body);
        A::spawn(TaskSpec { cpu, per_cpu: false, priority, entry: thread::entry_of(thread) });
        Ok(thread)
    }

    fn join(&self, thread: ThreadId) -> Result<(), Errno> {
        loop {
            let step = self.threads.lock_irqsave().wait(thread, A::current());
            match step {
                Wait::Over => return Ok(()),
                Wait::Park => A::park(),
                Wait::Invalid => return Err(Errno::Inval),
            }
        }
    }

    fn alloc_pages(&self, order: u8) -> Result<Pages, Errno> {
        self.running()?;
        let order = Order::new(order).ok_or(Errno::Inval)?;
        A::work(Op::Syscall, 1);
        let pfn = self
            .mm
            .frames()
            .alloc_pages(order, MigrateType::Movable, Gfp::KERNEL)
            .map_err(|_| Errno::Nomem)?;
        Ok(Pages { first: pfn.index() as u64, order: order.get() })
    }

    fn free_pages(&self, pages: Pages) {
        let (pfn, order) = block_of(pages);
        A::work(Op::Syscall, 1);
        self.mm.frames().free_pages(pfn, order);
    }

    fn touch_pages(&self, pages: Pages, stamp: u64) -> Result<(), Errno> {
        self.running()?;
        let (first, order) = block_of(pages);
        A::clear_block(first, order);
        (0..order.pages()).for_each(|page| A::write_stamp(first.offset(page), stamp));
        Ok(())
    }

    fn read_stamp(&self, pages: Pages) -> Result<u64, Errno> {
        self.running()?;
        Ok(A::read_stamp(block_of(pages).0))
    }

    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno> {
        self.running()?;
        A::cpu_offline(existing_cpu::<A>(cpu)?).map_err(refused)
    }

    fn cpu_online(&self, cpu: usize) -> Result<(), Errno> {
        self.running()?;
        A::cpu_online(existing_cpu::<A>(cpu)?).map_err(refused)
    }
}

fn refused(_: HotplugError) -> Errno {
    Errno::Inval
}

fn existing_cpu<A: Arch>(cpu: usize) -> Result<CpuId, Errno> {
    if cpu < A::cpus_possible() { Ok(CpuId::new(cpu)) } else { Err(Errno::Inval) }
}

/// The block behind a program's name for it. Panics on an order that was never handed out.
fn block_of(pages: Pages) -> (Pfn, Order) {
    let order = Order::new(pages.order).expect("a block that alloc_pages returned");
    (Pfn::new(pages.first as usize), order)
}
