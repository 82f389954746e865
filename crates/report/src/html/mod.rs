//! Documents as one HTML page: the answer of each, its pictures, its text, and the document itself.
//!
//! A page needs nothing but its file: pictures are SVG in the page, there are no scripts and no
//! requests. Data go one way: from documents to pictures ([`picture::Picture`]), and from these to
//! the page. The macro `html!` escapes all texts. `compare` reads the documents of a page
//! ([`documents_of`]).

mod curves;
mod dots;
mod embed;
mod flame;
mod map;
mod matrix;
mod picture;
mod scale;
mod tornado;
mod waits;

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mmscale_document::{Document, Robustness, Settlement, machine_name, plain};
use thiserror::Error;

pub(crate) use embed::documents_of;
use picture::Picture;

use crate::text::{Notes, answer, point, robust_text, settlement_text, text};

/// Maximum size of a page, in bytes. Browsers take seconds for larger ones.
const MOST_BYTES: usize = 64 << 20;
const STYLE: &str = include_str!("style.css");

/// Why there is no page.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HtmlError {
    /// There is nothing to show.
    #[error("there is no document of a run and no analysis to show")]
    Nothing,
    /// The page would be too large for a browser.
    #[error(
        "the page would have {mib} MiB, and browsers take long for more than {} MiB: name fewer \
         documents", MOST_BYTES >> 20
    )]
    TooLarge {
        /// Its size in MiB.
        mib: usize,
    },
}

/// Formats documents of runs, each with the additions of its study, and robustness analyses as one
/// HTML page.
pub fn html_page(
    runs: &[(&Document, Notes<'_>)],
    analyses: &[&Robustness],
) -> Result<String, HtmlError> {
    if runs.is_empty() && analyses.is_empty() {
        return Err(HtmlError::Nothing);
    }
    let runs_embedded = runs.iter().map(|(document, _)| embed::element(document));
    let embedded: Vec<String> = runs_embedded.chain(analyses.iter().map(embed::element)).collect();
    fits(embedded.iter().map(String::len).sum())?;
    let page = page(&title(runs, analyses), &sections(runs, analyses), &embedded);
    fits(page.len()).map(|()| page)
}

/// Formats a map of the best arms as one HTML page.
pub fn settlement_page(map: &Settlement) -> String {
    let section = Section {
        title: format!("{}: where which arm is best", map.study),
        about: html! { p.about { "made by " code { (map.command.join(" ")) } } },
        pictures: vec![map::picture(map)],
        text: Some(settlement_text(map)),
    };
    page(&format!("mmscale: {}", map.study), &[section], &[embed::element(map)])
}

/// Formats the sections of a map of the best arms as an SVG file.
pub fn settlement_svg(map: &Settlement) -> String {
    plain(&map::file(map)).into_owned()
}

/// Formats a page with documents in it.
fn page(title: &str, sections: &[Section], embedded: &[String]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Without it a browser asks for /favicon.ico.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p.about {
                    "Every picture has a sentence below it that says how to read it. The documents \
                     are in this file: " code { "mmscale compare FILE OTHER" } " reads them."
                }
                @if sections.len() > 1 {
                    nav { ul {
                        @for (at, section) in sections.iter().enumerate() {
                            li { a href={ "#s" (at) } { (section.title) } }
                        }
                    } }
                }
                @for (at, section) in sections.iter().enumerate() { (section.markup(at)) }
                @for document in embedded { (PreEscaped(document)) }
            }
        }
    };
    // Documents have their control characters as numbers.
    plain(&page.into_string()).into_owned()
}

/// Formats the headlines of runs against their number of CPUs as an SVG file. `None` if all runs
/// have one number of CPUs, or no headline.
pub fn curves_svg(runs: &[&Document]) -> Option<String> {
    curves::file(runs).map(|svg| plain(&svg).into_owned())
}

fn fits(bytes: usize) -> Result<(), HtmlError> {
    if bytes > MOST_BYTES { Err(HtmlError::TooLarge { mib: bytes >> 20 }) } else { Ok(()) }
}

/// A part of the page.
struct Section {
    title: String,
    /// Its subject, and the command that made it.
    about: Markup,
    pictures: Vec<Picture>,
    /// All of it as text.
    text: Option<String>,
}

impl Section {
    fn markup(&self, at: usize) -> Markup {
        html! {
            section id={ "s" (at) } {
                h2 { (self.title) }
                (self.about)
                div.pictures { @for picture in &self.pictures { (picture.markup()) } }
                @if let Some(text) = &self.text {
                    details { summary { "everything as text" } pre { (text) } }
                }
            }
        }
    }
}

fn title(runs: &[(&Document, Notes<'_>)], analyses: &[&Robustness]) -> String {
    let runs = runs.iter().map(|(document, _)| document.study.as_str());
    let mut names: Vec<&str> =
        runs.chain(analyses.iter().map(|analysis| analysis.study.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    format!("mmscale: {}", names.join(", "))
}

fn sections(runs: &[(&Document, Notes<'_>)], analyses: &[&Robustness]) -> Vec<Section> {
    let documents: Vec<&Document> = runs.iter().map(|(document, _)| *document).collect();
    let mut sections = of_curves(documents.iter().copied());
    let of_run = |(document, notes): &(&Document, Notes<'_>)| {
        of_run(&point(document, &documents), document, notes)
    };
    sections.extend(runs.iter().map(of_run));
    sections.extend(analyses.iter().map(|analysis| of_analysis(analysis)));
    sections
}

/// Returns a section for each study of which there are several numbers of CPUs and all else is
/// equal.
fn of_curves<'a>(documents: impl Iterator<Item = &'a Document>) -> Vec<Section> {
    let mut curves = BTreeMap::<_, Vec<&Document>>::new();
    for document in documents {
        let params: Vec<String> =
            document.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let key = (&document.study, document.on, &document.profile, document.hz, params);
        curves.entry(key).or_default().push(document);
    }
    let section = |documents: Vec<&Document>| {
        let first = documents[0];
        let pictures = curves::pictures(&documents);
        (!pictures.is_empty()).then(|| Section {
            title: format!("{} by CPUs, {}", first.study, first.machine()),
            about: html! {
                @for command in commands(&documents) { p.about { "made by " code { (command) } } }
            },
            pictures,
            text: None,
        })
    };
    curves.into_values().filter_map(section).collect()
}

/// Returns the different command lines of documents.
fn commands(documents: &[&Document]) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for command in documents.iter().map(|document| document.command.join(" ")) {
        if !all.contains(&command) {
            all.push(command);
        }
    }
    all
}

/// Returns the section of a run with a name of its own among those of its study.
fn of_run(name: &str, document: &Document, notes: &Notes<'_>) -> Section {
    let mut pictures = dots::pictures(document);
    pictures.extend(waits::pictures(document));
    pictures.extend(matrix::pictures(document));
    pictures.extend(flame::pictures(document));
    let entries = answer(document, notes);
    Section {
        title: format!("{name}, {} CPUs of {}", document.cpus, document.machine()),
        about: html! {
            p.about { (notes.summary) }
            dl { @for (key, entry) in &entries { dt { (key) } dd { (entry) } } }
            @if document.arms.is_empty() { p { "No arm of this run has a result." } }
            @for failure in &document.failures {
                p { "failed: " (failure.arm) ", seed " (failure.seed) ": " (failure.why) }
            }
            p.about {
                "made by " code { (document.command.join(" ")) }
                ", on " (document.on) ", HZ=" (document.hz)
                ", fingerprint " code { (document.fingerprint) }
            }
        },
        pictures,
        text: Some(text(document, notes)),
    }
}

fn of_analysis(analysis: &Robustness) -> Section {
    Section {
        title: format!(
            "{}: what the conclusions depend on, {} CPUs of {}",
            analysis.study,
            analysis.cpus,
            machine_name(&analysis.profile, &analysis.params)
        ),
        about: html! { p.about { "made by " code { (analysis.command.join(" ")) } } },
        pictures: tornado::pictures(analysis),
        text: Some(robust_text(analysis)),
    }
}
