//! `mmscale calibrate`.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use mmscale_calibrate::{Effort, Of, calibrate as measure, text};
use mmscale_report::{Existing, Folder};

use crate::args::{CalibrateArgs, ProfileOf};
use crate::failure::Failure;
use crate::output;

/// Measures this computer and writes its profile to a file or to stdout.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let existing = output::existing(args.replace);
    let place = args.output.as_deref().map(|path| Place::open(path, existing)).transpose()?;
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.set_message("measuring this computer");
    bar.enable_steady_tick(Duration::from_millis(200));
    let of = match args.of {
        ProfileOf::Threads => Of::Threads,
        ProfileOf::Kernel => Of::Kernel,
    };
    let measured = measure(of, effort, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let profile = text(&measured.map_err(|error| Failure::Run(error.into()))?);
    let Some(place) = place else { return output::print(&profile) };
    let written = place.folder.write(&place.name, &profile)?;
    let path = written.path.display();
    output::tell(&format!("wrote {path}; use it with: mmscale run --profile {path}"));
    output::as_named([&written])
}

/// Where the profile goes.
struct Place {
    folder: Folder,
    name: String,
}

impl Place {
    fn open(path: &Path, existing: Existing) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            let path = path.display();
            Failure::Call(anyhow!("cannot write the profile to `{path}`: {what}"))
        };
        if path.is_dir() {
            return Err(wrong("it is a directory; name a file in it, such as this-computer.toml"));
        }
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Err(wrong("a profile's file name ends in .toml"));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("its name is not UTF-8"))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = Folder::open(parent.unwrap_or(Path::new(".")), existing)?;
        folder.free(&name)?;
        Ok(Self { folder, name })
    }
}
