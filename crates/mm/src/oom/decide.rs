//! The decision after an allocation has failed: a victim, or a retry.

use super::score::badness;
use super::{
    Drains, Oom, OomContext, OomReadPolicy, OomResult, OomRetries, Shortage, Victim, VictimState,
};
use crate::time::NSEC_PER_SEC;
use crate::work::WorkItem;
use alloc::sync::Arc;
use mmscale_arch::{CpuMask, Func, Machine, OomEvent, Span, Trace};
use mmscale_frames::page_alloc::Gfp;

/// How long one allocation waits for processes that exit by themselves, in ns. It is long for an
/// exit, which takes about 0.3 us a page.
const EXIT_WAIT_MAX_NS: u64 = NSEC_PER_SEC;

/// The result under `oom_lock`.
enum Decision {
    /// There is memory.
    Retry,
    /// There will be memory.
    Wait,
    /// There is no memory, and there will be none.
    NoVictim,
}

/// Whether processes in the scope are dying.
enum Dying {
    None,
    /// Memory will be freed soon.
    Soon,
}

impl<A: Machine> Oom<A> {
    /// Handles a failed allocation or charge after reclaim has freed nothing
    /// (`__alloc_pages_may_oom`, `mem_cgroup_oom`). Sleeps. The caller may hold mmap_lock and VMA
    /// locks.
    pub fn out_of_memory<S: OomContext<A>>(
        &self,
        on: S,
        short: Shortage,
        retries: &mut OomRetries,
    ) -> OomResult {
        if !self.config.policy.may_kill(short.group) {
            return OomResult::NoVictim;
        }
        let _span = Span::<A>::enter(Func::OutOfMemory);
        let decision = match self.one.try_lock() {
            Some(_one) => self.decide(on, short, retries),
            None => Decision::Wait,
        };
        match decision {
            Decision::Retry => OomResult::Retry,
            Decision::Wait => {
                let jiffy_ns = NSEC_PER_SEC / u64::from(A::hz());
                on.time().sleep_until(A::now_ns() + jiffy_ns, || false);
                OomResult::Retry
            }
            Decision::NoVictim => {
                self.tally().no_victim.add(1);
                OomResult::NoVictim
            }
        }
    }

    /// Decides with `oom_lock` held.
    fn decide<S: OomContext<A>>(
        &self,
        on: S,
        short: Shortage,
        retries: &mut OomRetries,
    ) -> Decision {
        let exits = on.exits();
        let dying = self.find_dying(on, short, retries);
        if matches!(dying, Dying::Soon) {
            return Decision::Wait;
        }
        // After the check for dying processes: what they have freed by now is found.
        if self.config.drains == Drains::All {
            drain_everything(on);
        }
        if self.has_room(on, short) {
            self.tally().drained.add(1);
            return Decision::Retry;
        }
        // A process that has started to exit meanwhile may have freed more than was found.
        if on.exits() != exits && retries.may_wait_for_exits(A::now_ns()) {
            return Decision::Wait;
        }
        match self.choose(on, short) {
            Some(victim) => {
                let tally = self.tally();
                if short.group.is_some() { &tally.group_kills } else { &tally.kills }.add(1);
                self.mark_victim(&*victim);
                Decision::Wait
            }
            None => Decision::NoVictim,
        }
    }

    /// Whether memory of the scope will be freed. Marks processes that were killed for other
    /// reasons as victims (`task_will_free_mem`).
    fn find_dying<S: OomContext<A>>(
        &self,
        on: S,
        short: Shortage,
        retries: &mut OomRetries,
    ) -> Dying {
        let (mut soon, mut exiting) = (false, false);
        on.each(|space| {
            if !short.concerns(&**space) {
                return;
            }
            match space.state() {
                VictimState::Dying { marked: true } | VictimState::Exiting { marked: true } => {
                    soon = true
                }
                VictimState::Dying { marked: false } => {
                    soon = true;
                    self.tally().marked_dying.add(1);
                    self.mark_victim(&**space);
                }
                VictimState::Exiting { marked: false } => exiting = true,
                VictimState::Living | VictimState::Done => {}
            }
        });
        if soon || exiting && retries.may_wait_for_exits(A::now_ns()) {
            Dying::Soon
        } else {
            Dying::None
        }
    }

    /// Whether the memory is available now.
    fn has_room<S: OomContext<A>>(&self, on: S, short: Shortage) -> bool {
        let memory = on.memory();
        match short.group {
            Some(group) => memory.groups.has_room(group, short.order.pages() as u32),
            None => memory.frames.is_available(short.node, short.order, Gfp::KERNEL),
        }
    }

    /// Chooses the address space with the highest score; among equals, the one with the highest
    /// number (`select_bad_process`).
    fn choose<S: OomContext<A>>(&self, on: S, short: Shortage) -> Option<Arc<S::Space>> {
        let floor = match self.config.read {
            OomReadPolicy::Stock => None,
            OomReadPolicy::Sums => self.score_floor(on, short),
        };
        let mut best: Option<(i64, Arc<S::Space>)> = None;
        self.each_choice(on, short, |space, score_of| {
            let pages = match self.config.read {
                OomReadPolicy::Stock => space.pages(),
                OomReadPolicy::Sums => {
                    // A process that is below the floor at most is not read on all CPUs.
                    let most = space.pages_error_max().map(|error| space.pages() + error);
                    if most.is_some_and(|most| score_of(most) < floor) {
                        return;
                    }
                    on.sum_pages(space)
                }
            };
            if let Some(score) = score_of(pages)
                && best.as_ref().is_none_or(|&(most, _)| score >= most)
            {
                best = Some((score, Arc::clone(space)));
            }
        });
        best.map(|(_, space)| space)
    }
    /// Returns a score that some process reaches, from the counts that know how wrong they may be.
    fn score_floor<S: OomContext<A>>(&self, on: S, short: Shortage) -> Option<i64> {
        let mut floor = None;
        self.each_choice(on, short, |space, score_of| {
            if let Some(error) = space.pages_error_max() {
                floor = floor.max(score_of(space.pages().saturating_sub(error)));
            }
        });
        floor
    }
    /// Visits each process that may be chosen, with its score by a number of pages.
    fn each_choice<S: OomContext<A>>(
        &self,
        on: S,
        short: Shortage,
        mut see: impl FnMut(&Arc<S::Space>, &dyn Fn(u64) -> Option<i64>),
    ) {
        let total = self.total(on, short);
        on.each(|space| {
            if short.concerns(&**space) && space.state() == VictimState::Living {
                see(space, &|pages| badness(pages, space.adjustment(), total));
            }
        });
    }

    /// The pages in the scope (`oom_control.totalpages`).
    fn total<S: OomContext<A>>(&self, on: S, short: Shortage) -> u64 {
        let memory = on.memory();
        let limit = short.group.and_then(|group| memory.groups.limit(group));
        limit.unwrap_or_else(|| {
            let zones = memory.frames.zones().iter();
            zones.map(|zone| u64::from(zone.managed_pages())).sum::<u64>() + on.swap_pages()
        })
    }

    /// Kills a process, marks it as a victim, and wakes the reaper (`mark_oom_victim`).
    pub fn mark_victim(&self, victim: &impl Victim) {
        let (asid, pages) = (victim.asid(), victim.pages());
        victim.kill();
        if victim.mark(A::now_ns() + self.config.delay_ns) {
            A::trace(Trace::Oom(OomEvent::MarkVictim { asid, pages }));
            self.wake_reaper();
        }
    }
}

impl Shortage {
    /// Whether the address space's pages are in the scope.
    fn concerns(&self, space: &impl Victim) -> bool {
        self.group.is_none_or(|group| space.group() == group)
    }
}

impl OomRetries {
    /// Creates the state before the first failure.
    pub fn new() -> Self {
        Self::default()
    }
    /// Whether the allocation may still wait for exits. The limit counts from its first wait.
    fn may_wait_for_exits(&mut self, now_ns: u64) -> bool {
        now_ns - *self.exits_since_ns.get_or_insert(now_ns) < EXIT_WAIT_MAX_NS
    }
}

/// Drains everything that is free to where allocations find it, and folds the counters. LRU batches
/// of all CPUs first: freeing them fills page caches, of other CPUs too.
fn drain_everything<A: Machine>(on: impl OomContext<A>) {
    let memory = on.memory();
    memory.drain_all();
    memory.drain_stocks();
    let _span = Span::<A>::enter(Func::DrainAllPages);
    let mut online = CpuMask::EMPTY;
    A::online(&mut online);
    online.iter().for_each(|cpu| {
        memory.work.queue_on(cpu, WorkItem::DrainPages(cpu));
    });
    online.iter().for_each(|cpu| {
        memory.work.flush(WorkItem::DrainPages(cpu));
    });
}
