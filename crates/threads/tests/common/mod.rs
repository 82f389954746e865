//! A kernel of closures, for tests of the machine.

use mmscale_arch::{
    Callbacks, CpuId, Ipi, Machine as _, Priority, Probe, TaskEntry, TaskId, TaskSpec,
};
use mmscale_threads::{Outcome, Threads, ThreadsConfig};
use std::sync::{Arc, Mutex, OnceLock};

type Hook<T> = OnceLock<Box<dyn Fn(T) + Send + Sync>>;
type Job = Box<dyn FnOnce() + Send>;

/// Runs closures as tasks and as callbacks.
#[derive(Default)]
pub(crate) struct Kernel {
    jobs: Mutex<Vec<Option<Job>>>,
    ipi: Hook<Ipi>,
    timer: Hook<()>,
    idle: Hook<&'static str>,
    hotplug: Hook<(&'static str, CpuId)>,
}

impl Kernel {
    pub(crate) fn on_ipi(&self, hook: impl Fn(Ipi) + Send + Sync + 'static) {
        assert!(self.ipi.set(Box::new(hook)).is_ok());
    }
    pub(crate) fn on_timer(&self, hook: impl Fn() + Send + Sync + 'static) {
        assert!(self.timer.set(Box::new(move |()| hook())).is_ok());
    }
    pub(crate) fn on_idle(&self, hook: impl Fn(&'static str) + Send + Sync + 'static) {
        assert!(self.idle.set(Box::new(hook)).is_ok());
    }
    pub(crate) fn on_hotplug(&self, hook: impl Fn(&'static str, CpuId) + Send + Sync + 'static) {
        assert!(self.hotplug.set(Box::new(move |(what, cpu)| hook(what, cpu))).is_ok());
    }
    pub(crate) fn spawn(
        &self,
        cpu: CpuId,
        priority: Priority,
        job: impl FnOnce() + Send + 'static,
    ) -> TaskId {
        let entry = {
            let mut jobs = self.jobs.lock().unwrap();
            jobs.push(Some(Box::new(job)));
            TaskEntry(jobs.len() as u64 - 1)
        };
        Threads::spawn(TaskSpec { cpu, per_cpu: false, priority, entry })
    }
}

impl Callbacks for Kernel {
    fn ipi(&self, reason: Ipi) {
        self.ipi.get().iter().for_each(|hook| hook(reason));
    }
    fn timer(&self) {
        self.timer.get().iter().for_each(|hook| hook(()));
    }
    fn idle_enter(&self) {
        self.idle.get().iter().for_each(|hook| hook("enter"));
    }
    fn idle_exit(&self) {
        self.idle.get().iter().for_each(|hook| hook("exit"));
    }
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        let job = self.jobs.lock().unwrap()[entry.0 as usize].take();
        job.expect("a task runs once")();
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.hotplug.get().iter().for_each(|hook| hook(("prepare", cpu)));
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.hotplug.get().iter().for_each(|hook| hook(("dead", cpu)));
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.hotplug.get().iter().for_each(|hook| hook(("online", cpu)));
    }
}

/// Makes a probe that records nothing.
pub(crate) fn deaf() -> Box<dyn Probe> {
    Box::new(())
}

/// `cpus` CPUs with a little memory, and a limit of a minute as the guard against hangs.
pub(crate) fn config(cpus: usize) -> ThreadsConfig {
    ThreadsConfig {
        cpus,
        hz: 250,
        seed: 0,
        memory_pages: 64,
        limit_ns: 60_000_000_000,
        interrupt: None,
    }
}

/// Boots a kernel and runs until its tasks have ended.
pub(crate) fn run(config: &ThreadsConfig, boot: impl FnOnce(&Arc<Kernel>) + Send) -> Outcome {
    mmscale_threads::run(
        config,
        |_| Box::new(()),
        || {
            let kernel = Arc::new(Kernel::default());
            boot(&kernel);
            kernel
        },
    )
}

/// Like [`run`], with the default configuration.
pub(crate) fn go(cpus: usize, boot: impl FnOnce(&Arc<Kernel>) + Send) -> Outcome {
    run(&config(cpus), boot)
}

/// Spawns a fair task.
pub(crate) fn task(
    kernel: &Arc<Kernel>,
    cpu: usize,
    job: impl FnOnce() + Send + 'static,
) -> TaskId {
    kernel.spawn(CpuId::new(cpu), Priority::Fair, job)
}
