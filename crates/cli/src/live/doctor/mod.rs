//! `mmscale live doctor`: the capabilities of this computer, with consequences and remedies for
//! missing ones.

mod cpu;
mod images;
mod kernel;
mod live;
mod system;
mod trace;

use mmscale_report::wrap;
use serde::Serialize;
use serde_json::json;

use crate::args::Format;
use crate::failure::Failure;
use crate::output;
use system::System;

/// The availability of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Fully available.
    Good,
    /// Available, but the quality of results suffers.
    Limited,
    /// Not available.
    Missing,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The subject of the check.
    pub(crate) what: &'static str,
    /// The availability.
    pub(crate) state: State,
    /// The observation.
    pub(crate) seen: String,
    /// The consequence; empty if all is well.
    pub(crate) means: &'static str,
    /// The remedy; empty if all is well.
    pub(crate) remedy: &'static str,
}

impl Finding {
    /// A finding without problems.
    fn good(what: &'static str, seen: String) -> Self {
        Self { what, state: State::Good, seen, means: "", remedy: "" }
    }
}

/// Executes all checks and shows the findings.
pub(crate) fn doctor(format: Format) -> Result<(), Failure> {
    let system = System::this();
    let mut findings = examine(&system);
    let watchable = mmscale_live::observe::watchable();
    findings.extend(live::examine(&system, &watchable));
    findings.push(images::examine());
    output::print(&match format {
        Format::Text => text(&findings),
        Format::Json => {
            let provenance = mmscale_live::provenance();
            let document = json!({
                "schema": "mmscale/doctor/1",
                "findings": findings,
                "verifier_log": watchable.as_ref().err().and_then(|why| why.verifier_log()),
                "provenance": provenance,
            });
            format!("{document}\n")
        }
    })
}

fn examine(system: &System) -> Vec<Finding> {
    let mut findings = cpu::examine(system);
    findings.extend(kernel::examine(system));
    findings.extend(trace::examine(system));
    findings
}

fn text(findings: &[Finding]) -> String {
    let mut lines = vec![
        "simulation (--on sim) needs none of this: its results are portable".to_owned(),
        String::new(),
    ];
    for finding in findings {
        let state = match finding.state {
            State::Good => "good",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        let head = format!("{state:<8} {:<14} ", finding.what);
        let indent = " ".repeat(24);
        lines.extend(wrap(&finding.seen, &head, &indent));
        if finding.state != State::Good {
            lines.extend(wrap(finding.means, &format!("{indent}means: "), &indent));
            lines.extend(wrap(finding.remedy, &format!("{indent}remedy: "), &indent));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(findings: &[Finding], what: &str) -> State {
        findings.iter().find(|f| f.what == what).unwrap_or_else(|| panic!("no {what}")).state
    }

    #[test]
    fn a_system_without_anything_is_told_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let findings = examine(&System::at(root.path()));
        for finding in &findings {
            assert_eq!(finding.means.is_empty(), finding.state == State::Good, "{finding:?}");
            assert_eq!(finding.remedy.is_empty(), finding.state == State::Good, "{finding:?}");
        }
        assert_eq!(state(&findings, "BTF"), State::Missing);
        assert_eq!(state(&findings, "BPF rights"), State::Missing);
        assert!(text(&findings).lines().all(|line| line.chars().count() <= 72));
    }

    #[test]
    fn a_system_with_everything_is_found_good() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/kernel/btf/vmlinux", "");
        write("sys/kernel/tracing/events/lock/contention_begin/format", "");
        write("sys/kernel/tracing/available_events", "lock:contention_begin\n");
        write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
        write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n");
        write("proc/sys/kernel/osrelease", "6.18.0\n");
        let findings = examine(&System::at(root.path()));
        for what in ["BTF", "tracefs", "BPF rights", "memory"] {
            assert_eq!(state(&findings, what), State::Good, "{what}: {findings:?}");
        }
        let kernel = findings.iter().find(|f| f.what == "kernel").unwrap();
        assert!(kernel.seen.contains("Linux 6.18.0"), "{kernel:?}");
    }
}
