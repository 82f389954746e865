//! Progress of runs on stderr: a bar on a terminal, otherwise a line per run.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mmscale_document::plain;
use mmscale_harness::{Plan, ProgressSink, RunEvent};

use crate::output;

/// Steps of the bar per run.
const STEPS: f64 = 1000.0;

/// Returns the progress display of plan number `number` of `of`.
pub(crate) fn watch(plan: &Plan, number: usize, of: usize) -> Arc<dyn ProgressSink> {
    let arms: Vec<&str> = plan.arms.iter().map(|arm| plan.study.arms()[arm.0].name).collect();
    let cpus = if plan.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", plan.cpus) };
    let mut title = format!("{} on {}, {cpus}", plan.study.name(), plan.on);
    if of > 1 {
        title = format!("[{number}/{of}] {title}");
    }
    let runs = plan.runs();
    if std::io::stderr().is_terminal() {
        return Arc::new(Bar::new(title, runs));
    }
    let noun = if runs == 1 { "run" } else { "runs" };
    output::tell(&format!("{title}: {} ({runs} {noun})", arms.join(", ")));
    let told = Mutex::new(ProgressState { finished: 0, at: Instant::now() });
    Arc::new(Lines { study: plan.study.name(), runs, told })
}

/// Maximum time without a message while runs are in progress.
const SILENCE: Duration = Duration::from_secs(10);

struct Lines {
    study: &'static str,
    runs: usize,
    told: Mutex<ProgressState>,
}

/// Number of finished runs, and time of the last message.
struct ProgressState {
    finished: usize,
    at: Instant,
}

impl ProgressSink for Lines {
    fn event(&self, event: RunEvent) {
        // Held while printing, so that lines are in order. A poisoned lock still protects
        // consistent numbers.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Advanced { run, fraction } if told.at.elapsed() >= SILENCE => {
                let (study, percent) = (self.study, fraction * 100.0);
                output::tell(&format!("{study}: run {} is {percent:.0} % done", run + 1));
                told.at = Instant::now();
            }
            RunEvent::Advanced { .. } => {}
            RunEvent::Finished { .. } => {
                told.finished += 1;
                let finished = told.finished;
                output::tell(&format!("{}: {finished} of {} runs done", self.study, self.runs));
                told.at = Instant::now();
            }
        }
    }
}

struct Bar {
    bar: ProgressBar,
    /// Completed fraction of each run, 0 to 1.
    done: Mutex<Vec<f64>>,
}

impl Bar {
    fn new(title: String, runs: usize) -> Self {
        let bar = ProgressBar::new((runs as f64 * STEPS) as u64);
        let style =
            ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed} (eta {eta})");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(plain(&title).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, done: Mutex::new(vec![0.0; runs]) }
    }

    fn set(&self, run: usize, fraction: f64) {
        // A poisoned lock still protects consistent numbers.
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
