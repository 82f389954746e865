//! Shares and times in explanations.

/// Formats a share.
pub(super) fn percent(share: f64) -> String {
    let x = 100.0 * share;
    if x < 9.95 { format!("{x:.1} %") } else { format!("{x:.0} %") }
}

/// Formats a time.
pub(super) fn time(ns: f64) -> String {
    match ns {
        x if x >= 1e9 => format!("{:.2} s", x / 1e9),
        x if x >= 1e6 => format!("{:.2} ms", x / 1e6),
        x if x >= 1e3 => format!("{:.1} us", x / 1e3),
        x => format!("{x:.0} ns"),
    }
}
