//! Figures of a trace of contended locks beyond its waits.

use mmscale_measured::{Contention, Herd, Spread};

use super::figure::{percent, time};

/// Number of classes, locks, pairs and holders to name.
const NAMED: usize = 4;

/// Returns the lines of a trace, as keys and texts.
pub(super) fn lines(seen: &Contention) -> Vec<(&'static str, String)> {
    let all = seen.spreads.iter().map(|of| of.total_ns).fold(0, u64::saturating_add);
    let share = |ns: u64| percent(ns as f64 / all.max(1) as f64);
    let mut lines = Vec::new();
    for of in seen.spreads.iter().take(NAMED) {
        lines.push(("waits", format!("{} of the waited time: {}", share(of.total_ns), spread(of))));
    }
    if let Some(more) = seen.spreads.len().checked_sub(NAMED).filter(|more| *more > 0) {
        lines.push(("waits", format!("{more} more classes of locks")));
    }
    let has_paths = seen.table.waits.iter().any(|wait| !wait.path.is_empty());
    for (lock, kind, sum) in seen.locks.iter().take(if has_paths { 1 } else { NAMED }) {
        lines.push((
            "lock",
            format!(
                "0x{lock:x} ({kind}): {} of the waited time, {}, up to {} at a time",
                share(sum.total_ns),
                counted(sum.waits, "wait"),
                counted(sum.most as u64, "task")
            ),
        ));
    }
    let pairs = seen.together.iter().take(NAMED);
    let pairs: Vec<String> = pairs.map(|(a, b, n)| format!("{a} and {b} {n} times")).collect();
    if !pairs.is_empty() {
        lines.push(("together", format!("tasks wait for the same lock: {}", pairs.join(", "))));
    }
    let released: u64 = seen.released.iter().map(|(_, n)| n).sum();
    let holders = seen.released.iter().take(NAMED);
    let holders: Vec<String> =
        holders.map(|(of, n)| format!("{of} {}", percent(*n as f64 / released as f64))).collect();
    if !holders.is_empty() {
        lines.push(("holder", format!("locks are released to waiters by {}", holders.join(", "))));
    }
    if let Some(herd) = seen.herd.as_ref().filter(|herd| !herd.shares.is_empty()) {
        lines.extend(of_herd(herd));
    }
    if let Some((free, of)) = &seen.zone {
        let part = of.waits as f64 / (free + of.waits) as f64;
        lines.push(("zone", format!("{} of the acquisitions wait; {}", percent(part), spread(of))));
    }
    lines
}

/// Returns a number with its noun.
fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn spread(of: &Spread) -> String {
    let [half, most, nearly] = of.quantiles_ns.map(|ns| time(ns as f64));
    let class = if of.class == of.kind { String::new() } else { format!(" {}", of.class) };
    format!(
        "{}{class}, {} of {} in all; 50 % up to {half}, 90 % up to {most}, 99 % up to {nearly}, \
         longest {}",
        of.kind,
        counted(of.waits, "wait"),
        time(of.total_ns as f64),
        time(of.max_ns as f64)
    )
}

fn of_herd(herd: &Herd) -> Vec<(&'static str, String)> {
    if herd.most < 2 {
        return vec![("herd", "no two tasks wait for one lock together".to_owned())];
    }
    let shares = herd.shares.iter().map(|(from, share)| match from {
        1 => format!("one alone {}", percent(*share)),
        from => format!("{from} to {} {}", 2 * from - 1, percent(*share)),
    });
    let shares: Vec<String> = shares.collect();
    let most = format!(
        "up to {} tasks wait for one lock together (0x{:x}, {} after the start); waited time by \
         the number that waits: {}",
        herd.most,
        herd.lock,
        time(herd.at_ns as f64),
        shares.join(", ")
    );
    let largest = herd.in_time.iter().copied().fold(0.0, f64::max);
    let decimals = if largest < 1.0 { 3 } else { 1 };
    let means: Vec<String> = herd.in_time.iter().map(|mean| format!("{mean:.decimals$}")).collect();
    let stretch = time(herd.stretch_ns as f64);
    let means = format!("tasks that wait, mean of each {stretch}: {}", means.join(" "));
    vec![("herd", most), ("in time", means)]
}
