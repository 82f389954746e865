//! A memory manager with address spaces, whose CPUs are stepped by the tests.

use mmscale_arch::{Cpu as _, CpuId, Machine as _, NodeId, VmaRange, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::{LruAudit, LruPolicy};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{FaultError, MmRef, Space, SpaceAudit};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::Step;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The memory group of all pages of the tests.
pub(crate) const GROUP: GroupId = GroupId::new(1);
pub(crate) const POLICIES: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;
/// Frames of each of the two nodes.
const FRAMES: u32 = 1 << 15;

pub(crate) struct Machine {
    pub(crate) mm: Rc<Mm<Stepped>>,
}

impl Machine {
    /// Boots with two nodes; CPUs alternate between them.
    pub(crate) fn boot(cpus: usize, change: impl FnOnce(&mut MmConfig)) -> Self {
        stepped::boot(cpus, 1000);
        (0..cpus).for_each(|cpu| stepped::set_node(cpu, cpu % 2));
        let mut config = MmConfig::new(MemoryMap::nodes(2, FRAMES), TickPolicy::Stock);
        config.groups = 2;
        change(&mut config);
        let mm = Rc::new(Mm::new(&config).expect("the configuration is sound"));
        mm.start().expect("there is memory to start with");
        let sleeping = Rc::downgrade(&mm);
        stepped::on_park(move || while_parked(&sleeping, cpus));
        let waiting = Rc::downgrade(&mm);
        stepped::on_relax(move || waiting.upgrade().iter().for_each(|mm| interrupt_all(mm)));
        Self { mm }
    }
    pub(crate) fn stock() -> Self {
        Self::boot(1, |_| {})
    }
    pub(crate) fn on(&self) -> MmRef<'_, Stepped> {
        self.mm.mm_ref()
    }
    pub(crate) fn space(&self) -> Arc<Space<Stepped>> {
        Space::new(self.on(), GROUP).expect("there is memory")
    }
    /// Moves the test to `cpu`. The previous CPU goes idle, so that no flush waits for it.
    pub(crate) fn go_to(&self, cpu: usize) {
        if Stepped::cpu().index() != cpu {
            self.mm.tlb().enter_lazy();
            stepped::set_cpu(cpu);
        }
    }
    pub(crate) fn read(&self, space: &Space<Stepped>, at: u64) -> Result<u64, FaultError> {
        space.access(self.on(), Vpn::new(at), MemAccess::Read, Stepped::read_stamp)
    }
    pub(crate) fn write(
        &self,
        space: &Space<Stepped>,
        at: u64,
        stamp: u64,
    ) -> Result<(), FaultError> {
        let write = |pfn| Stepped::write_stamp(pfn, stamp);
        space.access(self.on(), Vpn::new(at), MemAccess::Write, write)
    }
    /// Returns which pages are in memory.
    pub(crate) fn mincore(&self, space: &Space<Stepped>, at: u64, pages: u64) -> Vec<bool> {
        let mut seen = Vec::new();
        space.mincore(self.on(), range(at, pages), |there| seen.push(there)).expect("it is mapped");
        seen
    }
    /// Returns the node of the page's frame.
    pub(crate) fn node_of(&self, space: &Space<Stepped>, at: u64) -> NodeId {
        let frame = |pfn: mmscale_arch::Pfn| NodeId::new(pfn.index() / FRAMES as usize);
        space.access(self.on(), Vpn::new(at), MemAccess::Read, frame).expect("it can be read")
    }
    /// Runs all checks.
    pub(crate) fn check(&self) -> SpaceAudit {
        if let Err(why) = self.mm.memory().verify() {
            panic!("the LRU: {why}");
        }
        let audit = match self.on().verify() {
            Ok(audit) => audit,
            Err(why) => panic!("the address spaces: {why}"),
        };
        let on = self.on();
        if let Err(why) = on.swap.verify(on.memory, audit.swapped.iter().copied()) {
            panic!("swap: {why}");
        }
        audit
    }
    /// Completes the `count` oldest requests of the device.
    pub(crate) fn finish_ios(&self, count: usize) {
        stepped::finish_ios(count);
        interrupt_all(&self.mm);
    }
    /// Checks, after all address spaces have ended, that no page is left and every frame is free.
    pub(crate) fn end(&self) {
        self.finish_ios(usize::MAX);
        assert_eq!(self.check(), SpaceAudit::default());
        self.mm.quiesce();
        assert_eq!(self.mm.memory().verify(), Ok(LruAudit::default()));
        assert_eq!(self.mm.memory().groups.usage(GROUP), 0);
        let audit = self.mm.verify().expect("the frames add up");
        assert_eq!((audit.held, audit.cached), (0, 0));
        assert_eq!(stepped::table_count(), 0, "words of freed tables");
        stepped::assert_quiet();
    }
    pub(crate) fn exit(&self, space: Arc<Space<Stepped>>) {
        space.exit(self.on());
        assert_eq!(Arc::strong_count(&space), 1, "an address space that has ended has a user");
    }
}

/// Runs workers, the device and interrupts while a task sleeps.
fn while_parked(mm: &Weak<Mm<Stepped>>, cpus: usize) {
    let Some(mm) = mm.upgrade() else { return };
    let back = Stepped::cpu().index();
    for cpu in 0..cpus {
        stepped::set_cpu(cpu);
        while mm.work().step(CpuId::new(cpu), &mut |item| mm.run(item)) == Step::Ran {}
    }
    stepped::set_cpu(back);
    stepped::finish_ios(usize::MAX);
    interrupt_all(&mm);
}

/// Delivers pending interrupts.
fn interrupt_all(mm: &Mm<Stepped>) {
    let back = Stepped::cpu().index();
    for (cpu, reason) in stepped::take_ipis() {
        stepped::set_cpu(cpu.index());
        stepped::interrupt(|| mm.ipi(reason));
    }
    stepped::set_cpu(back);
}

pub(crate) fn range(at: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(at), pages).expect("a range of user pages")
}
