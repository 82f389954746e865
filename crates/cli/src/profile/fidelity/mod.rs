//! `mmscale profile fidelity`: predictions compared with measurements.

mod own;
mod table;

use std::path::Path;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use mmscale_calibrate::gallery::{self, GalleryError, GalleryRequest, Item, Kept, Knowledge, rows};
use mmscale_files::{Existing, Folder};
use mmscale_harness::{Interrupt, Origin, Registry};

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
    if args.kept {
        let kept = gallery::kept().map_err(|why| Failure::Run(why.into()))?;
        return output::print(&shown(args, &items, &kept));
    }
    if let Some(path) = args.output.as_ref().filter(|path| path.is_dir()) {
        let what = format!("-o {}: this is a folder; name a file in it", path.display());
        return Err(Failure::Call(anyhow!(what)));
    }
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let plain = args.format == GalleryFormat::Text && args.items.is_empty() && !args.blind;
    if plain {
        let rows = own::text(registry.profiles(), args.profile.as_deref(), &interrupt)?;
        output::print(&rows)?;
    }
    if args.profile.is_some() {
        return Ok(());
    }
    let kept = [predicted(registry, origin, args, &items, &interrupt)?];
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&kept).context("cannot format the results");
        keep(path, &(text.map_err(Failure::Run)? + "\n"))?;
    }
    let separator = if plain { "\n" } else { "" };
    output::print(&format!("{separator}{}", shown(args, &items, &kept)))
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
    let all = gallery::items().map_err(|why| Failure::Run(why.into()))?;
    let names: Vec<String> = all.iter().map(|item| item.id.clone()).collect();
    if let Some(unknown) = args.items.iter().find(|name| !names.contains(name)) {
        let known = names.join(", ");
        let what = format!("the gallery has no item `{unknown}`; it has {known}");
        return Err(Failure::Call(anyhow!(what)));
    }
    let seen = if args.blind { Knowledge::Blind } else { Knowledge::Open };
    let is_chosen = |item: &Item| {
        if args.items.is_empty() { item.seen == seen } else { args.items.contains(&item.id) }
    };
    let is_short = |item: &Item| !(args.quick && item.slow && args.items.is_empty());
    Ok(all.into_iter().filter(|item| is_chosen(item) && is_short(item)).collect())
}

/// Runs the items, and shows the progress.
fn predicted(
    registry: &Registry,
    origin: Origin,
    args: &FidelityArgs,
    items: &[Item],
    interrupt: &Interrupt,
) -> Result<Kept, Failure> {
    let cache = args.cache.open();
    let request =
        GalleryRequest { items, registry, origin: origin.clone(), cache, quick: args.quick };
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
fn shown(args: &FidelityArgs, items: &[Item], kept: &[Kept]) -> String {
    match args.format {
        GalleryFormat::Text => table::text(items, kept),
        GalleryFormat::Md => table::markdown(items, kept),
        GalleryFormat::Json => kept.iter().map(mmscale_report::json_line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open_items() -> Vec<Item> {
        let items = gallery::items().unwrap_or_else(|why| panic!("{why}"));
        items.into_iter().filter(|item| item.seen == Knowledge::Open).collect()
    }

    /// The page shows the counts of the kept results. `MMSCALE_UPDATE=1` writes them again.
    #[test]
    fn the_page_has_the_counts_of_the_kept_results() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trust.md");
        let page = fs::read_to_string(&path).expect("the page can be read");
        let (begin, end) = ("<!-- gallery -->\n", "\n<!-- /gallery -->\n");
        let parts =
            page.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?)));
        let (before, (shown, after)) = parts.expect("the page has the marks");
        let kept = gallery::kept().unwrap_or_else(|why| panic!("{why}"));
        let counts = table::summary(&kept);
        if std::env::var_os("MMSCALE_UPDATE").is_some() {
            let page = format!("{before}{begin}{counts}{end}{after}");
            fs::write(path, page).expect("the page can be written");
        } else {
            assert!(shown == counts, "write the page again with MMSCALE_UPDATE=1");
        }
    }

    #[test]
    fn the_kept_results_have_every_open_item() {
        let kept = gallery::kept().unwrap_or_else(|why| panic!("{why}"));
        let table = table::markdown(&open_items(), &kept);
        for item in open_items() {
            assert!(table.contains(&format!("- **{}**, ", item.id)), "{} has no results", item.id);
        }
    }
}
