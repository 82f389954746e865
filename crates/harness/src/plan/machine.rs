//! The machine of a plan: which one, with which CPUs and timer, and its topology for the document.

use mmscale_document::{self as record, Target};
use mmscale_mm::versions::Version;
use mmscale_sim::profile::{Merged, Profile, ProfileError, Profiles, Shape, Topology};

use super::costs::CostsSet;
use super::{CallError, Request};
use crate::host::host_cpus;
use crate::param::{ParamSpec, Params, Unit};
use crate::study::{Checks, Study};

/// Quick runs of simulated machines with more CPUs than this have defaults of their own, and one
/// seed.
const LARGE_CPUS: usize = 512;

/// Maximum number of CPUs of a machine.
pub const MAX_CPUS: u64 = 4096;

/// A machine of a request: the costs that the call sets, and the simulated machine. `None` if the
/// machine is this computer.
type Machine = (CostsSet, Option<Profile>);

/// Returns the machine on which the study runs.
pub(super) fn target(study: &Study, request: &Request) -> Result<Target, CallError> {
    let can = study.defaults().machines;
    let on = request.on.unwrap_or(can[0]);
    if on == Target::Live && !cfg!(feature = "live") {
        let what = "this program was built without the feature `live`, which --on live needs; use \
                    --on sim or --on threads";
        return Err(CallError::Other(what.to_owned()));
    }
    if can.contains(&on) {
        return Ok(on);
    }
    if study.replays() {
        return Err(CallError::Other(format!(
            "`{}` is a recording, which replays on the simulator only; leave --on out",
            study.name()
        )));
    }
    let names: Vec<_> = can.iter().map(|on| on.name()).collect();
    let why = match on {
        Target::Live => format!("study `{}` does not run on the live kernel", study.name()),
        Target::Sim | Target::Threads => format!("study `{}` does not run on {on}", study.name()),
    };
    Err(CallError::Other(format!("{why}; use --on {}", names.join(" or --on "))))
}

/// Returns an error if something is asked for that this machine cannot do.
pub(super) fn check_options(on: Target, request: &Request) -> Result<(), CallError> {
    if on == Target::Live && request.checks == Checks::On {
        let what = "--check verifies this program's memory manager, which --on live does not run; \
                    leave one of them out";
        return Err(CallError::Other(what.to_owned()));
    }
    if on != Target::Sim && request.hold_scale.is_some() {
        let what = "--hold scales times of a simulated machine: use --on sim, or leave it out";
        return Err(CallError::Other(what.to_owned()));
    }
    if on != Target::Sim && request.look {
        let what = "--seeds auto looks at runs of the simulator, which vary with their seeds \
                    alone; on a real machine give the number of --seeds";
        return Err(CallError::Other(what.to_owned()));
    }
    if on == Target::Threads && request.blame {
        let what = "--blame needs the simulator, which knows the holder at each moment, or a live \
                    kernel that shows some: use --on sim or --on live";
        return Err(CallError::Other(what.to_owned()));
    }
    Ok(())
}

/// Returns the requested simulated machines, each with the costs that the call sets: there is at
/// least one. `None` if the machine is this computer.
pub(super) fn machines(
    study: &Study,
    on: Target,
    profiles: &Profiles,
    request: &Request,
) -> Result<Vec<Machine>, CallError> {
    Ok(match on {
        Target::Sim => {
            let profile = request.profile.as_deref().unwrap_or(study.defaults().profile.as_ref());
            let profile = on_kernel(&profiles.open(profile)?, request.linux);
            let machines = request.costs.machines(&profile)?;
            machines.into_iter().map(|(costs, profile)| (costs, Some(profile))).collect()
        }
        Target::Threads | Target::Live if !request.costs.is_empty() => {
            return Err(CallError::Other(format!(
                "--cost is a cost of a simulated machine and --on {on} is this computer; leave \
                 one of them out"
            )));
        }
        Target::Threads | Target::Live if request.profile.is_some() => {
            return Err(CallError::Other(format!(
                "--profile describes a simulated machine and --on {on} is this computer; \
                 leave one of them out"
            )));
        }
        Target::Threads | Target::Live if request.shape != Shape::default() => {
            return Err(CallError::Other(format!(
                "--shape {} groups the CPUs of a simulated machine and --on {on} is this \
                 computer; leave one of them out",
                request.shape.name()
            )));
        }
        Target::Threads | Target::Live => vec![(CostsSet::new(), None)],
    })
}

/// Whether a simulated machine has so many CPUs that quick runs have defaults of their own.
pub(super) fn is_large(on: Target, cpus: usize) -> bool {
    on == Target::Sim && cpus > LARGE_CPUS
}

/// The CPUs and the timer interrupts of a machine if a call sets neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usual {
    pub(super) cpus: usize,
    pub(super) hz: u32,
}

impl Usual {
    /// Settings for which only the names of the parameters matter.
    pub(super) const ANY: Self = Self { cpus: 1, hz: 1000 };

    /// Returns the settings of a machine, which is the first of the request.
    pub(super) fn of(
        study: &Study,
        on: Target,
        (_, profile): &Machine,
        request: &Request,
    ) -> Result<Self, CallError> {
        let defaults = study.defaults();
        let cpus = match profile {
            Some(profile) if request.profile.is_some() => profile.topology.cpus,
            Some(_) => defaults.cpus,
            None => host_cpus(),
        };
        let hz = if on == Target::Live { live_hz(request)? } else { defaults.hz };
        Ok(Self { cpus, hz })
    }

    /// Returns the parameters that every study has.
    pub(super) fn params(self) -> [ParamSpec; 2] {
        let hz = match self.hz {
            100 => "100",
            250 => "250",
            300 => "300",
            1000 => "1000",
            other => panic!("no kernel is built with HZ={other}"),
        };
        [
            ParamSpec::count(
                "cpus",
                Unit::One,
                self.cpus as u64,
                [1, MAX_CPUS],
                "number of CPUs of the machine",
            ),
            ParamSpec::choice(
                "hz",
                hz,
                &["100", "250", "300", "1000"],
                "timer interrupts per second on each CPU",
            ),
        ]
    }

    /// Splits the values of a point into those of [`params`](Self::params) and of the study.
    pub(super) fn split(point: &Params) -> (usize, u32, Params) {
        let hz = point.choice("hz").parse().expect("the choices are numbers");
        (point.count("cpus") as usize, hz, point.clone().without(&["cpus", "hz"]))
    }
}

/// Returns the HZ of the running kernel, which cannot be set.
fn live_hz(request: &Request) -> Result<u32, CallError> {
    if request.settings.keys().any(|key| key == "hz") {
        let what =
            "--hz cannot be set with --on live, which measures the running kernel; leave it out";
        return Err(CallError::Other(what.to_owned()));
    }
    #[cfg(feature = "live")]
    let hz = crate::machine::live::hz();
    #[cfg(not(feature = "live"))]
    let hz = None;
    Ok(hz.unwrap_or(1000))
}

/// Returns a profile with the instructions of a version of Linux, if one is chosen.
pub(crate) fn on_kernel(profile: &Merged, linux: Option<Version>) -> Merged {
    linux.map_or_else(|| profile.clone(), |of| profile.on_linux(of.major, of.minor))
}

/// Returns the machine of a profile with `cpus` CPUs at `hz`, and its CPU topology.
pub(super) fn shaped(
    own: &Profile,
    cpus: usize,
    hz: u32,
    shape: Shape,
) -> Result<(Profile, record::Topology), ProfileError> {
    let mut profile = own.with_cpus(cpus, shape)?;
    profile.hz = hz;
    let topology = topology(&own.topology, &profile.topology, shape);
    Ok((profile, topology))
}

/// Returns a machine's topology for its document, with that of its profile if it differs. Nodes of
/// another size alone are no difference, and neither is a cache that spans a whole node of both.
fn topology(own: &Topology, made: &Topology, shape: Shape) -> record::Topology {
    let whole = |of: &Topology| of.cluster == of.node_cpus();
    let same_caches = own.cluster == made.cluster || (whole(own) && whole(made));
    let same = (own.nodes, own.smt) == (made.nodes, made.smt) && same_caches;
    let groups = record::Groups {
        cpus: own.cpus as u32,
        nodes: own.nodes as u32,
        cache_cpus: own.cluster as u32,
        core_threads: own.smt as u32,
    };
    record::Topology {
        shape: shape.name().to_owned(),
        nodes: made.nodes as u32,
        node_cpus: made.node_cpus() as u32,
        cache_cpus: made.cluster as u32,
        core_threads: made.smt as u32,
        profile: (!same).then_some(groups),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a machine with `cpus` CPUs is described as another kind than its profile.
    fn differs(own: Topology, cpus: usize, shape: Shape) -> bool {
        let any = mmscale_sim::profile::load("x86-512").expect("it is built in");
        let profile = Profile { topology: own, ..any };
        let (_, topology) = shaped(&profile, cpus, 1000, shape).expect("the number is allowed");
        topology.profile.is_some()
    }

    #[test]
    fn a_machine_with_the_nodes_caches_and_threads_of_its_profile_is_of_its_kind() {
        let own = Topology { cpus: 512, smt: 2, cluster: 16, nodes: 2 };
        // Nodes of 16 CPUs, each one cache of 16 CPUs: fewer caches, of the same size.
        assert!(!differs(own, 32, Shape::Keep));
        assert!(!differs(own, 96, Shape::Keep));
        assert!(differs(own, 16, Shape::Keep), "its caches have 8 CPUs");
        assert!(differs(own, 96, Shape::Fill), "it has one node");
        assert!(differs(own, 96, Shape::Flat), "it has one node and cores of one thread");
        // A cache that spans a node does so at every size.
        let whole = Topology { cpus: 144, smt: 1, cluster: 72, nodes: 2 };
        assert!(!differs(whole, 8, Shape::Keep));
    }
}
