//! Profiles with other costs, derived from a profile.

use super::Profile;
use mmscale_arch::Op;

/// Costs that sensitivity sweeps move together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostGroup {
    /// Straight-line operations.
    Ops,
    /// Moving cache lines.
    Lines,
    /// Atomics, locks and the handoff.
    Locks,
    /// Interrupts, from sending to entry and exit.
    Interrupts,
    /// Switches, wake-ups and the exit from idle.
    Tasks,
    /// Memory bandwidth: the time that bytes take.
    Bandwidth,
    /// The swap device: its latencies, and the time that bytes take.
    Swap,
}

impl CostGroup {
    /// All groups.
    pub const ALL: [Self; 7] = [
        Self::Ops,
        Self::Lines,
        Self::Locks,
        Self::Interrupts,
        Self::Tasks,
        Self::Bandwidth,
        Self::Swap,
    ];
    /// The name in parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::Lines => "lines",
            Self::Locks => "locks",
            Self::Interrupts => "interrupts",
            Self::Tasks => "tasks",
            Self::Bandwidth => "bandwidth",
            Self::Swap => "swap",
        }
    }
}

impl Profile {
    /// Returns the same machine with every cost times `factor`. Jitter stays, because it is
    /// relative, and so does a program's own computation, which is no cost of the machine.
    pub fn scaled_costs(&self, factor: f64) -> Self {
        CostGroup::ALL
            .iter()
            .fold(self.clone(), |profile, &group| profile.scaled_group(group, factor))
    }

    /// Returns the same machine with the costs of one group times `factor`.
    pub fn scaled_group(&self, group: CostGroup, factor: f64) -> Self {
        let mut scaled = self.clone();
        let costs = &mut scaled.costs;
        let line = &mut costs.line;
        let members: Vec<&mut u64> = match group {
            CostGroup::Ops => {
                let recorded = [&mut costs.instruction_ps, &mut costs.hold_instruction_ps];
                costs.op_ps.iter_mut().chain(recorded).collect()
            }
            CostGroup::Lines => vec![
                &mut line.own_ps,
                &mut line.smt_ps,
                &mut line.cluster_ps,
                &mut line.node_ps,
                &mut line.remote_ps,
                &mut line.memory_ps,
            ],
            CostGroup::Locks => vec![
                &mut costs.atomic_ps,
                &mut costs.far_add_ps,
                &mut costs.lock_ps,
                &mut costs.unlock_ps,
                &mut costs.handoff_fixed_ps,
            ],
            CostGroup::Interrupts => {
                vec![
                    &mut costs.ipi_send_ps,
                    &mut costs.ipi_delivery_ps,
                    &mut costs.irq_ps,
                    &mut costs.tlb_broadcast_ps,
                    &mut costs.tlb_serial_ps,
                ]
            }
            CostGroup::Tasks => {
                vec![
                    &mut costs.switch_ps,
                    &mut costs.wake_ps,
                    &mut costs.idle_exit_ps,
                    &mut costs.idle_deep_exit_ps,
                ]
            }
            CostGroup::Bandwidth => {
                let bandwidth = costs.node_bytes_per_us as f64 / factor;
                costs.node_bytes_per_us = (bandwidth.round() as u64).max(1);
                Vec::new()
            }
            CostGroup::Swap => {
                let device = &mut scaled.swap;
                let rate = device.bytes_per_us as f64 / factor;
                device.bytes_per_us = (rate.round() as u64).max(1);
                vec![&mut device.read_ps, &mut device.write_ps]
            }
        };
        members.into_iter().for_each(|cost| *cost = (*cost as f64 * factor).round() as u64);
        scaled
    }

    /// Returns the same machine with the costs of the named operations times `factor`.
    pub fn scaled_ops(&self, ops: &[Op], factor: f64) -> Self {
        let mut scaled = self.clone();
        for &op in ops {
            let cost = &mut scaled.costs.op_ps[op as usize];
            *cost = (*cost as f64 * factor).round() as u64;
        }
        scaled
    }
}
