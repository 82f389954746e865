//! Progress of runs on stderr: a bar on a terminal, otherwise lines.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mmscale_document::plain;
use mmscale_harness::{Plan, ProgressSink, RunEvent, workers};

use crate::estimate::{Due, Estimate, time_left};
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
    fn new(runs: impl IntoIterator<Item = Due>, workers: usize) -> Self {
        let estimate = Mutex::new(Estimate::new(runs, workers));
        Self { begin: Instant::now(), estimate }
    }
    /// Records an event of runs that are numbered from `runs.start` in the call.
    fn event(&self, event: RunEvent, runs: Range<usize>) {
        let mut estimate = self.estimate();
        let first = runs.start;
        match event {
            RunEvent::Started { run, at, .. } => {
                estimate.begin(first + run, at.saturating_duration_since(self.begin));
            }
            RunEvent::Advanced { run, fraction } => estimate.set(first + run, fraction),
            RunEvent::Finished { run, took } => estimate.end(first + run, Some(took)),
            RunEvent::Failed { run } => estimate.end(first + run, None),
            RunEvent::Decided { runs: count } => estimate.decide(runs, count),
        }
    }
    /// Records that a run has ended, whether it began here or not.
    fn over(&self, run: usize) {
        self.estimate().end(run, None);
    }
    /// Returns the announcement of a long call, once.
    fn announce(&self) -> Option<String> {
        self.estimate().announce(self.begin.elapsed(), SHORTER)
    }
    /// Returns the time left in words; empty if it is not known.
    fn left(&self) -> String {
        let left = self.estimate().left(self.begin.elapsed());
        left.map_or(String::new(), |left| left.words(SILENCE))
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
    /// Starts the clock of runs on so many workers.
    pub(crate) fn new(runs: impl IntoIterator<Item = Due>, workers: usize) -> Arc<Self> {
        let due: Vec<Due> = runs.into_iter().collect();
        let runs = due.len();
        // The bar hides itself if stderr is not a terminal.
        let bar = ProgressBar::new(runs as u64);
        let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} runs {elapsed}{msg}");
        bar.set_style(style.expect("the template is well-formed"));
        let told = Mutex::new(ProgressState { finished: 0, at: Instant::now() });
        Arc::new(Self { bar, runs, told, clock: Arc::new(Clock::new(due, workers)) })
    }

    /// Returns the receiver of the progress of a run.
    pub(crate) fn of_run(self: &Arc<Self>, run: usize) -> Arc<dyn ProgressSink> {
        Arc::new(OneOfMany { all: Arc::clone(self), run })
    }

    /// Records the end of a run, even of one that failed.
    pub(crate) fn ended(&self, run: usize) {
        self.clock.over(run);
        self.tell(1);
    }

    /// Ends the display.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn tell(&self, finished: usize) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.finished += finished;
        self.bar.set_position(told.finished as u64);
        if let Some(long) = self.clock.announce() {
            self.bar.suspend(|| output::tell(&long));
        }
        let hidden = self.bar.is_hidden();
        if told.at.elapsed() < if hidden { SILENCE } else { REFRESH } {
            return;
        }
        told.at = Instant::now();
        let left = self.clock.left();
        if hidden {
            output::tell(&format!("{} of {} runs done{left}", told.finished, self.runs));
        } else {
            self.bar.set_message(left);
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
        self.all.clock.event(event, self.run..self.run + 1);
        self.all.tell(0);
    }
}

impl<'a> Call<'a> {
    /// Starts the clock of a call. Before anything is known about an arm, a run is expected to take
    /// as long as it has CPUs.
    pub(crate) fn new(plans: &'a [Plan]) -> Self {
        let study = |plan: &Plan| plans.iter().position(|of| of.study.name() == plan.study.name());
        let due = plans.iter().enumerate().flat_map(|(batch, plan)| {
            let (arms, least) = (plan.arms.len(), plan.least_runs());
            let first: usize = plans[..batch].iter().map(|plan| plan.arms.len()).sum();
            let study = study(plan).expect("it is one of them");
            (0..plan.runs()).map(move |run| Due {
                kind: first + run % arms,
                study,
                batch,
                weight: plan.cpus as f64,
                if_needed: run >= least,
            })
        });
        Self { plans, clock: Arc::new(Clock::new(due, workers(plans))) }
    }

    /// Returns the progress display of the plan at `place`.
    pub(crate) fn watch(&self, place: usize) -> Arc<dyn ProgressSink> {
        let first: usize = self.plans[..place].iter().map(Plan::runs).sum();
        let runs = first..first + self.plans[place].runs();
        let clock = Arc::clone(&self.clock);
        watch(&self.plans[place], place + 1, self.plans.len(), (clock, runs))
    }
}

/// Returns the progress display of plan number `number` of `of`, with the clock of the call and the
/// numbers of its runs there.
fn watch(
    plan: &Plan,
    number: usize,
    of: usize,
    (clock, all): (Arc<Clock>, Range<usize>),
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
        return Arc::new(Bar::new(title, clock, all));
    }
    let least = plan.least_runs();
    let runs = if plan.runs() == least { String::new() } else { format!(" to {}", plan.runs()) };
    let noun = if plan.runs() == 1 { "run" } else { "runs" };
    output::tell(&format!("{title}: {arms} ({least}{runs} {noun})"));
    let told = Mutex::new(ProgressState { finished: 0, at: Instant::now() });
    let study = plan.study.name().to_owned();
    Arc::new(Lines { study, runs: AtomicUsize::new(least), told, clock, all })
}

/// Maximum time without a message while runs are in progress.
const SILENCE: Duration = Duration::from_secs(10);
/// Time between two estimates that a bar shows.
const REFRESH: Duration = Duration::from_secs(1);

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
    told: Mutex<ProgressState>,
    clock: Arc<Clock>,
    /// The numbers of the plan's runs in the call.
    all: Range<usize>,
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
        self.clock.event(event, self.all.clone());
        let study = &self.study;
        let runs = self.runs.load(Ordering::Relaxed);
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Failed { .. } => told.finished += 1,
            RunEvent::Decided { runs } => self.runs.store(runs, Ordering::Relaxed),
            RunEvent::Advanced { run, fraction } => {
                if told.at.elapsed() >= SILENCE {
                    let (percent, left) = (fraction * 100.0, self.clock.left());
                    output::tell(&format!("{study}: run {} is {percent:.0} % done{left}", run + 1));
                    told.at = Instant::now();
                }
            }
            RunEvent::Finished { .. } => {
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
    state: Mutex<BarState>,
    clock: Arc<Clock>,
    /// The numbers of the plan's runs in the call.
    all: Range<usize>,
}

struct BarState {
    /// Completed fraction of each run, 0 to 1.
    done: Vec<f64>,
    /// When the time left was last shown.
    at: Instant,
}

impl Bar {
    fn new(title: String, clock: Arc<Clock>, all: Range<usize>) -> Self {
        let bar = ProgressBar::new((all.len() as f64 * STEPS) as u64);
        let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent}% {elapsed}{msg}");
        bar.set_style(style.expect("the template is well-formed"));
        bar.set_prefix(plain(&title).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        let state = BarState { done: vec![0.0; all.len()], at: Instant::now() };
        Self { bar, state: Mutex::new(state), clock, all }
    }
}

impl ProgressSink for Bar {
    fn event(&self, event: RunEvent) {
        self.clock.event(event, self.all.clone());
        // A poisoned lock still protects consistent numbers.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            RunEvent::Started { .. } => {}
            RunEvent::Advanced { run, fraction } => state.done[run] = fraction,
            RunEvent::Finished { run, .. } | RunEvent::Failed { run } => state.done[run] = 1.0,
            RunEvent::Decided { runs } => self.bar.set_length((runs as f64 * STEPS) as u64),
        }
        self.bar.set_position((state.done.iter().sum::<f64>() * STEPS) as u64);
        if state.at.elapsed() >= REFRESH {
            state.at = Instant::now();
            self.bar.set_message(self.clock.left());
        }
        if let Some(long) = self.clock.announce() {
            self.bar.suspend(|| output::tell(&long));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
