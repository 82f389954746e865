//! Running a machine: coroutines, and the loop that resumes them.

use crate::config::SimConfig;
use crate::engine::Engine;
use crate::engine::context::{callbacks, enter, with};
use crate::idle::idle_loop;
use crate::outcome::{Failure, Lateness, Outcome};
use crate::rng::Mix64;
use crate::sched::exit;
use crate::stack::ColouredStack;
use crate::task::{Body, STOP};
use corosensei::{Coroutine, CoroutineResult};
use mmscale_arch::{Callbacks, CpuId, MAX_CPUS, Probe};
use mmscale_document::Timeline;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

type TaskCoroutine = Coroutine<(), u32, u32, ColouredStack>;

/// Runs a machine until all its tasks have returned.
///
/// `probe` makes each CPU's probe. `boot` runs on CPU 0 at time 0, before any task: it makes the
/// owner of the callbacks, may create locks and atomics, arm CPU 0's timer and spawn tasks, and
/// takes no virtual time. Everything made in `boot` lives on this host thread.
///
/// # Panics
/// If `config.cpus` is 0 or above `MAX_CPUS`, or if a machine runs on this host thread already.
/// Panics of code on the machine, and stacks that the host refuses, are in the outcome instead.
pub fn run<K: Callbacks + 'static>(
    config: SimConfig,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
    boot: impl FnOnce() -> Rc<K>,
) -> Outcome {
    assert!((1..=MAX_CPUS).contains(&config.cpus), "a machine has 1 to {MAX_CPUS} cpus");
    let mut engine = Engine::new(config, probe);
    let inside = enter(&mut engine);
    let mut runner = Runner::default();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let owner: Rc<dyn Callbacks> = boot();
        with(|engine| {
            engine.callbacks = Some(owner);
            engine.start();
        });
        runner.drive();
    }));
    with(|engine| {
        if let Err(payload) = result {
            let failure =
                Failure::Panic { message: message_of(&*payload), location: engine.location() };
            engine.failure = Some(failure);
        }
        engine.die();
    });
    runner.unwind();
    drop(inside);
    engine.into_outcome()
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The coroutines of all tasks, by task number; each is made when its task first runs.
#[derive(Default)]
struct Runner {
    coroutines: Vec<Option<TaskCoroutine>>,
}

impl Runner {
    fn drive(&mut self) {
        let mut next = with(Engine::first);
        while next != STOP {
            next = match self.coroutines.get_mut(next as usize) {
                Some(Some(coroutine)) => match coroutine.resume(()) {
                    CoroutineResult::Yield(after) => after,
                    CoroutineResult::Return(after) => {
                        self.coroutines[next as usize] = None;
                        after
                    }
                },
                _ => {
                    if self.make(next as usize) {
                        next
                    } else {
                        STOP
                    }
                }
            };
        }
    }
    /// Makes the coroutine of a task; returns whether that worked. If not, the run has failed: a
    /// panic would need memory for its message, and there may be none.
    #[cold]
    fn make(&mut self, task: usize) -> bool {
        let stack = match ColouredStack::new(task) {
            Ok(stack) => stack,
            Err(error) => {
                let reason = error.to_string();
                with(|engine| engine.failure = Some(Failure::NoStack { task, reason }));
                return false;
            }
        };
        if self.coroutines.len() <= task {
            self.coroutines.resize_with(task + 1, || None);
        }
        let address = self.coroutines.as_ptr().addr();
        let body = with(|engine| {
            engine.prefetch.set_coroutines(address, size_of::<Option<TaskCoroutine>>());
            engine.tasks[task].body
        });
        self.coroutines[task] = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            with(|engine| engine.begin_task(task, yielder));
            match body {
                Body::Idle => {
                    idle_loop();
                    return STOP;
                }
                Body::Entry(entry) => {
                    if let Some(callbacks) = callbacks() {
                        callbacks.task(entry);
                    }
                }
            }
            with(Engine::check_task_end);
            exit()
        }));
        true
    }
    /// Ends the remaining coroutines. Idle tasks that wait return; the stacks of others unwind,
    /// which takes a hundred times as long, and guards on them have no effect.
    fn unwind(mut self) {
        for (task, coroutine) in self.coroutines.drain(..).enumerate() {
            let Some(mut coroutine) = coroutine else { continue };
            if !coroutine.done() && with(|engine| engine.has_stopped(task)) {
                coroutine.resume(());
            }
        }
    }
}

impl Engine {
    /// Ends the machine.
    fn into_outcome(mut self) -> Outcome {
        let locks = self.stats.lock_rows();
        let mut mix = Mix64::new();
        [
            self.end_ps,
            self.events,
            self.delays.interrupts,
            self.delays.max_ps,
            self.delays.total_ps,
        ]
        .into_iter()
        .for_each(|word| mix.word(word));
        for cpu in self.cpus.iter() {
            [cpu.clock, cpu.rng.state(), cpu.noise_rng.state()]
                .into_iter()
                .for_each(|word| mix.word(word));
        }
        for row in &locks {
            mix.text(&row.class);
            row.path.iter().for_each(|name| mix.text(name));
            let figures = [row.acquisitions, row.contentions, row.wait_total_ns];
            figures.into_iter().for_each(|word| mix.word(word));
            [row.wait_max_ns, row.hold_total_ns].into_iter().for_each(|word| mix.word(word));
        }
        let sections = self.take_sections(&mut mix);
        Outcome {
            virtual_ns: self.end_ps / 1000,
            events: self.events,
            fingerprint: mix.finish(),
            locks,
            calls: self.stats.call_rows(),
            lines: self.stats.line_rows(),
            stranded_ns: self.sharing.finish(self.end_ps) / 1000,
            lateness: Lateness {
                interrupts: self.delays.interrupts,
                max_ns: self.delays.max_ps / 1000,
                mean_ns: self.delays.total_ps.checked_div(self.delays.interrupts).unwrap_or(0)
                    / 1000,
            },
            sections,
            blame: self.blame.map(|blame| blame.into_rows(&self.stats)).unwrap_or_default(),
            timeline: self
                .recorder
                .map_or_else(Timeline::default, |recorder| recorder.into_timeline(&self.stats)),
            trail: self.tracker.finish(),
            violations: self.checker.take_violations(),
            failure: self.failure,
            probes: self.probes,
        }
    }
}
