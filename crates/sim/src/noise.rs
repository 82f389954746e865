//! Disturbance from outside and injected faults. They draw from generators of their own, so that
//! turning them on changes nothing else.

use crate::engine::Engine;
use crate::engine::context::with;
use crate::heap::NEVER;
use crate::profile::{Disturbance, Gaps, Lengths};
use crate::record::sections::Waited;
use crate::rng::SplitMix64;

impl Disturbance {
    fn gap_ps(&self, rng: &mut SplitMix64) -> u64 {
        let mean_ps = self.period_ns.saturating_mul(1000);
        match self.gaps {
            Gaps::Around => rng.around(mean_ps),
            Gaps::Random => rng.exponential(mean_ps),
        }
    }
    fn duration_ps(&self, rng: &mut SplitMix64) -> u64 {
        let ns = match self.lengths {
            Lengths::Of(lengths_ns) => lengths_ns[rng.below(lengths_ns.len() as u64) as usize],
            Lengths::Tail { least_ns, most_ns, doubles_1024 } => {
                rng.tail(least_ns, most_ns, doubles_1024)
            }
        };
        ns.saturating_mul(1000)
    }
}

/// Whether the current allocation is to fail: [`Faults::alloc_fail_1024`](crate::Faults).
pub(crate) fn fail_alloc() -> bool {
    with(|engine| {
        let share = engine.faults.alloc_fail_1024;
        !engine.quiet && engine.cpu().noise_rng.chance_1024(share)
    })
}

/// Draws from the running CPU's generator for programs that make choices. The draws do not change
/// those of the engine.
pub fn random_u64() -> u64 {
    with(|engine| engine.cpu().noise_rng.next())
}

impl Engine {
    /// Plans the first disturbances of CPU `at` after `now_ps`.
    pub(crate) fn plan_noise(&mut self, at: usize, now_ps: u64) {
        let (noise, end) = (self.noise, self.limit_ps() + 1);
        let cpu = &mut self.cpus[at];
        let rng = &mut cpu.noise_rng;
        let mut next = |of: Option<Disturbance>| of.map_or(NEVER, |of| now_ps + of.gap_ps(rng));
        cpu.steal_at = next(noise.stolen).min(end);
        cpu.device_at = next(noise.irq_off);
    }
    /// Applies what is due at a checkpoint of the running CPU: stolen time, a foreign interrupt
    /// handler, the end of the run. Returns whether interrupts may be delivered now.
    pub(crate) fn suffer_noise(&mut self) -> bool {
        if self.quiet {
            return false;
        }
        self.count_checkpoint();
        let (noise, end, irq_ps) = (self.noise, self.limit_ps() + 1, self.costs.irq_ps);
        let cpu = self.cpu();
        if cpu.clock >= end {
            self.poll();
            return true;
        }
        if let Some(stolen) = noise.stolen
            && cpu.clock >= cpu.steal_at
        {
            let lost_ps = stolen.duration_ps(&mut cpu.noise_rng);
            cpu.clock += lost_ps;
            cpu.section_lost(Waited::Stolen, lost_ps);
            cpu.steal_at = (cpu.clock + stolen.gap_ps(&mut cpu.noise_rng)).min(end);
            if cpu.logged {
                self.blame_lost(Waited::Stolen, lost_ps);
            }
        }
        let cpu = self.cpu();
        if let Some(device) = noise.irq_off
            && !cpu.irq_off
            && cpu.clock >= cpu.device_at
        {
            let lost_ps = irq_ps + device.duration_ps(&mut cpu.noise_rng);
            cpu.clock += lost_ps;
            cpu.section_lost(Waited::Handler, lost_ps);
            cpu.device_at = cpu.clock + device.gap_ps(&mut cpu.noise_rng);
            if cpu.logged {
                self.blame_lost(Waited::Handler, lost_ps);
            }
        }
        let cpu = self.cpu();
        if cpu.irq_off {
            cpu.stop_at = cpu.steal_at;
        }
        !cpu.irq_off
    }
    /// Draws how much later than usual an interrupt arrives, in ps.
    pub(crate) fn late_ipi(&mut self) -> u64 {
        let faults = self.faults;
        let late = self.cpu().noise_rng.chance_1024(faults.late_ipi_1024);
        if late { faults.late_ipi_ns.saturating_mul(1000) } else { 0 }
    }
    /// Draws whether an interrupt is lost.
    pub(crate) fn lost_ipi(&mut self) -> bool {
        let share = self.faults.lost_ipi_1024;
        self.cpu().noise_rng.chance_1024(share)
    }
    /// Ends the halt of the running CPU. Time that was stolen during the halt is not charged,
    /// except for what is left of it.
    pub(crate) fn noise_while_halted(&mut self) {
        let (noise, end) = (self.noise, self.limit_ps() + 1);
        let cpu = self.cpu();
        if let Some(stolen) = noise.stolen {
            while cpu.steal_at < cpu.clock && cpu.clock < end {
                let over_at = cpu.steal_at + stolen.duration_ps(&mut cpu.noise_rng);
                cpu.clock = cpu.clock.max(over_at);
                cpu.steal_at = (over_at + stolen.gap_ps(&mut cpu.noise_rng)).min(end);
            }
        }
        if let Some(device) = noise.irq_off {
            while cpu.device_at < cpu.clock {
                cpu.device_at += device.gap_ps(&mut cpu.noise_rng);
            }
        }
    }
    /// Draws whether a park returns early without an unpark.
    pub(crate) fn early_park(&mut self) -> bool {
        let share = self.faults.early_park_1024;
        self.cpu().noise_rng.chance_1024(share)
    }
}
