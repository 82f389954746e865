//! Runs on a simulated machine with few CPUs and a short window.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mmscale_harness::{
    Checks, Interrupt, Length, ProgressSink, Request, RunEvent, Settings, Shape, execute,
    fits_host, plan,
};

use crate::outcome::Outcome;
use crate::random::Random;

/// Time after which a run is interrupted. It must then end within the time limit of a case.
const LONGEST: Duration = Duration::from_secs(2);

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

/// Runs studies, one after another.
pub(crate) struct Runs {
    /// Starts the time of a run, or ends that of the last one.
    timer: Mutex<Sender<Option<Interrupt>>>,
}

impl Runs {
    pub(crate) fn new() -> Self {
        let (timer, started) = channel::<Option<Interrupt>>();
        thread::spawn(move || {
            let mut running: Option<Interrupt> = None;
            loop {
                match started.recv_timeout(LONGEST) {
                    Ok(next) => running = next,
                    Err(RecvTimeoutError::Timeout) => running.iter().for_each(Interrupt::set),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { timer: Mutex::new(timer) }
    }
    fn time(&self, interrupt: Option<Interrupt>) {
        let timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.send(interrupt).expect("the thread ends with the sender");
    }

    /// Runs a study once.
    pub(crate) fn run(&self, request: &Request) -> Outcome {
        let interrupt = Interrupt::default();
        self.time(Some(interrupt.clone()));
        let done = once(request, &interrupt);
        self.time(None);
        let why = match done {
            Ok(()) => return Outcome::Accepted,
            Err(why) => why,
        };
        // A word that a page does not hold is the error of a script that writes to memory which
        // it shares; any other finding of a checker is one of the memory manager.
        let by_checker = why.contains("checker");
        if by_checker && !why.contains("did not contain the values") {
            return Outcome::Wrong(why);
        }
        // Control characters in it are removed where the program writes it.
        Outcome::Refused(why)
    }
}

fn once(request: &Request, interrupt: &Interrupt) -> Result<(), String> {
    let plans = plan(mmscale_studies::all(), request).map_err(|why| why.to_string())?;
    fits_host(&plans).map_err(|why| why.to_string())?;
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    execute(&plans[0], interrupt, &sink).map(|_| ()).map_err(|why| why.to_string())
}

/// Returns a request for one seed of the first arm of a study.
pub(crate) fn request(
    study: &str,
    profile: &str,
    settings: &[&str],
    random: &mut Random,
) -> Request {
    Request {
        arms: vec!["stock".to_owned()],
        profile: Some(PathBuf::from(profile)),
        settings: Settings::parse(settings).expect("the settings are well-formed"),
        seeds: Some(1),
        first_seed: 1 + random.below(1000) as u64,
        length: Length::Quick,
        checks: if random.percent(50) { Checks::On } else { Checks::Off },
        blame: random.percent(20),
        shape: Shape::Fill,
        ..Request::of([study])
    }
}
