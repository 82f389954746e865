//! The task that frees the memory of victims that do not exit in time (`oom_reaper`).

use super::{Oom, OomContext, Victim};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::{Atomic, Func, Machine, OomEvent, Span, TaskId, Trace};

/// The result of one attempt to reap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// All pages that a reaper may unmap are unmapped.
    Done,
    /// Nothing was to be done.
    Skipped,
    /// It was not possible now.
    Later,
}

impl<A: Machine> Oom<A> {
    /// The body of the reaper's task; returns after [`Oom::stop`]. Run by one task.
    pub fn reaper<S: OomContext<A>>(&self, on: S) {
        // Store buffering with `stop`. Here: the task, then `stopping`. There: `stopping`, then the
        // task. This sees `stopping`, or `stop` sees the task and waits.
        self.reaper.store(A::current().index() as u32 + 1, SeqCst);
        while self.stopping.load(SeqCst) == 0 {
            match next_due(on) {
                None => A::park(),
                Some((due_ns, _)) if A::now_ns() < due_ns => self.rest_until(on, due_ns),
                Some((_, space)) => self.oom_reap(on, &space),
            }
        }
        self.ended.complete();
    }

    /// Stops the reaper and waits until it has returned. If its task has not run yet, it returns as
    /// soon as it runs. Sleeps.
    pub fn stop(&self) {
        // Pairs with the loads in `reaper`, `rest_until` and `oom_reap`: see `reaper`.
        self.stopping.store(1, SeqCst);
        if self.wake_reaper() {
            self.ended.wait();
        }
    }

    /// Wakes the reaper; returns `false` if its task has not run yet.
    pub(super) fn wake_reaper(&self) -> bool {
        // Pairs with the store in `reaper`: see there.
        let task = self.reaper.load(SeqCst).checked_sub(1);
        task.map(|task| A::unpark(TaskId::new(task as usize))).is_some()
    }

    fn rest_until<S: OomContext<A>>(&self, on: S, due_ns: u64) {
        // Pairs with the store in `stop`, which wakes this task afterwards.
        on.time().sleep_until(due_ns, || self.stopping.load(SeqCst) != 0);
    }

    /// Tries to reap several times (`oom_reap_task`). Then marks the address space as done,
    /// whatever the result: its exit frees the rest, and another victim may be chosen.
    fn oom_reap<S: OomContext<A>>(&self, on: S, space: &Arc<S::Space>) {
        let asid = space.asid();
        A::trace(Trace::Oom(OomEvent::WakeReaper { asid }));
        let mut reaped = false;
        for attempt in 0..self.config.tries {
            if attempt > 0 {
                self.rest_until(on, A::now_ns() + self.config.pause_ns);
            }
            // Pairs with the store in `stop`.
            if self.stopping.load(SeqCst) != 0 {
                return;
            }
            A::trace(Trace::Oom(OomEvent::StartTaskReaping { asid }));
            match self.try_reap(on, space) {
                Attempt::Later => A::trace(Trace::Oom(OomEvent::SkipTaskReaping { asid })),
                Attempt::Done | Attempt::Skipped => {
                    reaped = true;
                    break;
                }
            }
        }
        let tally = self.tally();
        if reaped { &tally.reaped } else { &tally.given_up }.add(1);
        space.skip();
    }

    fn try_reap<S: OomContext<A>>(&self, on: S, space: &Arc<S::Space>) -> Attempt {
        let _span = Span::<A>::enter(Func::OomReaper);
        let attempt = on.reap(space);
        if attempt == Attempt::Done {
            A::trace(Trace::Oom(OomEvent::FinishTaskReaping { asid: space.asid() }));
        }
        attempt
    }
}

/// The victim that is due first.
fn next_due<A: Machine, S: OomContext<A>>(on: S) -> Option<(u64, Arc<S::Space>)> {
    let mut first: Option<(u64, Arc<S::Space>)> = None;
    on.each(|space| {
        if let Some(due_ns) = space.due_ns()
            && first.as_ref().is_none_or(|&(least_ns, _)| due_ns < least_ns)
        {
            first = Some((due_ns, Arc::clone(space)));
        }
    });
    first
}
