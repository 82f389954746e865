//! The delay that was posted to linux-mm in April 2026: each CPU has a period of its own.

use super::{Upkeep, VmstatRef};
use crate::time::Expiry;
use mmscale_arch::{CpuId, Machine};

impl<A: Machine> Upkeep<A> {
    /// Returns one interval plus the fraction of another that is `cpu`'s share among `cpus` online
    /// CPUs.
    pub(super) fn posted_delay(&self, parts: &VmstatRef<'_, A>, cpu: CpuId, cpus: u64) -> Expiry {
        if cpus <= 1 {
            return self.rounded_interval(parts, cpu);
        }
        let interval = self.interval_jiffies;
        let spread = interval * (cpu.index() as u64 % cpus) / cpus;
        Expiry::Deferrable { jiffies: interval + spread }
    }
}
