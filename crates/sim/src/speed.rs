//! The speed of CPUs: the clock of their node, which is lower the more of its cores work, the kind
//! of their core, and the hardware threads of a core, which share it.
//!
//! A CPU's speed is set when it leaves idle and at each of its timer interrupts: a processor, too,
//! changes its clock at intervals of about a millisecond. Both are turns of the CPU, at which all
//! that happened before is complete. So both schedules give each CPU the same speeds.

use crate::cpu::{Cpu, WaitState};
use crate::profile::Clock;

/// How fast a CPU executes recorded instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At `instruction_ns` of the profile.
    Usual,
    /// At `hold_instruction_ns`: the CPU holds a spin lock.
    InHold,
}

/// The number of CPUs that work, by core and node, and what that means for their speed.
pub(crate) struct Speeds {
    smt: usize,
    /// The node of each CPU.
    node: Vec<usize>,
    /// CPUs of each core that are not idle.
    awake: Vec<u8>,
    /// Cores of each node with a CPU that is not idle.
    active: Vec<usize>,
    /// The time of an operation next to that in the profile, by the number of active cores of the
    /// node, in 1/1024.
    by_active_1024: Vec<u32>,
    /// The time of an operation on each CPU next to that on a large core, in 1/1024.
    core_1024: Vec<u32>,
    /// That time while a sibling works, and while all others that do not idle spin.
    work_1024: u32,
    spin_1024: u32,
}

impl Speeds {
    /// Returns the speeds of a machine with CPUs on these nodes, none of which is idle; `None` if
    /// it has one speed.
    pub(crate) fn of(clock: &Clock, smt: usize, node: Vec<usize>) -> Option<Self> {
        let nodes = node.iter().max().map_or(1, |last| last + 1);
        let of_node = |wanted| node.iter().filter(|&&of| of == wanted).count();
        // Nodes are equal, but the last may have fewer CPUs in this run.
        let cores = of_node(0).div_ceil(smt).max(1);
        let by_active_1024: Vec<u32> =
            (0..=cores).map(|active| clock.times_1024(active, cores)).collect();
        let (work_1024, spin_1024) = (clock.smt_work_1024, clock.smt_spin_1024);
        let is_plain = |times: &u32| *times == 1024;
        let is_alone = smt == 1 || [work_1024, spin_1024].iter().all(is_plain);
        let core_1024: Vec<u32> = (0..node.len()).map(|cpu| clock.core_times_1024(cpu)).collect();
        if is_alone && by_active_1024.iter().chain(&core_1024).all(is_plain) {
            return None;
        }
        let (awake, active) = (vec![0; node.len().div_ceil(smt)], vec![0; nodes]);
        let cpus = node.len();
        let mut speeds =
            Self { smt, node, awake, active, by_active_1024, core_1024, work_1024, spin_1024 };
        (0..cpus).for_each(|cpu| speeds.change(cpu, true));
        Some(speeds)
    }
    /// Returns the node of a CPU's core: that of the core's first CPU.
    fn node_of(&self, cpu: usize) -> usize {
        self.node[cpu / self.smt * self.smt]
    }
    /// CPU `cpu` leaves idle (`true`), or goes idle.
    pub(crate) fn change(&mut self, cpu: usize, wakes: bool) {
        let node = self.node_of(cpu);
        let (awake, active) = (&mut self.awake[cpu / self.smt], &mut self.active[node]);
        if wakes {
            *active += usize::from(*awake == 0);
            *awake += 1;
        } else {
            *awake -= 1;
            *active -= usize::from(*awake == 0);
        }
    }
    /// Returns the time of clearing or copying on `cpu` next to that in the profile, in 1/1024. It
    /// does not depend on the clock, but on the kind of the core.
    pub(crate) fn core_times_1024(&self, cpu: usize) -> u32 {
        self.core_1024[cpu]
    }
    /// Returns the time of an operation on `cpu` next to that in the profile, in 1/1024.
    pub(crate) fn times_1024(&self, cpu: usize, cpus: &[Cpu]) -> u32 {
        let active = self.active[self.node_of(cpu)];
        let clock = self.by_active_1024[active.min(self.by_active_1024.len() - 1)];
        let clock = ((u64::from(clock) * u64::from(self.core_1024[cpu])) >> 10) as u32;
        if self.awake[cpu / self.smt] <= 1 {
            return clock;
        }
        let first = cpu / self.smt * self.smt;
        let siblings = cpus.iter().enumerate().skip(first).take(self.smt);
        let works = siblings
            .filter(|(other, _)| *other != cpu)
            .any(|(_, of)| matches!(of.wait, WaitState::No | WaitState::User));
        let shared = if works { self.work_1024 } else { self.spin_1024 };
        ((u64::from(clock) * u64::from(shared)) >> 10) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock {
        reference_mhz: 2000.0,
        one_core_mhz: 4000.0,
        half_cores_mhz: 3000.0,
        all_cores_mhz: 2500.0,
        smt_work_1024: 1536,
        smt_spin_1024: 1126,
        small: (0, 1024),
        middle: (0, 1024),
    };

    #[test]
    fn a_machine_of_one_speed_has_none() {
        assert!(Speeds::of(&Clock::default(), 2, vec![0; 8]).is_none());
        assert!(Speeds::of(&CLOCK, 2, vec![0; 8]).is_some());
        let flat = Clock { smt_work_1024: 1536, ..Clock::default() };
        assert!(
            Speeds::of(&flat, 1, vec![0; 8]).is_none()
                && Speeds::of(&flat, 2, vec![0; 8]).is_some()
        );
    }

    #[test]
    fn a_core_alone_has_the_clock_of_one_core() {
        assert_eq!(CLOCK.times_1024(1, 1), 512);
        assert_eq!([1, 2].map(|active| CLOCK.times_1024(active, 2)), [512, 819]);
    }

    #[test]
    fn small_and_middle_cores_take_longer() {
        let clock = Clock { small: (2, 256), middle: (1, 512), ..Clock::default() };
        let speeds = Speeds::of(&clock, 1, vec![0; 4]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|cpu| speeds.core_times_1024(cpu)), [4096, 4096, 2048, 1024]);
        let cpus: Vec<Cpu> = (0..4).map(|rank| Cpu::new(rank, 1, 0)).collect();
        assert_eq!([0, 2, 3].map(|cpu| speeds.times_1024(cpu, &cpus)), [4096, 2048, 1024]);
    }

    #[test]
    fn the_clock_falls_with_the_cores_that_work() {
        let node: Vec<usize> = (0..16).map(|cpu| cpu / 8).collect();
        let mut speeds = Speeds::of(&CLOCK, 2, node).unwrap();
        // 2.0 of 4.0, 3.0 and 2.5 GHz.
        assert_eq!([1, 2, 4].map(|active| speeds.by_active_1024[active]), [512, 683, 819]);
        assert_eq!((speeds.active[0], speeds.awake[0]), (4, 2));
        (2..8).for_each(|cpu| speeds.change(cpu, false));
        assert_eq!((speeds.active[0], speeds.active[1], speeds.awake[0]), (1, 4, 2));
        speeds.change(1, false);
        assert_eq!((speeds.active[0], speeds.awake[0]), (1, 1));
        speeds.change(0, false);
        assert_eq!((speeds.active[0], speeds.awake[0]), (0, 0));
    }
}
