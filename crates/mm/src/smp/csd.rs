//! Calls by records for each source and target (`call_single_data`), as in Linux: the policies
//! `stock` and `posted`.
//!
//! A record is free, or locked by the one call that uses it. The source CPU locks it with
//! preemption off. The target releases it: for a synchronous call after the function has run, for
//! an asynchronous one before. A CPU that queues a call therefore spins with preemption off until
//! its previous call to the same target is done.
//!
//! With `posted` the wait has preemption on. The waiter may be preempted or migrated, and still
//! reads the records of the CPU that it called from; records are never freed. Another task on that
//! CPU may reuse a record meanwhile: then the first task waits for that use too.

use super::CallCounters;
use super::call::{Call, CallWords, Here, Reached, Wait};
use super::queue::{Head, Queued};
use super::watch::Watch;
use super::{SmpConfig, may_call};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::sync::{EachCpu, IrqGuard, NoPreempt, PreemptGuard, Sparse};
use mmscale_arch::{Atomic, CallEvent, CpuId, CpuMask, DataLine, Func, Ipi, Machine, Span, Trace};

/// Size of a record on hardware: its link, state, function and words.
const RECORD_BYTES: u64 = 32;

/// The states of a record.
const FREE: u32 = 0;
const SYNC: u32 = 1;
const ASYNC: u32 = 2;

/// One record, of one source and one target.
struct Csd<A: Machine> {
    state: A::AtomicU32,
    /// The record below it in its target's queue.
    next: AtomicU32,
    call: CallWords,
}

/// How long a caller waits with preemption off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PreemptOff {
    /// Until all targets have answered.
    UntilDone,
    /// Until the call is queued, sent, and run locally.
    UntilSent,
}

/// The records of all pairs and the queues of all CPUs.
pub(super) struct Csds<A: Machine> {
    cpus: usize,
    preempt_off: PreemptOff,
    /// By source and target. Those of a source are allocated at its first call.
    csds: Sparse<Csd<A>>,
    queues: EachCpu<Head<A>>,
}

impl<A: Machine> Csds<A> {
    pub(super) fn new(preempt_off: PreemptOff) -> Self {
        let cpus = A::cpus_possible();
        Self {
            cpus,
            preempt_off,
            csds: Sparse::new(cpus * cpus),
            queues: EachCpu::new::<A>(|_| Head::new()),
        }
    }
    /// Returns the bytes of a record for each pair, a queue for each CPU, and the masks: two for
    /// each CPU, or one where the mask of the wait belongs to the task.
    pub(super) fn bytes(&self) -> u64 {
        let cpus = self.cpus as u64;
        let masks = if self.preempt_off == PreemptOff::UntilDone { 2 } else { 1 };
        cpus * cpus * RECORD_BYTES + cpus * (Head::<A>::BYTES + masks * cpus.div_ceil(8))
    }
    fn index(&self, source: CpuId, target: CpuId) -> usize {
        source.index() * self.cpus + target.index()
    }
    fn csd(&self, index: usize) -> &Csd<A> {
        self.csds.get_or_make(index, |_| Csd {
            state: A::AtomicU32::named(FREE, DataLine::CallState),
            next: AtomicU32::new(0),
            call: CallWords::default(),
        })
    }

    /// Calls the CPUs of `targets` for which `cond` holds; see [`super::Smp::call_function_many`].
    pub(super) fn call_many(
        &self,
        on: (&SmpConfig, &CallCounters<A>),
        targets: impl Iterator<Item = CpuId>,
        cond: impl Fn(CpuId) -> bool,
        call: Call,
        (here, wait): (Here, Wait),
        run: &impl Fn(Call),
    ) -> Reached {
        let (config, tally) = on;
        let since_ns = A::now_ns();
        let pinned = PreemptGuard::<A>::new();
        let source = pinned.cpu();
        let (mut sent, mut reached) = (CpuMask::EMPTY, Reached::default());
        let mut to_interrupt = CpuMask::EMPTY;
        for target in targets.filter(|&target| cond(target)) {
            if target == source {
                reached.here = u32::from(here == Here::Run);
                continue;
            }
            if reached.others == 0 {
                may_call::<A>();
            }
            match self.queue(on, (source, target), call, wait) {
                Queued::First => to_interrupt.insert(target),
                Queued::Behind => tally.here().ipis_elided.add(1),
                Queued::Closed => continue,
            }
            sent.insert(target);
            reached.others += 1;
        }
        if reached.others > 0 {
            tally.here().calls.add(1);
            to_interrupt.iter().for_each(|target| {
                tally.here().ipis_sent.add(1);
                A::ipi_send(target, Ipi::CallFunction);
            });
        }
        if reached.here > 0 {
            let _off = IrqGuard::<A>::new();
            run(call);
        }
        tally.here().preempt_off_queue_phase_max_ns.note(A::now_ns() - since_ns);
        if reached.others > 0 && wait != Wait::No {
            let whole = (self.preempt_off == PreemptOff::UntilDone).then_some(pinned);
            self.wait(config, tally, source, &sent, call);
            drop(whole);
        }
        reached
    }
    /// Locks the record, fills it and queues it. Preemption is off, on `source`.
    fn queue(
        &self,
        (config, tally): (&SmpConfig, &CallCounters<A>),
        (source, target): (CpuId, CpuId),
        call: Call,
        wait: Wait,
    ) -> Queued {
        let index = self.index(source, target);
        let csd = self.csd(index);
        // Pairs with the `Release` stores in `run_queued`: the target has read the call's words,
        // and this CPU may write them again.
        if csd.state.load(Acquire) != FREE {
            let _span = Span::<A>::enter(Func::CsdLock);
            let mut watch = Watch::<A>::begin(config, source, csd.call.get().func);
            while csd.state.load(Acquire) != FREE {
                watch.turn(|| target);
            }
            tally.here().csd_lock_total_ns.add(watch.age_ns());
            tally.here().csd_lock_max_ns.note(watch.age_ns());
        }
        // Only this CPU locks the record, with preemption off: a plain store is enough.
        csd.state.store(if wait == Wait::No { ASYNC } else { SYNC }, Relaxed);
        csd.call.put(call);
        let queued = self.queues.of(target).push(index, &csd.next);
        if queued == Queued::Closed {
            csd.state.store(FREE, Relaxed);
        }
        queued
    }
    /// Waits until the records of `source` for `sent` are free.
    fn wait(
        &self,
        config: &SmpConfig,
        tally: &CallCounters<A>,
        source: CpuId,
        sent: &CpuMask,
        call: Call,
    ) {
        let _span = Span::<A>::enter(Func::CsdLockWait);
        let mut watch = Watch::<A>::begin(config, source, call.func);
        let mut last = None;
        for target in sent.iter() {
            let csd = self.csd(self.index(source, target));
            // Pairs with the `Release` store after `run` in `run_queued`: the caller sees what the
            // call did.
            while csd.state.load(Acquire) != FREE {
                last = Some(target);
                watch.turn(|| target);
            }
        }
        let ns = watch.age_ns();
        tally.here().csd_wait_total_ns.add(ns);
        tally.here().csd_wait_max_ns.note(ns);
        if let Some(target) = last {
            A::trace(Trace::Call(CallEvent::Wait { target, ns }));
        }
    }

    /// Runs the calls that were queued for this CPU: synchronous ones first, each kind in order of
    /// arrival. Interrupts are off. Called exactly once for each interrupt and from no other place,
    /// so that a nonempty queue always has an interrupt on its way.
    pub(super) fn run_queued(&self, run: &impl Fn(Call)) {
        let _span = Span::<A>::enter(Func::FlushSmpCallFunctionQueue);
        let queue = self.queues.of(A::cpu());
        let mut next = queue.take(|index| &self.csd(index).next);
        let (mut later, mut last) = (None, None::<usize>);
        while let Some(index) = next {
            let csd = self.csd(index);
            next = Head::<A>::after(&csd.next);
            // Written before the exchange in `Head::push`; the one in `Head::take` makes it
            // visible.
            if csd.state.load(Acquire) == SYNC {
                let call = csd.call.get();
                run(call);
                // Pairs with the `Acquire` in `wait`: the caller sees what the call has done.
                csd.state.store(FREE, Release);
                continue;
            }
            Head::<A>::link(&csd.next, None);
            match last.replace(index) {
                Some(before) => Head::<A>::link(&self.csd(before).next, Some(index)),
                None => later = Some(index),
            }
        }
        while let Some(index) = later {
            let csd = self.csd(index);
            later = Head::<A>::after(&csd.next);
            let call = csd.call.get();
            // Pairs with the loads in `queue`: the words were read before the source writes them.
            csd.state.store(FREE, Release);
            run(call);
        }
    }
    pub(super) fn close(&self) -> bool {
        self.queues.of(A::cpu()).close()
    }
    pub(super) fn open(&self, cpu: CpuId) {
        self.queues.of(cpu).open();
    }
    /// Returns whether a call is queued for `cpu`.
    pub(super) fn is_queued(&self, cpu: CpuId) -> bool {
        self.queues.of(cpu).is_queued()
    }
}
