//! Progress of runs on stderr: a bar on a terminal, otherwise lines.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mmscale_document::plain;
use mmscale_harness::{Plan, ProgressSink, RunEvent};

use crate::estimate::{Estimate, shown, time_left};
use crate::output;

/// The most arms that are named when runs begin.
const NAMED_ARMS: usize = 8;

/// Steps of the bar per run.
const STEPS: f64 = 1000.0;

/// Options that make a call shorter.
const SHORTER: &str = "--quick, fewer --cpus, --seeds or --arm, or --set duration_ms where the \
                       study has it";

/// The progress of all plans of a call.
pub(crate) struct Call<'a> {
    plans: &'a [Plan],
    clock: Arc<Clock>,
}

/// The host time of a call so far, and its estimate for all runs.
struct Clock {
    begin: Instant,
    estimate: Mutex<Estimate>,
}

impl Clock {
    fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        Self { begin: Instant::now(), estimate: Mutex::new(Estimate::new(weights)) }
    }
    /// Records the completed fraction of a run.
    fn set(&self, run: usize, fraction: f64) {
        self.estimate().set(run, fraction);
    }
    /// Records that only the first `count` runs from `first` take place, of those before `end`.
    fn keep(&self, first: usize, count: usize, end: usize) {
        (first + count..end).for_each(|run| self.estimate().drop_run(run));
    }
    /// Returns the announcement of a long call, once.
    fn announce(&self) -> Option<String> {
        self.estimate().announce(self.begin.elapsed(), SHORTER)
    }
    /// Returns the time left in words; empty if it is not known.
    fn left(&self) -> String {
        let left = self.estimate().left(self.begin.elapsed());
        left.filter(|left| *left >= SILENCE)
            .map_or(String::new(), |left| format!(", about {} left", shown(left)))
    }
    fn estimate(&self) -> MutexGuard<'_, Estimate> {
        // A poisoned lock still protects consistent numbers.
        self.estimate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of many runs that are shown together: those of a sweep or of an analysis.
pub(crate) struct Many {
    bar: ProgressBar,
    runs: usize,
    told: Mutex<ProgressState>,
    clock: Arc<Clock>,
}

impl Many {
    /// Starts the clock of runs with these weights ([`Estimate::new`]).
    pub(crate) fn new(weights: impl IntoIterator<Item = f64>) -> Arc<Self> {
        let weights: Vec<f64> = weights.into_iter().collect();
        let runs = weights.len();
        // The bar hides itself if stderr is not a terminal.
        let bar = ProgressBar::new(runs as u64);
        let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} runs {elapsed}{msg}");
        bar.set_style(style.expect("the template is well-formed"));
        let told = Mutex::new(ProgressState { finished: 0, at: Instant::now() });
        Arc::new(Self { bar, runs, told, clock: Arc::new(Clock::new(weights)) })
    }

    /// Returns the receiver of the progress of a run.
    pub(crate) fn of_run(self: &Arc<Self>, run: usize) -> Arc<dyn ProgressSink> {
        Arc::new(OneOfMany { all: Arc::clone(self), run })
    }

    /// Records the end of a run, even of one that failed.
    pub(crate) fn ended(&self, run: usize) {
        self.tell(run, 1.0, 1);
    }

    /// Ends the display.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn tell(&self, run: usize, fraction: f64, finished: usize) {
        self.clock.set(run, fraction);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.finished += finished;
        let left = self.clock.left();
        self.bar.set_position(told.finished as u64);
        self.bar.set_message(left.clone());
        if let Some(long) = self.clock.announce() {
            self.bar.suspend(|| output::tell(&long));
        }
        if self.bar.is_hidden() && told.at.elapsed() >= SILENCE {
            output::tell(&format!("{} of {} runs done{left}", told.finished, self.runs));
            told.at = Instant::now();
        }
    }
}

/// One of many runs.
struct OneOfMany {
    all: Arc<Many>,
    run: usize,
}

impl ProgressSink for OneOfMany {
    fn event(&self, event: RunEvent) {
        if let RunEvent::Advanced { fraction, .. } = event {
            self.all.tell(self.run, fraction, 0);
        }
    }
}

impl<'a> Call<'a> {
    /// Starts the clock of a call. A run is expected to take as long as it has CPUs.
    pub(crate) fn new(plans: &'a [Plan]) -> Self {
        let runs = |plan: &Plan| std::iter::repeat_n(plan.cpus as f64, plan.runs());
        Self { plans, clock: Arc::new(Clock::new(plans.iter().flat_map(runs))) }
    }

    /// Returns the progress display of the plan at `place`.
    pub(crate) fn watch(&self, place: usize) -> Arc<dyn ProgressSink> {
        let first = self.plans[..place].iter().map(Plan::runs).sum();
        let clock = Arc::clone(&self.clock);
        watch(&self.plans[place], place + 1, self.plans.len(), (clock, first))
    }
}

/// Returns the progress display of plan number `number` of `of`. `clock` has the number of its
/// first run in the call.
fn watch(
    plan: &Plan,
    number: usize,
    of: usize,
    (clock, first): (Arc<Clock>, usize),
) -> Arc<dyn ProgressSink> {
    let arms: Vec<&str> = plan.arms.iter().map(|arm| &*plan.study.arms()[arm.0].name).collect();
    let arms = match arms.len() {
        ..=NAMED_ARMS => arms.join(", "),
        more => format!("{more} arms"),
    };
    let cpus = if plan.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", plan.cpus) };
    let mut title = format!("{} on {}, {cpus}", plan.study.name(), plan.on);
    if of > 1 {
        title = format!("[{number}/{of}] {title}");
    }
    if std::io::stderr().is_terminal() {
        return Arc::new(Bar::new(title, plan.runs(), (clock, first)));
    }
    let least = plan.least_runs();
    let runs = if plan.runs() == least { String::new() } else { format!(" to {}", plan.runs()) };
    let noun = if plan.runs() == 1 { "run" } else { "runs" };
    output::tell(&format!("{title}: {arms} ({least}{runs} {noun})"));
    let told = Mutex::new(ProgressState { finished: 0, at: Instant::now() });
    let (study, most) = (plan.study.name().to_owned(), plan.runs());
    Arc::new(Lines { study, runs: AtomicUsize::new(least), most, told, clock, first })
}

/// Maximum time without a message while runs are in progress.
const SILENCE: Duration = Duration::from_secs(10);

/// Progress of an analysis of many runs on stderr: their number, and an estimate of the time left.
pub(crate) struct Analysis {
    name: String,
    began: Instant,
    bar: ProgressBar,
    told: Mutex<Instant>,
}

impl Analysis {
    /// Begins the display of an analysis with this name.
    pub(crate) fn begin(name: String) -> Self {
        // The bar hides itself if stderr is not a terminal.
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template(
            "{msg} [{wide_bar}] {pos}/{len} runs {elapsed} (eta {eta})",
        );
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(name.clone());
        let now = Instant::now();
        Self { name, began: now, bar, told: Mutex::new(now) }
    }

    /// Shows the number of finished runs.
    pub(crate) fn show(&self, finished: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.bar.set_position(finished as u64);
        if std::io::stderr().is_terminal() {
            return;
        }
        // Held while printing, so that lines are in order. The value is consistent if poisoned.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= SILENCE {
            let left = time_left(self.began.elapsed(), finished, all);
            output::tell(&format!("{}: {finished} of {all} runs done{left}", self.name));
            *told = Instant::now();
        }
    }
}

impl Drop for Analysis {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Lines {
    study: String,
    /// The number of runs, as far as it is decided.
    runs: AtomicUsize,
    /// The largest number of runs.
    most: usize,
    told: Mutex<ProgressState>,
    clock: Arc<Clock>,
    /// The number of the plan's first run in the call.
    first: usize,
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
        let study = &self.study;
        let runs = self.runs.load(Ordering::Relaxed);
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Decided { runs } => {
                self.clock.keep(self.first, runs, self.first + self.most);
                self.runs.store(runs, Ordering::Relaxed);
            }
            RunEvent::Advanced { run, fraction } => {
                self.clock.set(self.first + run, fraction);
                if told.at.elapsed() >= SILENCE {
                    let (percent, left) = (fraction * 100.0, self.clock.left());
                    output::tell(&format!("{study}: run {} is {percent:.0} % done{left}", run + 1));
                    told.at = Instant::now();
                }
            }
            RunEvent::Finished { run } => {
                self.clock.set(self.first + run, 1.0);
                told.finished += 1;
                let (finished, left) = (told.finished, self.clock.left());
                output::tell(&format!("{study}: {finished} of {runs} runs done{left}"));
                told.at = Instant::now();
            }
        }
        if let Some(long) = self.clock.announce() {
            output::tell(&format!("{study}: {long}"));
        }
    }
}

struct Bar {
    bar: ProgressBar,
    /// Completed fraction of each run, 0 to 1.
    done: Mutex<Vec<f64>>,
    clock: Arc<Clock>,
    /// The number of the plan's first run in the call.
    first: usize,
}

impl Bar {
    fn new(title: String, runs: usize, (clock, first): (Arc<Clock>, usize)) -> Self {
        let bar = ProgressBar::new((runs as f64 * STEPS) as u64);
        let style =
            ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed} (eta {eta})");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_message(plain(&title).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, done: Mutex::new(vec![0.0; runs]), clock, first }
    }

    /// Ends the bar after the first `runs` runs.
    fn keep(&self, runs: usize) {
        // A poisoned lock still protects consistent numbers.
        let most = self.done.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.clock.keep(self.first, runs, self.first + most);
        self.bar.set_length((runs as f64 * STEPS) as u64);
    }

    fn set(&self, run: usize, fraction: f64) {
        // A poisoned lock still protects consistent numbers.
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done[run] = fraction;
        self.bar.set_position((done.iter().sum::<f64>() * STEPS) as u64);
        self.clock.set(self.first + run, fraction);
        if let Some(long) = self.clock.announce() {
            self.bar.suspend(|| output::tell(&long));
        }
    }
}

impl ProgressSink for Bar {
    fn event(&self, event: RunEvent) {
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Advanced { run, fraction } => self.set(run, fraction),
            RunEvent::Finished { run } => self.set(run, 1.0),
            RunEvent::Decided { runs } => self.keep(runs),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
