//! The CPUs of tasks that a script does not place with `on`.
//!
//! The processes of a script begin on CPUs 0, 1, 2 and so on, those of `per_cpu` each on its own.
//! Threads and children are on other CPUs, near the task that starts them: each takes a *seat*, a
//! number that no other thread or child of that task has which was not waited for yet. Seat 0 is
//! the CPU of the task itself. From seat to seat it is as many CPUs as there are processes (for
//! children: processes and threads), so that equal tasks do not meet while CPUs are left. No choice
//! depends on what runs where at that moment: it is the same on every machine.

use std::collections::BTreeSet;

/// The CPUs of a run, and the numbers of tasks that share them all the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) cpus: usize,
    processes: usize,
    tasks: usize,
}

/// How a task is related to the one that starts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// A thread of a process at the top of the script.
    FirstThread,
    /// A thread of another task.
    Thread,
    /// A process.
    Child,
}

impl Crowd {
    /// `processes` are those at the top of the script; `tasks` are these and their threads.
    pub(crate) fn new(processes: u64, tasks: u64, cpus: usize) -> Self {
        let number = |number| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { cpus: cpus.max(1), processes: number(processes), tasks: number(tasks) }
    }
    /// Returns the CPU of a task that is started from `from`.
    pub(super) fn cpu(self, from: usize, relation: Relation, seat: usize) -> usize {
        let wanted = match relation {
            Relation::FirstThread => self.processes,
            Relation::Thread | Relation::Child => self.tasks,
        };
        let stride = match relation {
            _ if wanted < self.cpus => wanted,
            // Each CPU has a task already: a fork stays where its memory is.
            Relation::Child => return from % self.cpus,
            // A process has threads in order to use several CPUs.
            Relation::FirstThread | Relation::Thread => 1,
        };
        // After `round` seats the same CPUs would follow again.
        let common = common_divisor(stride, self.cpus);
        let round = self.cpus / common;
        (from % self.cpus + seat % round * stride + seat / round % common) % self.cpus
    }
}

const fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The seats around a task.
#[derive(Clone, Debug)]
pub(super) struct Seats {
    /// Free seats below `next`.
    free: BTreeSet<usize>,
    next: usize,
}

impl Seats {
    /// All seats are free but that of the task itself.
    pub(super) const fn new() -> Self {
        Self { free: BTreeSet::new(), next: 1 }
    }
    /// Takes the nearest free seat.
    pub(super) fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
    pub(super) fn release(&mut self, seat: usize) {
        if seat > 0 {
            self.free.insert(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Crowd, Relation, Seats};

    fn cpus(crowd: Crowd, from: usize, relation: Relation, seats: usize) -> Vec<usize> {
        (0..seats).map(|seat| crowd.cpu(from, relation, seat)).collect()
    }

    #[test]
    fn threads_of_equal_processes_do_not_meet_while_cpus_are_left() {
        let crowd = Crowd { cpus: 8, processes: 2, tasks: 8 };
        assert_eq!(cpus(crowd, 0, Relation::FirstThread, 5), [0, 2, 4, 6, 1]);
        assert_eq!(cpus(crowd, 1, Relation::FirstThread, 4), [1, 3, 5, 7]);
    }

    #[test]
    fn threads_spread_also_where_each_cpu_has_a_process() {
        let crowd = Crowd { cpus: 4, processes: 4, tasks: 12 };
        assert_eq!(cpus(crowd, 3, Relation::FirstThread, 3), [3, 0, 1]);
        assert_eq!(cpus(crowd, 3, Relation::Thread, 3), [3, 0, 1]);
    }

    #[test]
    fn children_go_to_cpus_without_a_task_or_stay() {
        let some = Crowd { cpus: 8, processes: 1, tasks: 3 };
        assert_eq!(cpus(some, 1, Relation::Child, 4), [1, 4, 7, 2]);
        let all = Crowd { cpus: 8, processes: 8, tasks: 8 };
        assert_eq!(cpus(all, 5, Relation::Child, 4), [5, 5, 5, 5]);
    }

    #[test]
    fn each_cpu_is_used_before_one_is_used_twice() {
        for cpus in 1..20 {
            for tasks in 1..cpus {
                let crowd = Crowd { cpus, processes: 1, tasks };
                let mut used = self::cpus(crowd, 0, Relation::Child, cpus);
                used.sort_unstable();
                assert_eq!(used, (0..cpus).collect::<Vec<_>>(), "{tasks} tasks");
            }
        }
    }

    #[test]
    fn a_seat_is_taken_again_after_its_release() {
        let mut seats = Seats::new();
        assert_eq!([seats.take(), seats.take(), seats.take()], [1, 2, 3]);
        seats.release(2);
        seats.release(0);
        assert_eq!([seats.take(), seats.take()], [2, 4]);
    }
}
