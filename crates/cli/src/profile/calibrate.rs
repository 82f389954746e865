//! `mmscale profile calibrate`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mmscale_calibrate::{Effort, Of, calibrate as measure, text};

use crate::args::{CalibrateArgs, ProfileOf};
use crate::destination::{Destination, PROFILE};
use crate::failure::Failure;
use crate::output;

/// Measures this computer and writes its profile to a file or to stdout.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    #[cfg(feature = "live")]
    crate::live::refuse_emulated("profile calibrate")?;
    let existing = output::existing(args.file.replace);
    let place = args
        .file
        .output
        .as_deref()
        .map(|path| Destination::open(path, existing, PROFILE))
        .transpose()?;
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    // The bar hides itself if stderr is not a terminal.
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
    match place {
        Some(place) => place.write(&profile),
        None => output::print(&profile),
    }
}
