//! Published times of a page on one CPU: written for the first time, copied by a fork, unmapped.
//! Each is a sum of operations, so it limits the costs of all of them together.

use super::{Pair, SEED};
use mmscale_harness::machine::{self, MachineSpec};
use mmscale_harness::{Interrupt, RunContext, StudyError};
use mmscale_kernel::Os;
use mmscale_sim::profile::{Profile, ProfileError, Profiles};
use mmscale_system::{Addr, Advice, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use std::sync::{Arc, Mutex};

/// Pages of the mapping: 64 MiB.
const PAGES: u64 = 16 * 1024;

/// A step that is timed over a mapping of [`PAGES`] pages of anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The first write to each page.
    WriteFault,
    /// `fork` of the process, until it returns.
    Fork,
    /// `madvise(MADV_DONTNEED)` of pages that were written.
    DontNeed,
    /// `munmap` after [`Step::DontNeed`]: the page tables remain.
    MunmapEmpty,
    /// `munmap` of pages that were written.
    Munmap,
}

impl Step {
    const COUNT: usize = Self::ALL.len();
    const ALL: [Self; 5] =
        [Self::WriteFault, Self::Fork, Self::DontNeed, Self::MunmapEmpty, Self::Munmap];

    /// Returns the printed name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteFault => "first write",
            Self::Fork => "fork",
            Self::DontNeed => "MADV_DONTNEED",
            Self::MunmapEmpty => "munmap, freed before",
            Self::Munmap => "munmap",
        }
    }
}

/// The profiles of the published times: profile, step, ns a page.
///
/// `x86-26`: LLFree's raw results, Xeon Gold 5320, Linux 6.0, 104 GiB, one thread; the empty
/// `munmap` took 39 to 45 ms. `x86-16`: David Hildenbrand, cover letters of "mm/memory: optimize
/// fork() with PTE-mapped THP" and "optimize unmap/zap with PTE-mapped THP", 2024: 1 GiB, Xeon
/// Silver 4210R (Cascade Lake, like the profile's Gold 6242).
pub const ONE_CPU: [(&str, Step, f64); 5] = [
    ("x86-26", Step::WriteFault, 1592.0),
    ("x86-26", Step::DontNeed, 192.0),
    ("x86-26", Step::MunmapEmpty, 1.54),
    ("x86-16", Step::Fork, 54.7),
    ("x86-16", Step::Munmap, 221.7),
];

/// The version of Linux that LLFree's benchmark ran on.
const LINUX: (u16, u16) = (6, 0);

/// Returns a profile of [`ONE_CPU`] on the kernel that was measured.
pub fn measured_on(profiles: &Profiles, name: &str) -> Result<Profile, ProfileError> {
    profiles.open(name)?.on_linux(LINUX.0, LINUX.1).machine()
}

/// Returns ns a page, measured and simulated, of each row of [`ONE_CPU`] that is of `profile`.
pub fn one_cpu(profile: &Profile, interrupt: &Interrupt) -> Result<Vec<(Step, Pair)>, StudyError> {
    let got = times(profile, interrupt)?;
    let rows = ONE_CPU.iter().filter(|(of, ..)| *of == profile.name);
    Ok(rows.map(|&(_, step, real)| (step, Pair { real, simulated: got[step as usize] })).collect())
}

/// Returns ns a page of the step with this name; `None` if there is none.
pub fn one_step(
    profile: &Profile,
    name: &str,
    interrupt: &Interrupt,
) -> Result<Option<f64>, StudyError> {
    let place = Step::ALL.iter().position(|step| step.name() == name);
    let Some(place) = place else { return Ok(None) };
    Ok(Some(times(profile, interrupt)?[place]))
}

/// Returns ns a page of each step.
fn times(profile: &Profile, interrupt: &Interrupt) -> Result<[f64; Step::COUNT], StudyError> {
    let got = Arc::new(Mutex::new([0.0; Step::COUNT]));
    let ctx = RunContext::on_simulator(profile.clone(), interrupt);
    let own = Arc::clone(&got);
    let program = Box::new(move |os: &Os| {
        let got = timed(os).expect("the machine has memory for the program");
        *own.lock().expect("only this program uses it") = got;
    });
    machine::run(MachineSpec::new(&ctx, SEED), &mut machine::silent, program)?;
    let got = *got.lock().expect("the run is over");
    Ok(got)
}

fn timed<S: System>(system: &S) -> Result<[f64; Step::COUNT], Errno> {
    let mut ns = [0.0; Step::COUNT];
    let mut time = |step: Step, body: &mut dyn FnMut() -> Result<(), Errno>| {
        let start_ns = system.clock_ns();
        body()?;
        ns[step as usize] = (system.clock_ns() - start_ns) as f64 / PAGES as f64;
        Ok(())
    };
    let bytes = PAGES * PAGE_BYTES;
    let write = |at: Addr| (0..PAGES).try_for_each(|page| system.write(at.page(page), 1));
    // The first round takes its frames from fresh blocks.
    for _ in 0..2 {
        let at = system.mmap(MapSpec::new(bytes))?;
        time(Step::WriteFault, &mut || write(at))?;
        let mut child = None;
        time(Step::Fork, &mut || {
            child = Some(system.fork(ThreadSpec::on(0), Box::new(|_| ()))?);
            Ok(())
        })?;
        child.map_or(Ok(()), |child| system.wait(child).map(drop))?;
        time(Step::DontNeed, &mut || system.madvise(at, bytes, Advice::DontNeed))?;
        time(Step::MunmapEmpty, &mut || system.munmap(at, bytes))?;
        let at = system.mmap(MapSpec::new(bytes))?;
        write(at)?;
        time(Step::Munmap, &mut || system.munmap(at, bytes))?;
    }
    Ok(ns)
}
