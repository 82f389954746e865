//! The queue of spinners that a CPU can leave, from atomics: for machines without one of their own.
//!
//! Each CPU has a node. A node says which CPU is behind it (`next`), which was before it when it
//! joined (`prev`), and whether it is at the head (`first`). The word `tail` names the last CPU.
//! CPU n is named n + 1; 0 is no CPU. One node for each CPU is enough, because preemption is off
//! while a CPU is in the queue and no interrupt uses it. (Linux has one node for each CPU and all
//! queues. Here each queue has its own: machines that use this type have few CPUs.)
//!
//! | step | operation | pairs with |
//! |---|---|---|
//! | join | own `first`, `next` = 0; `tail` := self, `AcqRel`; at the head if it was 0 | (1) |
//! | link | own `prev` := before; before's `next` := self, `Release` | (2) |
//! | wait | until own `first`, `Acquire`, or need_resched | (3) |
//! | unlock, last | `tail`: self -> 0, `Release` | (1) |
//! | unlock | takes own `next`, `Acquire` (swap with 0), sets its `first`, `Release` | (2), (3) |
//! | leave a | before's `next`: self -> 0 | |
//! | leave b | `tail`: self -> before; or takes own `next` (swap with 0) | (2) |
//! | leave c | behind's `prev` := before; before's `next` := behind, `Release` | (2) |
//!
//! 1. Writes of the last holder are visible to a CPU that finds the queue empty.
//! 2. The fields of a node that is linked are visible to the CPU that takes the link.
//! 3. Writes of the last holder are visible to the CPU behind it.
//!
//! # Leaving
//! A CPU that leaves competes with the CPU before it, which may unlock, or leave too. Both use one
//! word, the `next` of the CPU before, and only one of them gets the link: step a takes it out with
//! a compare-exchange, an unlock with a swap. If step a fails, the CPU checks whether it is at the
//! head by now, and reads `prev` again, since the CPU before it may have left.
//!
//! After step a the CPU before it cannot get away: it is not the tail, and waits until it has a
//! `next` again. Step b does the same with the CPU behind: it cannot get away from this CPU, whose
//! `next` is 0. Step c links the two.
//!
//! ```text
//! CPU 1 holds, 2 and 3 wait: 1 -> 2 -> 3, tail 3.    CPU 2 leaves, CPU 1 unlocks.
//! 2a  1.next: 2 -> 0                                 1   tail is not 1, 1.next is 0: waits
//! 2b  tail is not 2; takes 3 out of 2.next           3   leaves too: 2.next is not 3: waits
//! 2c  3.prev = 1, 1.next = 3                         1   takes 3 out of 1.next, 3 is first
//! ```

use super::EachCpu;
use crate::{Atomic, CpuId, Machine, RawOsq};
use core::sync::atomic::Ordering;

/// The name of no CPU.
const NONE: u32 = 0;

/// The place of one CPU in the queue.
struct Node<A: Machine> {
    prev: A::AtomicU32,
    next: A::AtomicU32,
    /// Not zero: the CPU is at the head.
    first: A::AtomicU32,
}

/// The queue.
pub struct Osq<A: Machine> {
    tail: A::AtomicU32,
    nodes: EachCpu<Node<A>>,
}

impl<A: Machine> Osq<A> {
    fn node(&self, name: u32) -> &Node<A> {
        self.nodes.of(CpuId::new(name as usize - 1))
    }

    /// Joins the queue; returns whether this CPU is at the head immediately. If not, the caller
    /// calls [`Osq::wait`].
    pub fn join(&self) -> bool {
        let me = A::cpu().index() as u32 + 1;
        let own = self.node(me);
        own.first.store(0, Ordering::Relaxed);
        own.next.store(NONE, Ordering::Relaxed);
        // (1) and (2). Pairs with the exchange of `tail` in `take_next`, and with this one on the
        // next CPU, which sees the fields of this node as reset.
        let before = self.tail.swap(me, Ordering::AcqRel);
        if before != NONE {
            own.prev.store(before, Ordering::Relaxed);
            // Pairs with the `Acquire` in `take_next`.
            self.node(before).next.store(me, Ordering::Release);
        }
        before == NONE
    }

    /// Waits in the queue. Returns `true` at the head, and `false` if this CPU has left it.
    pub fn wait(&self) -> bool {
        let me = A::cpu().index() as u32 + 1;
        let own = self.node(me);
        loop {
            // Pairs with the `Release` in `unlock`.
            if own.first.load(Ordering::Acquire) != 0 {
                return true;
            }
            if A::need_resched() {
                return !self.leave(me);
            }
            A::relax();
        }
    }

    /// Leaves the queue; returns `false` if this CPU is at its head by now.
    fn leave(&self, me: u32) -> bool {
        let own = self.node(me);
        let before = loop {
            let before = own.prev.load(Ordering::Relaxed);
            let link = &self.node(before).next;
            // Against the swap in `take_next` of the CPU before: one of the two gets the link.
            if link.compare_exchange(me, NONE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break before;
            }
            // Pairs with the `Release` in `unlock`.
            if own.first.load(Ordering::Acquire) != 0 {
                return false;
            }
            A::relax();
        };
        let behind = self.take_next(me, before);
        if behind != NONE {
            self.node(behind).prev.store(before, Ordering::Relaxed);
            // Pairs with the `Acquire` in `take_next`.
            self.node(before).next.store(behind, Ordering::Release);
        }
        true
    }

    /// Makes `before` the tail if CPU `me` is, or else takes the CPU behind `me` out of its node,
    /// as soon as that CPU has linked itself. Returns that CPU.
    fn take_next(&self, me: u32, before: u32) -> u32 {
        let own = self.node(me);
        loop {
            // Pairs with the `AcqRel` in `join`.
            let last = self.tail.compare_exchange(me, before, Ordering::AcqRel, Ordering::Relaxed);
            if last.is_ok() {
                return NONE;
            }
            // (2). Pairs with the `Release` in `join` and `leave`: the CPU behind has written its
            // fields, which this CPU changes next.
            let behind = own.next.swap(NONE, Ordering::Acquire);
            if behind != NONE {
                return behind;
            }
            A::relax();
        }
    }
}

impl<A: Machine> RawOsq for Osq<A> {
    fn new() -> Self {
        let node = |_| Node {
            prev: A::AtomicU32::new(NONE),
            next: A::AtomicU32::new(NONE),
            first: A::AtomicU32::new(0),
        };
        Self { tail: A::AtomicU32::new(NONE), nodes: EachCpu::new::<A>(node) }
    }

    fn lock(&self) -> bool {
        self.join() || self.wait()
    }

    fn unlock(&self) {
        let behind = self.take_next(A::cpu().index() as u32 + 1, NONE);
        if behind != NONE {
            // Pairs with the `Acquire` in `wait` and `leave`.
            self.node(behind).first.store(1, Ordering::Release);
        }
    }
}
