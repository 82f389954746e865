//! Calls of other CPUs: interrupts that are sent, answered, and waited for.
//!
//! A call queues a request to each called CPU, and an interrupt to each whose queue is empty, as
//! the kernel does. The called CPU takes all requests of its queue and answers them in their
//! order. Requests are queued and taken at a CPU's turn, so their order is that of virtual time.
//!
//! A recorded CPU calls recorded CPUs; which CPUs of a larger machine these are is the call's
//! scope. CPUs of other groups that play the caller itself are called too, if the call reaches
//! them: they answer as another CPU does. A flush of translations leaves out a CPU without a task,
//! which flushes when it gets one (lazy TLB mode).
//!
//! The caller's poll of an answer costs a round of its wait loop. Transfers of the words that tell
//! it of the answer are part of what is recorded of it.

use crate::code::{CodeCall, Scope};
use crate::place::{CpuPlace, Places};
use mmscale_arch::{Cpu, CpuId, Ipi, Machine, OwnedValue};
use mmscale_sim::{Sim, SimOwnedI64};
use std::cell::{Cell, RefCell};

/// A request to a CPU.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The answer that it plays.
    pub(crate) answer: u32,
    /// The place of the CPU that calls.
    pub(crate) sender: CpuPlace,
}

/// The state of a CPU that is called.
struct Called {
    requests: RefCell<Vec<Request>>,
    /// Requests that were queued so far.
    queued: Cell<i64>,
    /// Requests that are answered.
    answered: SimOwnedI64,
    /// 1 if the CPU has no task.
    idle: SimOwnedI64,
}

/// A request that is waited for: the CPU, and the number of the request there.
pub(crate) type Ticket = (usize, i64);

/// The state of all CPUs.
pub(crate) struct Calls(Vec<Called>);

impl Calls {
    pub(crate) fn new(cpus: usize) -> Self {
        let called = || Called {
            requests: RefCell::default(),
            queued: Cell::new(0),
            answered: SimOwnedI64::zero(),
            idle: SimOwnedI64::zero(),
        };
        Self((0..cpus).map(|_| called()).collect())
    }
    /// Marks whether the running CPU has no task.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.0[Sim::cpu().index()].idle.set(idle.into());
    }
    /// Calls CPUs from the one at `place`. Adds what is to be waited for.
    pub(crate) fn send(
        &self,
        call: &CodeCall,
        place: &CpuPlace,
        places: &Places,
        tickets: &mut Vec<Ticket>,
    ) {
        let own = Sim::cpu().index();
        for (cpu, of) in places.cpus.iter().enumerate() {
            let Some(answer) = answer_of(call, place, of, cpu).filter(|_| cpu != own) else {
                continue;
            };
            let called = &self.0[cpu];
            // At this CPU's turn, as what follows.
            let is_idle = called.idle.peek(CpuId::new(cpu)) != 0;
            if is_idle && call.skips_idle {
                continue;
            }
            let mut requests = called.requests.borrow_mut();
            let is_first = requests.is_empty();
            requests.push(Request { answer, sender: *place });
            drop(requests);
            called.queued.set(called.queued.get() + 1);
            tickets.push((cpu, called.queued.get()));
            if is_first {
                Sim::ipi_send(CpuId::new(cpu), Ipi::CallFunction);
            }
        }
    }
    /// Takes the requests to the running CPU.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.0[Sim::cpu().index()].requests.borrow_mut())
    }
    /// Says that the running CPU has answered a request.
    pub(crate) fn answered(&self) {
        let answered = &self.0[Sim::cpu().index()].answered;
        answered.set(answered.get() + 1);
    }
    /// Whether a request is answered.
    pub(crate) fn is_answered(&self, (cpu, number): Ticket) -> bool {
        self.0[cpu].answered.peek(CpuId::new(cpu)) >= number
    }
}

/// Returns the answer to a call of the CPU at `from` by CPU `cpu`, which is at `to`; `None` if it
/// is not called.
fn answer_of(call: &CodeCall, from: &CpuPlace, to: &CpuPlace, cpu: usize) -> Option<u32> {
    let is_near = match call.scope {
        Scope::Group => to.group == from.group,
        Scope::Node => to.node == from.node,
        Scope::All => true,
    };
    if !is_near {
        return None;
    }
    let receivers = &call.receivers;
    match receivers.binary_search_by_key(&to.recorded, |(recorded, _)| *recorded) {
        Ok(at) => Some(receivers[at].1),
        Err(_) if to.recorded == call.sender => {
            receivers.get(cpu % receivers.len().max(1)).map(|of| of.1)
        }
        Err(_) => None,
    }
}
