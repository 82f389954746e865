//! Two snapshots of a machine: rates of its memory manager, and what to run next.

use std::path::Path;

use anyhow::anyhow;
use mmscale_measured::{Rates, Zone};
use mmscale_report::wrap;

use crate::failure::Failure;
use crate::machine_files::MachineFiles;
use crate::output;

/// Faults a second of a CPU below which a machine does nothing that is worth a study.
const LITTLE: f64 = 100.0;
/// The share of allocated pages above which reclaim is what the machine does.
const PRESSURE: f64 = 0.1;

/// Prints the rates between two snapshots.
pub(super) fn explain(before: &Path, after: &Path, seconds: Option<f64>) -> Result<(), Failure> {
    let [first, second] = [before, after].map(MachineFiles::read);
    let (first, second) = (first?, second?);
    let rates = Rates::between(&first.snapshot, &second.snapshot, seconds);
    let rates = rates.map_err(|why| {
        Failure::Call(anyhow!("cannot compare `{}` and `{}`: {why}", first.name, second.name))
    })?;
    let zones = [&second, &first].into_iter().find_map(|files| files.snapshot.zones().ok());
    output::print(&text(&rates, &zones.unwrap_or_default(), &second.name))
}

/// Returns the lines about the rates, and the study or script that comes near.
fn text(rates: &Rates, zones: &[Zone], name: &str) -> String {
    let mut lines = Vec::new();
    let mut entry = |key: &str, text: &str| {
        lines.extend(wrap(text, &format!("{key:<9} "), "          "));
    };
    let cpus = zones.iter().map(|zone| zone.caches.len()).max().filter(|cpus| *cpus > 0);
    let of_cpus = match cpus {
        Some(1) => ", 1 CPU".to_owned(),
        Some(cpus) => format!(", {cpus} CPUs"),
        None => String::new(),
    };
    entry("report", &format!("two snapshots, {:.1} s apart{of_cpus}", rates.seconds));
    for rate in &rates.all {
        entry("rate", &format!("{:>9}/s  {}", short(rate.per_s), rate.what));
    }
    let batch = zones.iter().flat_map(|zone| &zone.caches).map(|cache| cache.batch).max();
    let (allocated, freed) = (rates.of("pgalloc_*"), rates.of("pgfree"));
    if let Some(batch) = batch.filter(|batch| *batch > 0) {
        let [refills, drains] = [allocated, freed].map(|pages| short(pages / batch as f64));
        entry(
            "zone",
            &format!(
                "at most {refills} refills and {drains} drains of page caches a second, if each \
                 has a batch of {batch} pages; Linux counts neither"
            ),
        );
    }
    let (sketch, next) = sketch(rates, cpus.unwrap_or(1), name);
    entry("sketch", &sketch);
    entry("next", &next);
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns what the machine does by these rates, and what to run.
fn sketch(rates: &Rates, cpus: usize, name: &str) -> (String, String) {
    let (faults, allocated) = (rates.of("pgfault"), rates.of("pgalloc_*"));
    let reclaimed = rates.of("pgsteal_kswapd");
    let huge = 512.0 * rates.of("thp_fault_alloc");
    let machine =
        format!("mmscale profile new --base x86-512 --from {name} -o mine.toml, then mmscale run");
    let run = |script: &str| format!("{machine} {script} --profile ./mine.toml");
    let script = "write the workload as a script (docs/your-workload.md)";
    if faults < LITTLE * cpus as f64 && allocated < LITTLE * cpus as f64 {
        return (
            "the memory manager has almost nothing to do".to_owned(),
            "take both snapshots while the problem is there".to_owned(),
        );
    }
    if reclaimed > PRESSURE * allocated {
        return (
            format!(
                "memory pressure: {:.0} % as many pages are reclaimed as allocated",
                100.0 * reclaimed / allocated
            ),
            format!("{script} with more memory than the machine has; no built-in script reclaims"),
        );
    }
    if rates.of("nr_tlb_remote_flush") > LITTLE * cpus as f64 {
        return ("CPUs flush each other's TLBs".to_owned(), run("ipi"));
    }
    if huge > allocated / 2.0 {
        return (
            "most memory comes as huge pages".to_owned(),
            format!("{script} with madvise(m, HUGEPAGE)"),
        );
    }
    if allocated > 4.0 * faults {
        return (
            format!(
                "{:.1} pages are allocated for each fault: files, the network or the kernel, not \
                 the memory of programs",
                allocated / faults.max(1.0)
            ),
            format!("{machine} pcp --profile ./mine.toml, for page caches and zone->lock alone"),
        );
    }
    let pages = allocated / faults.max(1.0);
    let sketch = format!(
        "programs fault and free: {pages:.1} pages for each fault, {} faults a second of a CPU",
        short(faults / cpus as f64)
    );
    (sketch, run("page_fault1"))
}

/// Formats a number with a unit of thousands.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e3 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.1}"),
    }
}
