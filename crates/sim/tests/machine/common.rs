//! A scripted owner of the callbacks: tasks and handlers are closures.

use mmscale_arch::{Callbacks, CpuId, Ipi, Machine as _, Priority, TaskEntry, TaskId, TaskSpec};
use mmscale_sim::{Outcome, Sim, SimConfig, run, sample_profile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Job = Box<dyn FnOnce()>;
type Hook = Box<dyn Fn()>;
type IpiHook = Box<dyn Fn(Ipi)>;
type DyingHook = Box<dyn Fn() -> bool>;

/// Closures in place of a kernel.
#[derive(Default)]
pub(crate) struct Script {
    jobs: RefCell<Vec<Option<Job>>>,
    pub(crate) on_timer: RefCell<Option<Hook>>,
    pub(crate) on_ipi: RefCell<Option<IpiHook>>,
    pub(crate) on_idle_enter: RefCell<Option<Hook>>,
    pub(crate) on_idle_exit: RefCell<Option<Hook>>,
    pub(crate) on_switch: RefCell<Option<Hook>>,
    pub(crate) on_dead: RefCell<Option<Hook>>,
    pub(crate) on_dying: RefCell<Option<DyingHook>>,
    pub(crate) hotplug: RefCell<Vec<(&'static str, CpuId)>>,
    pub(crate) switches: Cell<u64>,
}

impl Script {
    /// Spawns a task.
    pub(crate) fn spawn_as(&self, spec: TaskSpec, job: impl FnOnce() + 'static) -> TaskId {
        let entry = TaskEntry(self.jobs.borrow().len() as u64);
        self.jobs.borrow_mut().push(Some(Box::new(job)));
        Sim::spawn(TaskSpec { entry, ..spec })
    }
    /// Spawns a fair task on `cpu`.
    pub(crate) fn spawn(&self, cpu: usize, job: impl FnOnce() + 'static) -> TaskId {
        self.spawn_as(fair(cpu), job)
    }
}

/// A fair task on `cpu`.
pub(crate) fn fair(cpu: usize) -> TaskSpec {
    TaskSpec { cpu: CpuId::new(cpu), per_cpu: false, priority: Priority::Fair, entry: TaskEntry(0) }
}

fn call(hook: &RefCell<Option<Hook>>) {
    if let Some(hook) = &*hook.borrow() {
        hook();
    }
}

impl Callbacks for Script {
    fn ipi(&self, reason: Ipi) {
        if let Some(hook) = &*self.on_ipi.borrow() {
            hook(reason);
        }
    }
    fn timer(&self) {
        call(&self.on_timer);
    }
    fn idle_enter(&self) {
        call(&self.on_idle_enter);
    }
    fn idle_exit(&self) {
        call(&self.on_idle_exit);
    }
    fn context_switch(&self) {
        self.switches.set(self.switches.get() + 1);
        call(&self.on_switch);
    }
    fn task(&self, entry: TaskEntry) {
        let job = self.jobs.borrow_mut()[entry.0 as usize].take();
        job.expect("a task starts once")();
    }
    fn cpu_dying(&self) -> bool {
        self.on_dying.borrow().as_ref().is_none_or(|hook| hook())
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.hotplug.borrow_mut().push(("down_prepare", cpu));
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.hotplug.borrow_mut().push(("dead", cpu));
        call(&self.on_dead);
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.hotplug.borrow_mut().push(("online", cpu));
    }
}

/// A small machine.
pub(crate) fn config(cpus: usize) -> SimConfig {
    SimConfig { limit_ns: 100_000_000, ..SimConfig::new(sample_profile(cpus), cpus) }
}

/// Runs a script.
pub(crate) fn run_script(config: SimConfig, boot: impl FnOnce(&Rc<Script>)) -> Outcome {
    run(
        config,
        |_| Box::new(()),
        || {
            let script = Rc::new(Script::default());
            boot(&script);
            script
        },
    )
}

/// Runs a script that must end without failure and violation.
pub(crate) fn run_well(config: SimConfig, boot: impl FnOnce(&Rc<Script>)) -> Outcome {
    let outcome = run_script(config, boot);
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.violations, []);
    outcome
}
