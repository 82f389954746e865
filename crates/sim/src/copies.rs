//! The lines of per-CPU data: each has a copy for each CPU.
//!
//! A loop over all CPUs uses all copies, and leaves them in one state unless CPUs have used their
//! own copies since the last loop that wrote. So a line has the state of all its copies, and those
//! of single ones: a loop costs the host as much on 4096 CPUs as on 8.

use crate::lines::{Fetched, Users, take};
use crate::topology::Distances;
use mmscale_arch::Access;

/// With more copies than this in states of their own, a line has a state for each CPU.
const FEW: usize = 16;

/// The copies of one line.
#[derive(Clone, Default)]
struct Copies {
    /// The state of each copy that has none of its own.
    rest: Users,
    /// States of single copies, by CPU.
    few: Vec<(u16, Users)>,
    /// If there are more than [`FEW`] others: the copies of all CPUs.
    all: Box<[Users]>,
}

impl Copies {
    /// The state of the copy of CPU `of`, one of `cpus`.
    fn of(&mut self, of: usize, cpus: usize) -> &mut Users {
        if self.all.is_empty() && self.few.len() > FEW {
            self.all = vec![self.rest; cpus].into();
            self.few.drain(..).for_each(|(of, users)| self.all[usize::from(of)] = users);
        }
        if !self.all.is_empty() {
            return &mut self.all[of];
        }
        let at = self.few.iter().position(|&(other, _)| usize::from(other) == of);
        let at = at.unwrap_or_else(|| {
            self.few.push((of as u16, self.rest));
            self.few.len() - 1
        });
        &mut self.few[at].1
    }
}

/// All lines of per-CPU data, by number.
#[derive(Default)]
pub(crate) struct PercpuLines {
    lines: Vec<Copies>,
    /// Results of the last loop; kept for its memory.
    found: Vec<(Fetched, u32)>,
}

impl PercpuLines {
    fn line(&mut self, number: u32) -> &mut Copies {
        let index = number as usize;
        if index >= self.lines.len() {
            self.lines.resize_with(index + 1, Copies::default);
        }
        &mut self.lines[index]
    }
    /// Uses the copy of CPU `of`, one of `cpus`, of the line `number`, on CPU `at`.
    pub(crate) fn touch(
        &mut self,
        (number, of, cpus): (u32, usize, usize),
        at: usize,
        access: Access,
        distances: &Distances,
    ) -> Fetched {
        take(self.line(number).of(of, cpus), at, access, distances)
    }
    /// Returns the nth result of the last loop.
    pub(crate) fn found(&self, nth: usize) -> (Fetched, u32) {
        self.found[nth]
    }
    /// Uses the copies of all `cpus` CPUs of a line, on CPU `at`. Returns where they came
    /// from, and how many from each place, in any order.
    pub(crate) fn touch_each(
        &mut self,
        (number, cpus): (u32, usize),
        at: usize,
        access: Access,
        distances: &Distances,
    ) -> &[(Fetched, u32)] {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let line = self.line(number);
        let own = line.few.iter_mut().map(|(_, users)| users).chain(line.all.iter_mut());
        let mut with_own = 0;
        for users in own {
            found.push((take(users, at, access, distances), 1));
            with_own += 1;
        }
        let fetched = take(&mut line.rest, at, access, distances);
        if with_own < cpus {
            found.push((fetched, (cpus - with_own) as u32));
        }
        if access.writes() {
            // A write leaves every copy in one state, whatever it was before.
            line.few.clear();
            line.all = Box::default();
        }
        self.found = found;
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{LineCosts, Topology};
    use crate::rng::SplitMix64;

    fn distances(cpus: usize) -> Distances {
        let (own_ps, smt_ps, cluster_ps) = (1, 2, 3);
        let line = LineCosts { own_ps, smt_ps, cluster_ps, node_ps: 4, remote_ps: 5, memory_ps: 6 };
        Distances::new(&Topology { cpus: 64, smt: 2, cluster: 8, nodes: 2 }, cpus, line)
    }

    /// The simple version: a state for each copy.
    #[test]
    fn loops_and_single_uses_cost_what_they_cost_with_a_state_for_each_copy() {
        let mut rng = SplitMix64::new(7);
        for cpus in [1, 4, FEW, FEW + 1, 18, 64] {
            [1, 3, cpus].iter().for_each(|&users| agree(cpus, users.min(cpus) as u64, &mut rng));
        }
    }

    fn agree(cpus: usize, users: u64, rng: &mut SplitMix64) {
        let distances = distances(cpus);
        let (mut lines, mut simple) = (PercpuLines::default(), vec![vec![0; cpus]; 2]);
        for _ in 0..5000 {
            let (number, at) = (rng.below(2) as u32, rng.below(users) as usize);
            let access = [Access::Read, Access::Write, Access::Store][rng.below(3) as usize];
            let copies = &mut simple[number as usize];
            if rng.below(20) > 0 {
                let own = take(&mut copies[at], at, access, &distances);
                let fetched = lines.touch((number, at, cpus), at, access, &distances);
                assert_eq!(fetched, own);
                continue;
            }
            let mut wanted: Vec<_> =
                copies.iter_mut().map(|users| take(users, at, access, &distances)).collect();
            let found = lines.touch_each((number, cpus), at, access, &distances);
            let each = |&(fetched, count): &(Fetched, u32)| vec![fetched; count as usize];
            let mut found: Vec<_> = found.iter().flat_map(each).collect();
            let key = |fetched: &Fetched| (fetched.from, fetched.cost_ps);
            wanted.sort_by_key(key);
            found.sort_by_key(key);
            assert_eq!(found, wanted);
        }
    }
}
