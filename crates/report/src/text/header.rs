//! What was run, where and how.

use mmscale_record::{Document, On, ParamValue};

use super::{Notes, wrap};

/// The header, with an empty line at its end.
pub(super) fn lines(document: &Document, notes: &Notes<'_>) -> Vec<String> {
    let mut lines = wrap(&format!("{}: {}", document.study, notes.summary), "", "  ");
    let mut entry = |key: &str, text: String| {
        lines.extend(wrap(&text, &format!("{key:<9} "), "          "));
    };
    let machine = match document.on {
        On::Sim => format!("simulated, profile {}", document.profile),
        On::Threads => "threads of this computer".to_owned(),
        On::Linux => "live kernel".to_owned(),
    };
    entry("machine", format!("{machine}: {} CPUs, HZ={}", document.cpus, document.hz));
    entry("host", format!("{}, {}", document.host.kernel, document.host.cpu));
    entry("seeds", seeds(document));
    let (set, rest): (Vec<_>, Vec<_>) = document
        .params
        .iter()
        .partition(|(name, value)| notes.defaults.get(*name).is_none_or(|d| d != *value));
    let with_default = |(name, value): (&String, &ParamValue)| match notes.defaults.get(name) {
        Some(default) => format!("{name}={value} (default {default})"),
        None => format!("{name}={value}"),
    };
    if !set.is_empty() {
        entry("set", set.into_iter().map(with_default).collect::<Vec<_>>().join(", "));
    }
    if !rest.is_empty() {
        let pair = |(name, value): (&String, &ParamValue)| format!("{name}={value}");
        entry("defaults", rest.into_iter().map(pair).collect::<Vec<_>>().join(", "));
    }
    let Document { version, fingerprint, .. } = document;
    let commit = &document.host.commit;
    entry("mmscale", format!("{version}, commit {commit}, fingerprint {fingerprint}"));
    lines.push(String::new());
    lines
}

/// The seeds in words; all arms have the same.
fn seeds(document: &Document) -> String {
    let seeds: &[u64] = document.arms.first().map_or(&[], |arm| &arm.seeds);
    match seeds {
        [] => "none".to_owned(),
        [one] => format!("{one}, one run of each arm: no figure has a spread"),
        [first, .., last] if last - first == seeds.len() as u64 - 1 => {
            format!("{first} to {last}, {} runs of each arm", seeds.len())
        }
        _ => {
            let names: Vec<String> = seeds.iter().map(u64::to_string).collect();
            format!("{}; {} runs of each arm", names.join(" "), seeds.len())
        }
    }
}
