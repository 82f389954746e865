//! `mmscale profile new`.

use std::path::Path;

use anyhow::anyhow;
use mmscale_calibrate::Profiles;
use mmscale_calibrate::derive::{self, DeriveError, Derived, Groups, Known, Text};
use mmscale_files::{Limit, Pipe};

use crate::args::{KnownArgs, NewArgs};
use crate::destination::{Destination, PROFILE, base_of};
use crate::failure::Failure;
use crate::machine_files::MachineFiles;
use crate::output;

/// More than a matrix of 4096 CPUs has.
const LIMIT: Limit = Limit::new("a description of a machine", 256 << 20);

/// Derives a profile from the known properties of a machine, and writes it to a file or to stdout.
pub(super) fn new(profiles: &Profiles, args: &NewArgs) -> Result<(), Failure> {
    let place = place(&args.known)?;
    let known = known(profiles, &args.known)?;
    let derived = derive::derive(&known).map_err(|why: DeriveError| Failure::Call(why.into()))?;
    written(&derived, place, &derive::text(&derived))
}

/// Opens the place of the profile; `None` is stdout.
pub(super) fn place(args: &KnownArgs) -> Result<Option<Destination>, Failure> {
    let place = args.file.output.as_deref();
    place
        .map(|path| Destination::open(path, output::existing(args.file.replace), PROFILE))
        .transpose()
}

/// Writes a derived profile, after the notes on it.
pub(super) fn written(
    derived: &Derived,
    place: Option<Destination>,
    profile: &str,
) -> Result<(), Failure> {
    derived.notes.iter().for_each(|note| output::tell(&format!("note: {note}")));
    match place {
        Some(place) => place.write(profile),
        None => output::print(profile),
    }
}

/// Reads what is known of the machine.
pub(super) fn known(profiles: &Profiles, args: &KnownArgs) -> Result<Known, Failure> {
    let files = args.from.as_deref().map(MachineFiles::read).transpose()?;
    let lscpu = args.lscpu.as_deref().map(text).transpose()?;
    let of_files = || files.as_ref().and_then(MachineFiles::lscpu);
    let lscpu = lscpu.or_else(of_files);
    if let Some(files) = files.as_ref().filter(|_| lscpu.is_none()) {
        let name = &files.name;
        let what = "it has no output of lscpu or numactl; give --lscpu with that of the machine";
        return Err(Failure::Call(anyhow!("cannot use `{name}`: {what}")));
    }
    Ok(Known {
        profiles: profiles.clone(),
        base: base_of(&args.base, args.file.output.as_deref())?,
        description: args.description.clone(),
        groups: Groups { cpus: args.cpus, nodes: args.nodes, cluster: args.cluster, smt: args.smt },
        node_bytes: args.memory,
        lscpu,
        capacities: files.as_ref().map_or_else(Default::default, |of| of.snapshot.capacities()),
        memory: files.as_ref().map(MachineFiles::memory).transpose()?,
        force: args.force,
        latencies: args.latencies.as_deref().map(text).transpose()?,
    })
}

/// Reads a file, or stdin for `-`.
fn text(path: &Path) -> Result<Text, Failure> {
    let text = mmscale_files::text(path, LIMIT, Pipe::Read);
    let text =
        text.map_err(|why| Failure::Call(anyhow!("cannot read `{}`: {why}", path.display())))?;
    let name = path.file_name().filter(|_| path != Path::new("-"));
    let name = name.map_or("stdin".into(), |name| name.to_string_lossy());
    Ok(Text { name: name.into_owned(), text })
}
