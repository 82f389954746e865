//! The decision after an allocation has failed: a victim, or a retry.

use super::score::badness;
use super::{Fate, Oom, OomPolicy, Outcome, Patience, Scene, Settle, Shortage, Victim};
use crate::time::NSEC_PER_SEC;
use crate::work::WorkItem;
use alloc::sync::Arc;
use mmscale_arch::{CpuMask, Func, Machine, OomEvent, Span, Trace, planted};
use mmscale_frames::page_alloc::Gfp;

/// How long one allocation waits for processes that exit by themselves, in ns. It is long for an
/// exit, which takes about 0.3 us a page.
const EXIT_PATIENCE_NS: u64 = NSEC_PER_SEC;

/// The result under `oom_lock`.
enum Decision {
    /// There is memory.
    Again,
    /// There will be memory.
    Wait,
    /// There is no memory, and there will be none.
    Hopeless,
}

/// Whether processes in the scope are dying.
enum Dying {
    Nobody,
    /// Memory will be freed soon.
    Soon,
}

impl<A: Machine> Oom<A> {
    /// Handles a failed allocation or charge after reclaim has freed nothing
    /// (`__alloc_pages_may_oom`, `mem_cgroup_oom`). Sleeps. The caller may hold mmap_lock and VMA
    /// locks.
    pub fn out_of_memory<S: Scene<A>>(
        &self,
        on: S,
        short: Shortage,
        patience: &mut Patience,
    ) -> Outcome {
        if self.config.policy == OomPolicy::Fail {
            return Outcome::Hopeless;
        }
        let _span = Span::<A>::enter(Func::OutOfMemory);
        let decision = match self.one.try_lock() {
            Some(_one) => self.decide(on, short, patience),
            None => Decision::Wait,
        };
        match decision {
            Decision::Again => Outcome::Retry,
            Decision::Wait => {
                let jiffy_ns = NSEC_PER_SEC / u64::from(A::hz());
                on.time().sleep_until(A::now_ns() + jiffy_ns, || false);
                Outcome::Retry
            }
            Decision::Hopeless => {
                self.tally().hopeless.add(1);
                Outcome::Hopeless
            }
        }
    }

    /// Decides with `oom_lock` held.
    fn decide<S: Scene<A>>(&self, on: S, short: Shortage, patience: &mut Patience) -> Decision {
        let exits = on.exits();
        let dying = self.who_is_dying(on, short, patience);
        if matches!(dying, Dying::Soon) && !planted!(OomKillsTwice) {
            return Decision::Wait;
        }
        // After the check for dying processes: what they have freed by now is found.
        if self.config.settle == Settle::Everywhere && !planted!(OomUnsettled) {
            settle(on);
        }
        if self.has_room(on, short) {
            self.tally().settled.add(1);
            return Decision::Again;
        }
        // A process that has started to exit meanwhile may have freed more than was found.
        if on.exits() != exits && patience.may_wait_from(A::now_ns()) {
            return Decision::Wait;
        }
        match self.choose(on, short) {
            Some(victim) => {
                let tally = self.tally();
                if short.group.is_some() { &tally.group_kills } else { &tally.kills }.add(1);
                self.doom(&*victim);
                Decision::Wait
            }
            None => Decision::Hopeless,
        }
    }

    /// Whether memory of the scope will be freed. Marks processes that were killed for other
    /// reasons as victims (`task_will_free_mem`).
    fn who_is_dying<S: Scene<A>>(&self, on: S, short: Shortage, patience: &mut Patience) -> Dying {
        let (mut soon, mut exiting) = (false, false);
        on.each(|space| {
            if !short.concerns(&**space) {
                return;
            }
            match space.fate() {
                Fate::Dying { marked: true } | Fate::Exiting { marked: true } => soon = true,
                Fate::Dying { marked: false } => {
                    soon = true;
                    self.tally().marked_dying.add(1);
                    self.doom(&**space);
                }
                Fate::Exiting { marked: false } => exiting = true,
                Fate::Living | Fate::Beyond => {}
            }
        });
        if soon || exiting && patience.may_wait_from(A::now_ns()) {
            Dying::Soon
        } else {
            Dying::Nobody
        }
    }

    /// Whether the memory is available now.
    fn has_room<S: Scene<A>>(&self, on: S, short: Shortage) -> bool {
        let memory = on.memory();
        match short.group {
            Some(group) => memory.groups.has_room(group, short.order.pages() as u32),
            None => memory.frames.is_available(short.node, short.order, Gfp::KERNEL),
        }
    }

    /// Chooses the address space with the highest score; among equals, the one with the highest
    /// number (`select_bad_process`).
    fn choose<S: Scene<A>>(&self, on: S, short: Shortage) -> Option<Arc<S::Space>> {
        let total = self.total(on, short);
        let mut best: Option<(i64, Arc<S::Space>)> = None;
        on.each(|space| {
            if !short.concerns(&**space) || space.fate() != Fate::Living {
                return;
            }
            let score = badness(space.pages(), space.adjustment(), total);
            if let Some(score) = score
                && best.as_ref().is_none_or(|&(most, _)| score >= most)
            {
                best = Some((score, Arc::clone(space)));
            }
        });
        best.map(|(_, space)| space)
    }

    /// The pages in the scope (`oom_control.totalpages`).
    fn total<S: Scene<A>>(&self, on: S, short: Shortage) -> u64 {
        let memory = on.memory();
        let limit = short.group.and_then(|group| memory.groups.limit(group));
        limit.unwrap_or_else(|| {
            let zones = memory.frames.zones().iter();
            zones.map(|zone| u64::from(zone.managed_pages())).sum::<u64>() + on.swap_pages()
        })
    }

    /// Kills a process, marks it as a victim, and wakes the reaper (`mark_oom_victim`).
    pub fn doom(&self, victim: &impl Victim) {
        let (asid, pages) = (victim.asid(), victim.pages());
        victim.kill();
        if victim.mark(A::now_ns() + self.config.delay_ns) {
            A::trace(Trace::Oom(OomEvent::MarkVictim { asid, pages }));
            if !planted!(OomReaperUnwoken) {
                self.wake_reaper();
            }
        }
    }
}

impl Shortage {
    /// Whether the address space's pages are in the scope.
    fn concerns(&self, space: &impl Victim) -> bool {
        self.group.is_none_or(|group| space.group() == group)
    }
}

impl Patience {
    /// Creates the state before the first failure.
    pub fn new() -> Self {
        Self::default()
    }
    /// Whether the allocation may still wait for exits. The limit counts from its first wait.
    fn may_wait_from(&mut self, now_ns: u64) -> bool {
        now_ns - *self.exits_since_ns.get_or_insert(now_ns) < EXIT_PATIENCE_NS
    }
}

/// Drains everything that is free to where allocations find it, and folds the counters. LRU batches
/// of all CPUs first: freeing them fills page caches, of other CPUs too.
fn settle<A: Machine>(on: impl Scene<A>) {
    let memory = on.memory();
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
