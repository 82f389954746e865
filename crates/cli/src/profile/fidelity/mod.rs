//! `mmscale profile fidelity`: predictions compared with measurements.

mod own;
mod table;

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use mmscale_calibrate::gallery::{
    self, GalleryError, GalleryRequest, Item, Kept, Knowledge, Lifted, rows,
};
use mmscale_files::{Existing, Folder, Limit, Pipe};
use mmscale_harness::{Interrupt, Origin, Profiles, Registry};

use crate::args::{FidelityArgs, GalleryFormat};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// Shows the gallery: published measurements with their predictions. Without named items, the rows
/// of LLFree's benchmark and of one CPU come first; with a profile of this computer only these, and
/// this computer's own threads.
pub(super) fn fidelity(
    registry: &Registry,
    origin: Origin,
    args: &FidelityArgs,
) -> Result<(), Failure> {
    let items = chosen(args)?;
    let before = args.against.as_deref().map(read).transpose()?;
    let kept = match &args.read {
        Some(file) => Some(read(file)?),
        None if args.kept => Some(gallery::kept().map_err(|why| Failure::Run(why.into()))?),
        None => None,
    };
    let lifted = gallery::lifted().map_err(|why| Failure::Run(why.into()))?;
    if let Some(kept) = kept {
        return output::print(&shown(args, &items, &kept, &lifted, before.as_deref()));
    }
    let machines = args.machines.as_deref().map(machines).transpose()?.unwrap_or_default();
    if let Some(path) = args.output.as_ref().filter(|path| path.is_dir()) {
        let what = format!("-o {}: this is a folder; name a file in it", path.display());
        return Err(Failure::Call(anyhow!(what)));
    }
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let plain = args.format == GalleryFormat::Text
        && args.items.is_empty()
        && !args.blind
        && before.is_none();
    if plain {
        let rows = own::text(registry.profiles(), args.profile.as_deref(), &interrupt)?;
        output::print(&rows)?;
    }
    if args.profile.is_some() {
        return Ok(());
    }
    let predicted =
        Predicted { registry, origin, args, profiles: gallery::profiles_with(&machines) };
    let kept = [predicted.of(&items, &interrupt)?];
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&kept).context("cannot format the results");
        keep(path, &(text.map_err(Failure::Run)? + "\n"))?;
    }
    let separator = if plain { "\n" } else { "" };
    let shown = shown(args, &items, &kept, &lifted, before.as_deref());
    output::print(&format!("{separator}{shown}"))
}

/// Writes the results to a file, in place of those of an earlier call.
fn keep(path: &Path, text: &str) -> Result<(), Failure> {
    let wrong = || Failure::Call(anyhow!("-o {}: name a file", path.display()));
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = Folder::open(folder.unwrap_or(Path::new(".")), Existing::Replace)?;
    folder.write(name, text).map(|_| ()).map_err(Failure::from)
}

/// Returns the items of a call.
fn chosen(args: &FidelityArgs) -> Result<Vec<Item>, Failure> {
    let mut all = gallery::items().map_err(|why| Failure::Run(why.into()))?;
    let names: Vec<String> = all.iter().map(|item| item.id.clone()).collect();
    let (files, named): (Vec<&String>, Vec<&String>) =
        args.items.iter().partition(|name| name.ends_with(".toml"));
    if !files.is_empty() {
        all.retain(|item| named.contains(&&item.id));
        for file in files {
            all.extend(of_file(Path::new(file))?);
        }
        return Ok(all);
    }
    if let Some(unknown) = args.items.iter().find(|name| !names.contains(name)) {
        let known = names.join(", ");
        let what = format!("the gallery has no item `{unknown}`; it has {known}");
        return Err(Failure::Call(anyhow!(what)));
    }
    let is_chosen = |item: &Item| {
        if args.items.is_empty() {
            (item.seen == Knowledge::Blind) == args.blind
        } else {
            args.items.contains(&item.id)
        }
    };
    let is_short = |item: &Item| !(args.quick && item.slow && args.items.is_empty());
    Ok(all.into_iter().filter(|item| is_chosen(item) && is_short(item)).collect())
}

/// Some hundred times the size of an item.
const ITEMS: Limit = Limit::new("a file of items", 1 << 20);

/// Reads the items of a file, as `mmscale claim` writes it.
fn of_file(path: &Path) -> Result<Vec<Item>, Failure> {
    let text = mmscale_files::text(path, ITEMS, Pipe::Refuse);
    let text = text.map_err(|why| Failure::Call(anyhow!("{}: {why}", path.display())))?;
    let items = gallery::items_of(&path.display().to_string(), &text);
    items.map_err(|why| Failure::Call(why.into()))
}

/// Some ten times the size of the results of the whole gallery.
const RESULTS: Limit = Limit::new("results of the gallery", 4 << 20);
/// Some twenty times the size of a profile with all keys and sources.
const PROFILE: Limit = Limit::new("a profile", 1 << 20);

/// Reads results that an earlier call wrote.
fn read(path: &Path) -> Result<Vec<Kept>, Failure> {
    let text = mmscale_files::text(path, RESULTS, Pipe::Refuse)
        .map_err(|why| Failure::Call(anyhow!("{why}; -o FILE writes such a file")))?;
    gallery::read(&path.display().to_string(), &text).map_err(|why| Failure::Call(why.into()))
}

/// Reads the profiles of a folder. Their texts live as long as the program, as built-in ones do.
fn machines(folder: &Path) -> Result<Vec<(&'static str, &'static str)>, Failure> {
    let wrong = |why: io::Error| {
        Failure::Call(anyhow!("--machines {}: {why}; name a folder of profiles", folder.display()))
    };
    // tidy: opened: names of files
    let entries = fs::read_dir(folder).map_err(wrong)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<Result<_, _>>().map_err(wrong)?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    if paths.is_empty() {
        let what =
            format!("--machines {}: there is no profile (NAME.toml) in it", folder.display());
        return Err(Failure::Call(anyhow!(what)));
    }
    let one = |path: &PathBuf| {
        let text = mmscale_files::text(path, PROFILE, Pipe::Refuse)
            .map_err(|why| Failure::Call(anyhow!("--machines: {why}")))?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let name: &'static str = name.unwrap_or_default().leak();
        Ok((name, &*text.leak()))
    };
    paths.iter().map(one).collect()
}

/// Predictions of items.
struct Predicted<'a> {
    registry: &'a Registry,
    origin: Origin,
    args: &'a FidelityArgs,
    profiles: Profiles,
}

impl Predicted<'_> {
    /// Runs the items, and shows the progress.
    fn of(self, items: &[Item], interrupt: &Interrupt) -> Result<Kept, Failure> {
        let Self { registry, origin, args, profiles } = self;
        let (cache, quick) = (args.cache.open(), args.quick);
        let request =
            GalleryRequest { items, profiles, registry, origin: origin.clone(), cache, quick };
        // The bar hides itself if stderr is not a terminal.
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} runs {elapsed}");
        bar.set_style(style.expect("the template is well-formed"));
        let told = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let figures = gallery::run(&request, interrupt, &told);
        bar.finish_and_clear();
        let figures = figures.map_err(|why| failed(&why))?;
        let rows = items.iter().zip(&figures).flat_map(|(item, figures)| rows(item, figures));
        Ok(Kept { build: origin.build, command: origin.command, rows: rows.collect() })
    }
}

fn failed(why: &GalleryError) -> Failure {
    if why.is_interrupt() {
        return Failure::Run(anyhow!("interrupted; finished runs are in the cache"));
    }
    match why {
        GalleryError::Call { .. } => Failure::Call(anyhow!(why.to_string())),
        _ => Failure::Run(anyhow!(why.to_string())),
    }
}

/// Formats the results of the chosen items.
fn shown(
    args: &FidelityArgs,
    items: &[Item],
    kept: &[Kept],
    lifted: &Lifted,
    before: Option<&[Kept]>,
) -> String {
    if let Some(before) = before {
        return table::moved(items, before, kept);
    }
    match args.format {
        GalleryFormat::Text => table::text(items, kept, lifted),
        GalleryFormat::Md => table::markdown(items, kept, lifted),
        GalleryFormat::Json => kept.iter().map(mmscale_report::json_line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_items() -> Vec<Item> {
        let items = gallery::items().unwrap_or_else(|why| panic!("{why}"));
        items.into_iter().filter(|item| item.seen == Knowledge::Open).collect()
    }

    /// Compares a part of a page, between two marks, with what results are kept. `MMSCALE_UPDATE=1`
    /// writes it again.
    fn shows(page: &str, mark: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let page = fs::read_to_string(&path).expect("the page can be read");
        let (begin, end) = (format!("<!-- {mark} -->\n"), format!("\n<!-- /{mark} -->\n"));
        let parts = page
            .split_once(&begin)
            .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
        let (before, (shown, after)) = parts.expect("the page has the marks");
        if std::env::var_os("MMSCALE_UPDATE").is_some() {
            let page = format!("{before}{begin}{text}{end}{after}");
            fs::write(path, page).expect("the page can be written");
        } else {
            assert!(shown == text, "write {} again with MMSCALE_UPDATE=1", path.display());
        }
    }

    fn kept_and_lifted() -> (Vec<Kept>, Lifted) {
        let kept = gallery::kept().unwrap_or_else(|why| panic!("{why}"));
        (kept, gallery::lifted().unwrap_or_else(|why| panic!("{why}")))
    }

    #[test]
    fn the_page_has_the_counts_of_the_kept_results() {
        let (kept, lifted) = kept_and_lifted();
        let parts = [
            table::by_question(&kept),
            table::summary(&kept),
            table::summary_of_replays(&kept, &lifted),
        ];
        shows("docs/trust.md", "gallery", &parts.join("\n\n"));
    }

    #[test]
    fn the_page_of_replays_has_the_kept_ones() {
        let (kept, lifted) = kept_and_lifted();
        shows("gallery/lift.md", "replays", &table::replays(&open_items(), &kept, &lifted));
        shows("gallery/lift.md", "curves", &table::curves(&lifted));
    }

    #[test]
    fn the_kept_results_have_every_open_item() {
        let (kept, lifted) = kept_and_lifted();
        let table = table::markdown(&open_items(), &kept, &lifted);
        for item in open_items() {
            assert!(table.contains(&format!("- **{}**, ", item.id)), "{} has no results", item.id);
        }
    }
}
