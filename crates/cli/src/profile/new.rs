//! `mmscale profile new`.

use std::path::Path;

use anyhow::anyhow;
use mmscale_calibrate::Profiles;
use mmscale_calibrate::derive::{self, DeriveError, Derived, Groups, Known, Text};
use mmscale_files::{Limit, Pipe};

use crate::args::{KnownArgs, NewArgs};
use crate::destination::{Destination, PROFILE, is_folder};
use crate::failure::Failure;
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
    Ok(Known {
        profiles: profiles.clone(),
        base: base(args)?,
        description: args.description.clone(),
        groups: Groups { cpus: args.cpus, nodes: args.nodes, cluster: args.cluster, smt: args.smt },
        node_bytes: args.memory,
        lscpu: args.lscpu.as_deref().map(text).transpose()?,
        latencies: args.latencies.as_deref().map(text).transpose()?,
    })
}

/// Returns the base as the file names it. A relative path is relative to the folder of the file, so
/// a path from the current folder is made absolute if the file is written elsewhere.
fn base(args: &KnownArgs) -> Result<String, Failure> {
    let elsewhere = args.file.output.as_deref().is_some_and(|path| {
        is_folder(path) || path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
    });
    let path = args.base.contains('/') || args.base.ends_with(".toml");
    if !(elsewhere && path) {
        return Ok(args.base.clone());
    }
    let whole = std::path::absolute(&args.base);
    let whole = whole.map_err(|why| Failure::Call(anyhow!("cannot use --base: {why}")))?;
    Ok(whole.to_string_lossy().into_owned())
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
