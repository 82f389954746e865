//! Why, and how far, to trust a letter: costs, checks, what is not covered, and the tool.

use mmscale_document::{Document, Robustness, Target, machine_name};

use super::Letter;
use super::elsewhere::missing;
use crate::text::answer::{not_simulated, short_window};
use crate::text::{robust, wrap};

/// Returns the conclusions that hold on other machines, and the numbers that they depend on.
pub(super) fn robustness(letter: &Letter<'_>) -> Vec<String> {
    let document = letter.document;
    let mut lines = vec![];
    for analysis in &letter.analyses {
        let claims = analysis.claims.iter();
        let shown = claims.filter(|claim| document.arms[1..].iter().any(|a| a.arm == claim.arm));
        let shown: Vec<_> = shown.collect();
        if shown.is_empty() || analysis.base != document.arms[0].arm {
            continue;
        }
        lines.extend(wrap(&title(analysis, document), "", "  "));
        lines.extend(
            shown.into_iter().flat_map(|claim| wrap(&robust::in_short(analysis, claim), "", "  ")),
        );
    }
    if lines.is_empty() {
        let call = letter.about.calls.robust.as_deref();
        lines = missing("not analysed: the figures hold for the costs of this profile only", call);
    }
    lines
}

/// Formats what an analysis is about, and what differs from the run.
fn title(analysis: &Robustness, document: &Document) -> String {
    let mut differs = vec![];
    if Some(&analysis.profile_hash) != document.profile_hash.as_ref() {
        differs.push("numbers of the profile".to_owned());
    }
    if analysis.cpus != document.cpus {
        differs.push("number of CPUs".to_owned());
    }
    if analysis.build != document.build {
        differs.push("build of mmscale".to_owned());
    }
    let params =
        analysis.params.iter().filter(|(name, value)| document.params.get(*name) != Some(value));
    differs.extend(params.map(|(name, value)| format!("{name}={value}")));
    let without = document.params.keys().filter(|name| !analysis.params.contains_key(*name));
    differs.extend(without.map(|name| format!("no {name}")));
    let differs = if differs.is_empty() {
        String::new()
    } else {
        format!("; other than above: {}", differs.join(", "))
    };
    let effect = analysis.numbers as usize - analysis.without_effect.len();
    let s = if analysis.seeds.len() == 1 { "" } else { "s" };
    format!(
        "{} CPUs of {}, {} seed{s}: {} costs moved to both ends of their ranges, of which {effect} \
         change a result{differs}",
        analysis.cpus,
        machine_name(&analysis.profile, &analysis.params),
        analysis.seeds.len(),
        analysis.numbers
    )
}

/// Returns what was checked in the runs.
pub(super) fn checked(letter: &Letter<'_>) -> Vec<String> {
    let document = letter.document;
    let mut lines = wrap(
        "a page that does not hold what was written to it fails a run: none did here.",
        "",
        "  ",
    );
    let checks = "lock order, frame ownership, leaks";
    if document.on == Target::Live {
        return lines;
    }
    if document.command.iter().any(|word| word == "--check") {
        lines.extend(wrap(&format!("{checks}: no violation in any run (--check)."), "", "  "));
    } else {
        let what = format!("{checks}: not checked in these runs");
        lines.extend(missing(&what, letter.about.calls.check.as_deref()));
    }
    let injected = document.params.get("alloc_fail_1024").map(ToString::to_string);
    lines.extend(match injected.filter(|share| share != "0") {
        Some(share) => wrap(&format!("{share} of 1024 allocations of memory failed."), "", "  "),
        None => wrap("failures of allocations were not injected.", "", "  "),
    });
    lines
}

/// Returns the locks and mechanisms of Linux without a counterpart here.
pub(super) fn not_covered(document: &Document) -> Vec<String> {
    if document.on == Target::Live {
        return wrap("measured on one kernel and one computer.", "", "  ");
    }
    let gaps = not_simulated(&document.not_simulated);
    let gaps = gaps.unwrap_or_else(|| "no gap is known on the paths of these calls".to_owned());
    let mut lines = wrap(&format!("{gaps}."), "", "  ");
    let rest = "The compiler, caches and clock frequencies are in no figure beyond the costs of \
                the profile.";
    lines.extend(wrap(rest, "", "  "));
    lines.extend(short_window(document).iter().flat_map(|text| wrap(text, "", "  ")));
    lines
}

/// Returns the sentence that names the tool, as the kernel's rules on tools ask for.
pub(super) fn tool(document: &Document) -> Vec<String> {
    let build = &document.build;
    let text = match document.on {
        Target::Live => format!(
            "The problem was measured with mmscale {build}, which runs one workload on a live \
             kernel and on simulated machines."
        ),
        Target::Sim | Target::Threads => format!(
            "The problem was studied with mmscale {build}, which runs a memory manager with the \
             structure of Linux's on simulated machines. The figures above are simulated, not \
             measured on a kernel; the call above repeats them to the last bit."
        ),
    };
    wrap(&text, "", "  ")
}
