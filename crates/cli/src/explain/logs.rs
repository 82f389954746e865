//! Tasks of a kernel's log that wait, and tasks that may hold the locks.

use mmscale_document::class_of_name;
use mmscale_measured::{CALLS, Holder, Item, Report, Resemblance};

/// Number of waiters and of holders that are named.
const NAMED: usize = 4;
/// Number of functions of a holder's path to show.
const STEPS: usize = 4;

/// Returns the waiters of each lock, then its holders, as keys and texts.
pub(super) fn lines(found: &Resemblance) -> Vec<(&'static str, String)> {
    let mut lines = vec![];
    let mut classes: Vec<&str> = vec![];
    for item in found.items.iter().filter(|item| item.who.is_some()) {
        if !classes.contains(&item.class.as_str()) {
            classes.push(&item.class);
        }
    }
    for class in classes {
        let all: Vec<&Item> = found.items.iter().filter(|item| item.class == class).collect();
        let named = all.iter().take(NAMED).map(|item| {
            let inner = item.path.last().map_or(String::new(), |name| format!(" in {name}"));
            format!("{}{inner}", item.who.as_deref().unwrap_or(""))
        });
        let more = match all.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; {more} more"),
        };
        let named: Vec<String> = named.collect();
        let what = if class == CALLS { "other CPUs" } else { class };
        lines.push(("waits", format!("for {what}: {}{more}", named.join("; "))));
    }
    for holder in found.holders.iter().take(NAMED) {
        lines.push(("holder", text(holder)));
    }
    lines
}

/// Describes warnings of lockdep.
pub(super) fn orders(report: &Report) -> Vec<String> {
    let name = |lock: &str| match class_of_name(lock) {
        Some(class) if !lock.contains(class) => format!("{lock} ({class})"),
        _ => lock.to_owned(),
    };
    let text = |order: &mmscale_measured::Order| {
        let (lock, function) = &order.wanted;
        let place = if function.is_empty() { String::new() } else { format!(" in {function}") };
        let held = order
            .held
            .as_deref()
            .map_or(String::new(), |held| format!(" while it holds {}", name(held)));
        format!(
            "line {}: {} takes {}{place}{held}, which may deadlock; lockdep warns of the order of \
             locks, and nothing waits",
            order.line,
            order.task,
            name(lock)
        )
    };
    report.orders.iter().take(NAMED).map(text).collect()
}

fn text(holder: &Holder) -> String {
    let Holder { lock, who, path, is_sure } = holder;
    let inner: Vec<&str> = path.iter().rev().take(STEPS).map(String::as_str).collect();
    let of = if lock.is_empty() { "the lock".to_owned() } else { lock.clone() };
    match is_sure {
        true => format!("of {of}: {who}, as the log says"),
        false => {
            format!("of {of}, perhaps: {who}, in {}, which takes such locks", inner.join(" < "))
        }
    }
}
