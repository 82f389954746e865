//! How far the runs are, on stderr: a bar on a terminal, a line for each run elsewhere.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mmscale_study::{Plan, ProgressSink, RunEvent};

use crate::output;

/// Steps of the bar for one run.
const STEPS: f64 = 1000.0;

/// The progress of a plan, number `number` of `of`.
pub(crate) fn watch(plan: &Plan, number: usize, of: usize) -> Arc<dyn ProgressSink> {
    let arms: Vec<&str> = plan.arms.iter().map(|arm| plan.study.arms()[arm.0].name).collect();
    let mut title = format!("{} on {}, {} CPUs", plan.study.name(), plan.on, plan.cpus);
    if of > 1 {
        title = format!("[{number}/{of}] {title}");
    }
    let runs = plan.runs();
    if std::io::stderr().is_terminal() {
        return Arc::new(Bar::new(title, runs));
    }
    let noun = if runs == 1 { "run" } else { "runs" };
    output::tell(&format!("{title}: {} ({runs} {noun})", arms.join(", ")));
    Arc::new(Lines { study: plan.study.name(), runs, finished: Mutex::new(0) })
}

struct Lines {
    study: &'static str,
    runs: usize,
    finished: Mutex<usize>,
}

impl ProgressSink for Lines {
    fn event(&self, event: RunEvent) {
        if let RunEvent::Finished { .. } = event {
            // Held while printing, so that the lines come in order. A poisoned lock still holds a
            // whole number.
            let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            *finished += 1;
            output::tell(&format!("{}: {finished} of {} runs done", self.study, self.runs));
        }
    }
}

struct Bar {
    bar: ProgressBar,
    /// How much of each run is done, 0 to 1.
    done: Mutex<Vec<f64>>,
}

impl Bar {
    fn new(title: String, runs: usize) -> Self {
        let bar = ProgressBar::new((runs as f64 * STEPS) as u64);
        let style =
            ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed} (eta {eta})");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(title);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, done: Mutex::new(vec![0.0; runs]) }
    }

    fn set(&self, run: usize, fraction: f64) {
        // A poisoned lock still holds whole numbers.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done[run] = fraction;
        self.bar.set_position((done.iter().sum::<f64>() * STEPS) as u64);
    }
}

impl ProgressSink for Bar {
    fn event(&self, event: RunEvent) {
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Advanced { run, fraction } => self.set(run, fraction),
            RunEvent::Finished { run } => self.set(run, 1.0),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
