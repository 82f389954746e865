//! Rows of LLFree's benchmark and of one CPU, and this computer's threads, with their predictions.

use std::fmt::Write;
use std::path::Path;

use mmscale_calibrate::Profiles;
use mmscale_calibrate::fidelity::{self, ComparisonRow, Hold, SEED};
use mmscale_harness::{CallError, Interrupt, StudyError};
use mmscale_report::wrap;

use crate::failure::Failure;

/// The profile of the published measurements.
const PUBLISHED: &str = "x86-26";
/// Runs per real measurement; the median is shown.
const REPEATS: usize = 7;

/// Returns the rows of LLFree's benchmark and of one CPU, with their predictions; with a profile of
/// this computer also its own threads with their prediction.
pub(super) fn text(
    profiles: &Profiles,
    own: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<String, Failure> {
    let load = |name: &Path| profiles.load(name).map_err(CallError::from);
    let own = own.map(load).transpose()?;
    let published = load(Path::new(PUBLISHED))?;
    let (rows, holds) = fidelity::published(&published, interrupt).map_err(failed)?;
    let mut text = table(
        &format!(
            "Linux 6.0, order 0, all cores in parallel: 16384 pages allocated, then\n\
             freed. Measured: LLFree's benchmark, Xeon Gold 5320, bare metal.\n\
             Simulated: profile {PUBLISHED}, seed {SEED}. Fitted: the sums of the\n\
             allocator's costs to the rows of 1 core, their part under zone->lock\n\
             to the holds below, the lock's handoff to the rows of 8 cores."
        ),
        &rows,
    );
    text.push_str(&holds_table(&holds));
    text.push_str(&pages_table(profiles, interrupt)?);
    if let Some(own) = own {
        let rows = fidelity::this_computer(&own, REPEATS, interrupt).map_err(failed)?;
        text.push('\n');
        text.push_str(&table(
            &format!(
                "The same on this computer. Measured: its threads, medians of {REPEATS} runs,\n\
                 each at the speed that single CPUs had right before and after it.\n\
                 Simulated: profile {}, seed {SEED}.{}",
                own.name,
                another(&own.name, own.topology.cpus, fidelity::host_cpus())
            ),
            &rows,
        ));
    }
    Ok(text)
}

/// Returns a warning if the profile is not of this computer, as a sentence on separate lines.
fn another(name: &str, cpus: usize, host_cpus: usize) -> String {
    if cpus == host_cpus {
        return String::new();
    }
    let what = format!(
        "Profile {name} has {cpus} CPUs, but this computer has {host_cpus}: it describes another \
         machine, so the errors below are differences between machines, not errors of a \
         prediction."
    );
    format!("\n{}", wrap(&what, "", "").join("\n"))
}

fn failed(why: StudyError) -> Failure {
    Failure::Run(match why {
        StudyError::Interrupted => anyhow::anyhow!("interrupted; no result was written"),
        why => why.into(),
    })
}

/// Formats rows in 72 columns, below a title of whole lines.
fn table(title: &str, rows: &[ComparisonRow]) -> String {
    let mut text = format!("{title}\n\n");
    text.push_str("           ns per page allocated              ns per page freed\n");
    text.push_str("cpus   measured simulated    error     measured simulated    error\n");
    for row in rows {
        let (alloc, free) = (row.alloc, row.free);
        writeln!(
            text,
            "{:4} {:10.1} {:9.1} {:+7.1}% {:12.1} {:9.1} {:+7.1}%",
            row.cpus,
            alloc.real,
            alloc.simulated,
            alloc.error_percent(),
            free.real,
            free.simulated,
            free.error_percent()
        )
        .expect("a string takes all that is written");
    }
    text
}

/// Formats the hold times of zone->lock in these runs, with the published ones.
fn holds_table(holds: &[Hold]) -> String {
    let (alloc, free) = fidelity::ICE_LAKE_HOLD_NS;
    let us = |ns: f64| ns / 1000.0;
    let mut text = format!(
        "\nzone->lock held for a batch of 63 pages, mean us. Published for an\n\
         Ice Lake server under another load: allocation {:.2}, free {:.2}.\n\n\
         cpus   allocation       free\n",
        us(alloc),
        us(free)
    );
    for hold in holds {
        writeln!(text, "{:4} {:12.2} {:10.2}", hold.cpus, us(hold.alloc_ns), us(hold.free_ns))
            .expect("a string takes all that is written");
    }
    text
}

/// Formats the times of a page on one CPU, with the published ones.
fn pages_table(profiles: &Profiles, interrupt: &Interrupt) -> Result<String, Failure> {
    let mut text = String::from(
        "\nOne CPU, anonymous memory in pages of 4 KiB. Published: LLFree's raw\n\
         results (x86-26); David Hildenbrand's cover letters of 2024, 1 GiB on a\n\
         Xeon Silver 4210R (x86-16). The costs of faults, forks and empty page\n\
         tables are derived from these rows, those of unmapping are not.\n\n\
         profile  step                       ns a page simulated    error\n",
    );
    for name in ["x86-26", "x86-16"] {
        let profile = fidelity::measured_on(profiles, name).map_err(CallError::from)?;
        for (step, pair) in fidelity::one_cpu(&profile, interrupt).map_err(failed)? {
            writeln!(
                text,
                "{name:8} {:24} {:11.2} {:9.2} {:+7.1}%",
                step.name(),
                pair.real,
                pair.simulated,
                pair.error_percent()
            )
            .expect("a string takes all that is written");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_calibrate::fidelity::Pair;

    #[test]
    fn a_row_shows_both_figures_and_the_error() {
        let pair = |real, simulated| Pair { real, simulated };
        let row =
            ComparisonRow { cpus: 26, alloc: pair(984.0, 1033.2), free: pair(1241.0, 1116.9) };
        let text = table("t", &[row]);
        let line = text.lines().last().expect("a row");
        assert_eq!(line, "  26      984.0    1033.2    +5.0%       1241.0    1116.9   -10.0%");
        assert!(line.len() <= 72);
    }

    #[test]
    fn a_profile_of_another_machine_is_called_so() {
        assert_eq!(another("x86-2", 2, 2), "");
        let said = another("epyc192", 192, 2);
        assert!(
            said.starts_with(
                "\nProfile epyc192 has 192 CPUs, but this computer has 2: it describes"
            )
        );
        assert!(said.lines().all(|line| line.len() <= 72), "{said}");
    }
}
