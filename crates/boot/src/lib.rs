//! Systems on the machines that run this program's memory manager.
//!
//! The memory manager is generic over machines. Here it is compiled for each, once: nothing in this
//! crate is generic, and programs call the system through an [`Os`].

use mmscale_arch::{CpuId, Machine, Probe};
use mmscale_kernel::{FinalCheck, Kernel, Os};
use mmscale_mm::mm::MmConfig;
use mmscale_sim::{Sim, SimConfig};
use mmscale_system::Body;
use mmscale_threads::{Threads, ThreadsConfig};
use std::rc::Rc;
use std::sync::Arc;

/// Makes the probe of each CPU.
pub type Probes<'a> = &'a mut dyn FnMut(CpuId) -> Box<dyn Probe>;

/// A system that is about to boot.
pub struct Boot {
    /// The configuration of its memory manager.
    pub mm: MmConfig,
    /// How thoroughly the memory manager is checked at the end.
    pub final_check: FinalCheck,
    /// The program that runs as its first thread.
    pub program: Body<Os>,
}

impl Boot {
    /// Creates one that checks everything at the end.
    pub fn checked(mm: &MmConfig, program: impl FnOnce(&Os) + Send + 'static) -> Self {
        Self { mm: mm.clone(), final_check: FinalCheck::Run, program: Box::new(program) }
    }
    /// Boots the kernel. Panics, which ends the run with the message, if the memory manager refuses
    /// its configuration.
    fn kernel<A: Machine>(self) -> Kernel<A> {
        Kernel::boot(&self.mm, self.final_check, self.program)
            .unwrap_or_else(|why| panic!("the memory manager cannot start: {why}"))
    }
}

/// Runs a system on a simulated machine, from boot until the last task returns.
pub fn on_sim(config: SimConfig, probes: Probes<'_>, boot: Boot) -> mmscale_sim::Outcome {
    mmscale_sim::run(config, probes, || Rc::new(boot.kernel::<Sim>()))
}

/// Runs a system on threads of this computer, from boot until the last task returns.
pub fn on_threads(
    config: &ThreadsConfig,
    probes: Probes<'_>,
    boot: Boot,
) -> mmscale_threads::Outcome {
    mmscale_threads::run(config, probes, || Arc::new(boot.kernel::<Threads>()))
}
