//! Interrupts, preemption points and the passing of time on the running CPU.
//!
//! The simple version: before each step a CPU checks for interrupts that have arrived. The real
//! one: it checks only at delivery points, which are operations on shared state, charges that reach
//! a checkpoint, turning interrupts or preemption on, wait loops and idle. At each of them the CPU
//! waits for its turn first, because only then are all interrupts known that other CPUs sent before
//! its time. So it takes the same interrupts at the same times under either policy.
//!
//! A checkpoint is at most 500 ns after the last one, or at the time of a timer, or of an interrupt
//! that was known when it was planned. Turning interrupts on is a delivery point only if a
//! checkpoint has passed while they were off. In the example of [`crate::engine`], CPU 1 turns them
//! on at 330 with its next checkpoint at 500, so the interrupt waits for the atomic load, the next
//! operation on shared state. How late interrupts are is part of the outcome.

use crate::cpu::{Reason, WaitState};
use crate::engine::context::{callbacks, outside, suspend, with, with_any};
use crate::engine::turn::turn;
use crate::engine::{Engine, ReadyState};
use crate::heap::{NEVER, order_of};
use crate::prefetch::NO_ADDRESS;
use crate::record::stats::INTERRUPT_PATH;
use crate::sched;
use crate::task::Switch;
use mmscale_arch::{CpuId, Ipi, IrqState, Op};

/// How a charge ended.
enum ChargeStep {
    Done,
    /// All of the time has passed, and the naive policy wants a turn.
    Turn,
    /// A checkpoint precedes the rest.
    Check,
}

/// State of the CPU that an interrupt restores at its end.
pub(crate) struct Interrupted {
    path: u32,
    preempt: u32,
    started_irq: Option<Reason>,
}

/// The next thing due at a delivery point.
enum Pending {
    Nothing,
    Interrupt(Interrupted),
    Preempt,
}

/// Runs `f` at the running CPU's turn, after the interrupts that have arrived by then; `None` if no
/// engine runs on this host thread. `near` returns the host address of the first data that `f`
/// uses, to be fetched before the turn.
#[inline(always)]
pub(crate) fn at_turn_if_any<R>(
    near: impl Fn(&Engine) -> usize,
    mut f: impl FnMut(&mut Engine) -> R,
) -> Option<R> {
    loop {
        let done = with_any(|engine| {
            let state = engine.ready_state(&near);
            if state.is_ready() { Ok(f(engine)) } else { Err(state) }
        })?;
        match done.map_err(ReadyState::switch) {
            Ok(result) => return Some(result),
            Err(Some(switch)) => suspend(switch),
            Err(None) => deliver(),
        }
    }
}

/// Runs `f` at the running CPU's turn, after the interrupts that have arrived by then.
#[inline(always)]
pub(crate) fn at_turn<R>(f: impl FnMut(&mut Engine) -> R) -> R {
    at_turn_near(|_| NO_ADDRESS, f)
}

/// Like [`at_turn`], with `near` as for [`at_turn_if_any`].
#[inline(always)]
pub(crate) fn at_turn_near<R>(
    near: impl Fn(&Engine) -> usize,
    f: impl FnMut(&mut Engine) -> R,
) -> R {
    match at_turn_if_any(near, f) {
        Some(result) => result,
        None => outside(),
    }
}

/// Charges the running CPU `ps` of its own work, with interrupts in between if they are on.
#[inline]
pub(crate) fn charge(ps: u64) {
    let mut left = ps;
    match with(|engine| engine.advance(&mut left)) {
        ChargeStep::Done => {}
        step => charge_rest(step, left),
    }
}

/// Charges the running CPU the cost of `count` times `op`.
#[inline]
pub(crate) fn work(op: Op, count: u32) {
    charge_of(|engine| engine.op_ps(op, count));
}

/// Charges the running CPU the time, in ps, that `cost` returns.
#[inline(always)]
pub(crate) fn charge_of(cost: impl FnOnce(&mut Engine) -> u64) {
    let mut left = 0;
    let step = with(|engine| {
        left = cost(engine);
        engine.advance(&mut left)
    });
    match step {
        ChargeStep::Done => {}
        step => charge_rest(step, left),
    }
}

/// Lets the current task compute for `ps`. If that fits before the next checkpoint it is a charge;
/// otherwise the CPU waits, so that a long computation costs the host only its interrupts.
pub(crate) fn user(ps: u64) {
    let mut left = ps;
    while let Some(step) = with(|engine| engine.compute(&mut left)) {
        match step {
            ComputeStep::Passed => {}
            ComputeStep::Turn => turn(),
            ComputeStep::Check => checkpoint(),
            ComputeStep::Wait(switch, since) => {
                suspend(switch);
                with(|engine| left = left.saturating_sub(engine.cpu().clock - since));
            }
        }
    }
    if with(|engine| engine.naive) {
        turn();
    }
}

/// How a task's computation continues.
enum ComputeStep {
    /// The part up to this point has passed.
    Passed,
    /// The CPU's turn comes first. No checkpoint: one would be planned at this time only if other
    /// CPUs are behind, which depends on the policy.
    Turn,
    /// Interrupts or noise come first.
    Check,
    /// The CPU waits, since the given time.
    Wait(Switch, u64),
}

#[cold]
#[inline(never)]
fn charge_rest(mut step: ChargeStep, mut left: u64) {
    loop {
        match step {
            ChargeStep::Done => return,
            ChargeStep::Turn => return turn(),
            ChargeStep::Check => checkpoint(),
        }
        step = with(|engine| engine.advance(&mut left));
    }
}

/// Applies noise that is due, then delivers interrupts.
#[cold]
#[inline(never)]
fn checkpoint() {
    if with(Engine::suffer_noise) {
        deliver();
    }
}

/// Takes all interrupts that have arrived, in the order of their arrival; then runs a more urgent
/// task, if one waits. Returns at the CPU's turn.
#[inline(never)]
pub(crate) fn deliver() {
    loop {
        turn();
        match with(Engine::find_interrupt) {
            Pending::Nothing => return,
            Pending::Preempt => sched::schedule(sched::SwitchReason::Preempt),
            Pending::Interrupt(interrupted) => {
                if interrupted.started_irq.is_none() {
                    with(Engine::set_speed);
                }
                if let Some(callbacks) = callbacks() {
                    match interrupted.started_irq {
                        None => callbacks.timer(),
                        Some(Reason::Ipi(ipi)) => callbacks.ipi(ipi),
                        Some(Reason::Resched) => {}
                    }
                }
                // The end of a time slice depends on the tasks that wait for the CPU now.
                if with(|engine| interrupted.started_irq.is_none() && engine.is_slice_used_up()) {
                    turn();
                }
                with(|engine| engine.end_interrupt(&interrupted));
            }
        }
    }
}

/// Turns interrupts off.
#[inline]
pub(crate) fn save() -> IrqState {
    let before = with_any(|engine| {
        let cpu = engine.cpu();
        let before = !cpu.irq_off;
        cpu.irqs_off();
        before
    });
    IrqState(before.unwrap_or(true))
}

/// Restores an earlier interrupt state.
#[inline]
pub(crate) fn restore(before: IrqState) {
    let check = with_any(|engine| {
        let quiet = engine.quiet;
        let cpu = engine.cpu();
        if !before.0 {
            cpu.irqs_off();
            return false;
        }
        cpu.irqs_on();
        !quiet && (cpu.clock >= cpu.check_at || cpu.need_resched && cpu.preempt == 0)
    });
    if check == Some(true) {
        checkpoint();
    }
}

#[inline]
pub(crate) fn preempt_disable() {
    with_any(|engine| {
        let cpu = engine.cpu();
        cpu.open_section();
        cpu.preempt += 1;
    });
}

#[inline]
pub(crate) fn preempt_enable() {
    let resched = with_any(|engine| {
        let quiet = engine.quiet;
        let cpu = engine.cpu();
        cpu.preempt = cpu.preempt.saturating_sub(1);
        if cpu.preempt != 0 || cpu.irq_off {
            return false;
        }
        cpu.close_section();
        cpu.need_resched && !quiet
    });
    if resched == Some(true) {
        deliver();
    }
}

/// Runs a more urgent task first, if preemption and interrupts are on.
#[inline]
pub(crate) fn cond_resched() {
    let resched = with(|engine| {
        let quiet = engine.quiet;
        let cpu = engine.cpu();
        cpu.need_resched && cpu.preempt == 0 && !cpu.irq_off && !quiet
    });
    if resched {
        deliver();
    }
}

/// Passes one round of a wait loop. It takes as long as `pause` does on the machines of the
/// profiles, so that time passes in a loop without any other cost.
pub(crate) fn relax() {
    const RELAX_PS: u64 = 40_000;
    charge_of(|engine| {
        engine.loop_begins();
        RELAX_PS
    });
    deliver();
    with(|engine| {
        engine.loop_ends();
        engine.count_event();
    });
}

/// Sends `reason` to CPU `to`.
pub(crate) fn send(to: CpuId, reason: Ipi) {
    at_turn(|engine| engine.send(to.index(), Reason::Ipi(reason)));
}

/// Arms or cancels (`NEVER`) the running CPU's timer.
pub(crate) fn set_timer(time_ps: u64) {
    with(|engine| {
        let cpu = engine.cpu();
        cpu.set_timer(time_ps);
        cpu.check_by(time_ps);
    });
}

impl Engine {
    /// Passes up to `left` of the running CPU's time, as far as the next checkpoint.
    #[inline]
    fn advance(&mut self, left: &mut u64) -> ChargeStep {
        let cpu = self.cpus.running_mut();
        let to = cpu.clock + *left;
        if to < cpu.stop_at {
            cpu.clock = to;
            // A charge of zero is no step.
            let passed = core::mem::take(left) > 0;
            return if self.naive && passed { ChargeStep::Turn } else { ChargeStep::Done };
        }
        if self.quiet {
            return ChargeStep::Done;
        }
        let part = cpu.stop_at.saturating_sub(cpu.clock);
        cpu.clock += part;
        *left -= part;
        ChargeStep::Check
    }
    /// Passes up to `left` of a task's computation; `None` when all has passed.
    fn compute(&mut self, left: &mut u64) -> Option<ComputeStep> {
        if self.quiet || *left == 0 {
            return None;
        }
        let cpu = self.cpus.running_mut();
        let end = cpu.clock + *left;
        if end < cpu.stop_at {
            cpu.clock = end;
            *left = 0;
            return Some(ComputeStep::Passed);
        }
        let noise_at = if cpu.irq_off { cpu.steal_at } else { cpu.steal_at.min(cpu.device_at) };
        let resched = cpu.need_resched && cpu.preempt == 0;
        let open = !cpu.irq_off;
        if open && !self.heap.is_first(cpu.order()) {
            return Some(ComputeStep::Turn);
        }
        let due = open && (cpu.irq_due() || resched);
        if due || noise_at <= cpu.clock {
            return Some(ComputeStep::Check);
        }
        let until = end.min(noise_at).min(if open { cpu.ipi_at } else { NEVER });
        if !open || until < cpu.timer && self.heap.is_first(order_of(until, cpu.rank)) {
            *left -= until - cpu.clock;
            cpu.clock = until;
            return Some(ComputeStep::Passed);
        }
        let since = cpu.clock;
        Some(ComputeStep::Wait(self.block(WaitState::User, until), since))
    }
    /// Starts the first interrupt that has arrived. At the running CPU's turn.
    fn find_interrupt(&mut self) -> Pending {
        let irq_ps = self.costs.irq_ps;
        if self.quiet || self.cpu().irq_off {
            return Pending::Nothing;
        }
        let cpu = self.cpu();
        if cpu.irq_at <= cpu.clock
            && let Some((started_irq, arrival)) = cpu.take_due()
        {
            let interrupted = Interrupted { path: cpu.path, preempt: cpu.preempt, started_irq };
            let late = cpu.clock - arrival;
            cpu.irqs_off();
            cpu.in_irq = true;
            self.go_to_path(INTERRUPT_PATH);
            self.cpu().clock += irq_ps;
            self.delays.interrupts += 1;
            self.delays.max_ps = self.delays.max_ps.max(late);
            self.delays.total_ps += late;
            self.count_event();
            if started_irq == Some(Reason::Ipi(Ipi::Block)) {
                self.plan_block_interrupt();
            }
            return Pending::Interrupt(interrupted);
        }
        if cpu.need_resched && cpu.preempt == 0 {
            return Pending::Preempt;
        }
        cpu.plan_check();
        Pending::Nothing
    }
    /// Ends an interrupt: restores the state that it found.
    fn end_interrupt(&mut self, interrupted: &Interrupted) {
        self.check_interrupt_end(interrupted.preempt);
        let slice_over = interrupted.started_irq.is_none() && self.slice_over();
        self.go_to_path(interrupted.path);
        let cpu = self.cpu();
        cpu.preempt = interrupted.preempt;
        cpu.in_irq = false;
        cpu.irqs_on();
        match interrupted.started_irq {
            Some(Reason::Resched) => cpu.need_resched = true,
            None => cpu.need_resched |= slice_over,
            Some(Reason::Ipi(_)) => {}
        }
    }
    /// Sends an interrupt from the running CPU, at its turn.
    pub(crate) fn send(&mut self, to: usize, reason: Reason) {
        let (delivery_ps, send_ps) = (self.costs.ipi_delivery_ps, self.costs.ipi_send_ps);
        if self.quiet || !self.check_ipi(to) {
            return;
        }
        if matches!(reason, Reason::Ipi(_)) && self.lost_ipi() {
            self.cpu().clock += send_ps;
            return;
        }
        let late_ps = self.late_ipi();
        let arrival = self.cpu().clock + delivery_ps.max(1) + late_ps;
        let ipi = match reason {
            Reason::Ipi(ipi) => Some(ipi),
            Reason::Resched => None,
        };
        self.record_sent(to, ipi, arrival);
        self.cpu().clock += send_ps;
        self.post(to, reason, arrival);
    }
    /// Makes `reason` arrive at CPU `to` at `time_ps`.
    pub(crate) fn post(&mut self, to: usize, reason: Reason, time_ps: u64) {
        let is_running = to == self.cpus.at();
        let target = &mut self.cpus[to];
        target.post(reason, time_ps);
        if is_running {
            target.check_by(time_ps);
        } else if target.heeds_irqs() {
            self.wake_by(to, time_ps);
        }
    }
}
