//! `mmscale list`.

mod limits;

use mmscale_document::{Better, ParamValue, Target};
use mmscale_harness::param::Kind;
use mmscale_harness::versions::{NEWEST, VERSIONS};
use mmscale_harness::{
    CallError, Length, MetricSpec, NoStudy, ParamSpec, ProfileSummary, Registry, Study,
    UnknownName, profiles,
};
use mmscale_report::wrap;
use serde_json::{Value, json};

use crate::args::{Format, ListArgs};
use crate::failure::Failure;
use crate::output;
use crate::policies;

/// The selected parts of the list.
struct Shown {
    studies: Vec<Study>,
    /// Scripts that are part of the program.
    scripts: Vec<Study>,
    policies: bool,
    linux: bool,
    profiles: Option<Vec<ProfileSummary>>,
    /// The limits of a machine.
    limits: Option<limits::Shown>,
}

/// Shows studies, policies and profiles: all, or the named ones.
pub(crate) fn list(registry: &Registry, args: &ListArgs) -> Result<(), Failure> {
    let mut shown = shown(registry, &args.what)?;
    if args.what.iter().any(|name| name == "limits") {
        shown.limits = Some(limits::shown(&args.limits)?);
    } else if args.limits.is_given() {
        let what = "--cpus, --memory, --nodes, --linux and --from are those of a machine's limits: \
                    mmscale list limits";
        return Err(CallError::Other(what.to_owned()).into());
    }
    output::print(&match args.format {
        Format::Text if args.what.is_empty() => overview(registry, &shown),
        Format::Text => text(registry, &shown),
        Format::Json => format!("{}\n", as_json(registry, &shown)),
    })?;
    match registry.broken() {
        [why, ..] if args.what.is_empty() => Err(Failure::Run(why.clone().into())),
        _ => Ok(()),
    }
}

fn shown(registry: &Registry, names: &[String]) -> Result<Shown, CallError> {
    let all = || profiles(registry.profiles()).map(Some);
    if names.is_empty() {
        let studies = registry.all().cloned().collect();
        let scripts = registry.scripts().cloned().collect();
        return Ok(Shown {
            studies,
            scripts,
            policies: true,
            linux: true,
            profiles: all()?,
            limits: None,
        });
    }
    let mut shown = Shown {
        studies: vec![],
        scripts: vec![],
        policies: false,
        linux: false,
        profiles: None,
        limits: None,
    };
    for name in names {
        match (name.as_str(), registry.find(name)) {
            ("policies", _) => shown.policies = true,
            ("linux", _) => shown.linux = true,
            ("profiles", _) => shown.profiles = all()?,
            ("limits", _) => {}
            (_, Ok(study)) if shown.studies.iter().any(|other| other.name() == name) => {
                let what = format!("study `{}` is named twice; name it once", study.name());
                return Err(CallError::Other(what));
            }
            (_, Ok(study)) => shown.studies.push(study),
            (_, Err(NoStudy::Unknown(_))) => {
                let known = registry.all().chain(registry.scripts()).map(Study::name);
                let known = known.chain(["policies", "linux", "profiles", "limits"]);
                return Err(UnknownName::new("study or list", name, known).into());
            }
            (_, Err(broken)) => return Err(broken.into()),
        }
    }
    Ok(shown)
}

/// Returns one page: the studies with their questions and reports, and the names of the rest.
fn overview(registry: &Registry, shown: &Shown) -> String {
    let mut lines = vec!["studies (mmscale list STUDY: arms, parameters, metrics)".to_owned()];
    let width = shown.studies.iter().map(|study| study.name().len()).max().unwrap_or(0);
    let rest = " ".repeat(width + 4);
    for study in &shown.studies {
        lines.extend(wrap(study.summary(), &format!("  {:<width$}  ", study.name()), &rest));
        if let Some(report) = study.report() {
            lines.extend(wrap(&format!("report: {}", report.subject), &rest, &rest));
            lines.push(format!("{rest}{}", report.link));
        }
        let arms: Vec<&str> = study.arms().iter().map(|arm| &*arm.name).collect();
        lines.extend(wrap(&format!("arms: {}", arms.join(", ")), &rest, &rest));
    }
    if !shown.scripts.is_empty() {
        lines.push(String::new());
        lines.push(
            "scripts (mmscale run NAME; with a file of yours: mmscale run ./NAME.mms)".into(),
        );
        let width = shown.scripts.iter().map(|script| script.name().len()).max().unwrap_or(0);
        let rest = " ".repeat(width + 4);
        for script in &shown.scripts {
            let first = format!("  {:<width$}  ", script.name());
            lines.extend(wrap(script.summary(), &first, &rest));
        }
    }
    lines.push(String::new());
    lines.push("policies (mmscale list policies), for --policy KEY=POLICY".to_owned());
    let mechanisms: Vec<_> = policies::mechanisms(registry).collect();
    let width = mechanisms.iter().map(|(mechanism, _)| mechanism.key.len()).max().unwrap_or(0);
    for (mechanism, policies) in mechanisms {
        let names: Vec<&str> = policies.iter().map(|policy| policy.name).collect();
        lines.push(format!("  {:<width$}  {}", mechanism.key, names.join(", ")));
    }
    lines.push(String::new());
    lines.push("versions of Linux (mmscale list linux), for --linux VERSION".to_owned());
    let versions = VERSIONS.map(|version| version.to_string()).join(", ");
    lines.push(format!("  {versions}, and all between and up to {NEWEST}"));
    let profiles = shown.profiles.iter().flatten().map(|profile| profile.name.as_str());
    let names = profiles.collect::<Vec<_>>().join(", ");
    lines.push(String::new());
    lines.push("machine profiles (mmscale list profiles), for --profile NAME".to_owned());
    lines.extend(wrap(&names, "  ", "  "));
    lines.join("\n") + "\n"
}

fn text(registry: &Registry, shown: &Shown) -> String {
    let mut sections: Vec<Vec<String>> = shown.studies.iter().map(describe).collect();
    if shown.policies {
        sections.push(of_policies(registry));
    }
    if shown.linux {
        sections.push(policies::of_linux());
    }
    sections.extend(shown.profiles.as_deref().map(of_profiles));
    sections.extend(shown.limits.as_ref().map(limits::Shown::text));
    let sections: Vec<String> = sections.into_iter().map(|lines| lines.join("\n") + "\n").collect();
    sections.join("\n")
}

fn of_policies(registry: &Registry) -> Vec<String> {
    let mut lines = vec!["policies (--policy KEY=POLICY, in any study)".to_owned()];
    for (mechanism, policies) in policies::mechanisms(registry) {
        let title = format!("{}: {}", mechanism.key, mechanism.summary);
        let entries = policies.into_iter().map(|policy| (policy.name, policy.text));
        lines.extend(section(&title, entries.collect()));
    }
    lines
}

fn of_profiles(profiles: &[ProfileSummary]) -> Vec<String> {
    let mut lines = vec!["machine profiles (--profile NAME)".to_owned()];
    let width = profiles.iter().map(|p| p.name.len()).max().unwrap_or(0);
    for profile in profiles {
        let text = format!("{} CPUs; {}", profile.cpus, profile.description);
        lines.extend(entry(&profile.name, width, &text));
    }
    lines
}

fn describe(study: &Study) -> Vec<String> {
    let mut lines = wrap(&format!("{}: {}", study.name(), study.summary()), "", "  ");
    if let Some(report) = study.report() {
        lines.extend(wrap(&format!("report: {}", report.subject), "  ", "    "));
        lines.push(format!("    {}", report.link));
    }
    let defaults = study.defaults();
    let machines: Vec<&str> = defaults.machines.iter().map(|on| on.name()).collect();
    let machine = format!(
        "runs on {}; simulated by default as {}, {} CPUs, HZ={}",
        machines.join(", "),
        defaults.profile,
        defaults.cpus,
        defaults.hz
    );
    lines.extend(wrap(&machine, "  ", "  "));
    if let Some(start) = study.start() {
        lines.extend(wrap(&format!("start: {start}"), "  ", "    "));
    }
    lines.extend(section(
        "arms (--arm A,B)",
        study.arms().iter().map(|arm| (&*arm.name, arm.help.clone())).collect(),
    ));
    lines.extend(section(
        "parameters (--set key=value; every study also has cpus and hz)",
        study.params().iter().map(|spec| (&*spec.name, parameter(spec))).collect(),
    ));
    let on_live: Vec<(&str, String)> = parameters_on_live(study).collect();
    if !on_live.is_empty() {
        lines.extend(section("additional or different with --on live", on_live));
    }
    let not_on_live = not_on_live(study);
    if !not_on_live.is_empty() {
        let names = not_on_live.join(", ");
        lines.extend(wrap(&names, "  not with --on live: ", "    "));
    }
    lines.extend(section("metrics", study.metrics().iter().map(|m| (m.name, metric(m))).collect()));
    lines
}

/// Formats unit, definition, and role of a metric.
fn metric(spec: &MetricSpec) -> String {
    let better = match spec.better {
        Some(Better::Lower) => "; lower is better",
        Some(Better::Higher) => "; higher is better",
        None => "",
    };
    let headline = if spec.headline { " (headline)" } else { "" };
    format!("[{}] {}{better}{headline}", spec.unit, spec.help)
}

/// Formats names with their descriptions, under a title.
fn section(title: &str, entries: Vec<(&str, String)>) -> Vec<String> {
    let mut lines = vec![format!("  {title}")];
    let width = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0).min(24);
    for (name, text) in entries {
        lines.extend(entry(name, width, &text));
    }
    lines
}

/// Returns the parameters of a simulated machine that do not apply to the live kernel, if the study
/// runs there.
fn not_on_live(study: &Study) -> Vec<&str> {
    if !study.defaults().machines.contains(&Target::Live) {
        return vec![];
    }
    let there = |name: &str| study.params_on(Target::Live).iter().any(|spec| spec.name == name);
    let names = study.params().iter().map(|spec| &*spec.name);
    names.filter(|&name| !(there(name) && study.takes(name, Target::Live))).collect()
}

/// Returns the parameters that are specific to the live kernel or have other defaults there.
fn parameters_on_live(study: &Study) -> impl Iterator<Item = (&str, String)> {
    let there = study.defaults().machines.contains(&Target::Live);
    let specs = if there { study.params_on(Target::Live) } else { &[] };
    let known = |spec: &ParamSpec| {
        let same = |other: &&ParamSpec| other.name == spec.name;
        study.params().iter().find(same).map(parameter) == Some(parameter(spec))
    };
    let taken = move |spec: &&ParamSpec| study.takes(&spec.name, Target::Live);
    specs
        .iter()
        .filter(taken)
        .filter(move |spec| !known(spec))
        .map(|spec| (&*spec.name, parameter(spec)))
}

fn parameter(spec: &ParamSpec) -> String {
    let [full, quick] = [Length::Full, Length::Quick].map(|length| spec.default(length));
    if !spec.in_turn().is_empty() {
        return format!("{}; {} (default: each in turn)", spec.help, spec.range());
    }
    let mut default = full.to_string();
    if full != quick {
        default.push_str(&format!(", quick {quick}"));
    }
    format!("{}; {} (default {default})", spec.help, spec.range())
}

/// Formats a name with its description in a separate column.
fn entry(name: &str, width: usize, text: &str) -> Vec<String> {
    let rest = " ".repeat(width + 6);
    if name.len() <= width {
        wrap(text, &format!("    {name:<width$}  "), &rest)
    } else {
        let mut lines = vec![format!("    {name}")];
        lines.extend(wrap(text, &rest, &rest));
        lines
    }
}

fn as_json(registry: &Registry, shown: &Shown) -> Value {
    let profile = |p: &ProfileSummary| {
        let ProfileSummary { name, description, cpus, nodes } = p;
        json!({"name": name, "description": description, "cpus": cpus, "nodes": nodes})
    };
    let mut list = json!({"schema": "mmscale/list/1"});
    if !shown.studies.is_empty() {
        list["studies"] = shown.studies.iter().map(study_json).collect();
    }
    if !shown.scripts.is_empty() {
        list["scripts"] = shown.scripts.iter().map(study_json).collect();
    }
    if shown.policies {
        list["policies"] = policies::as_json(registry).into();
    }
    if shown.linux {
        list["linux"] = policies::linux_json();
    }
    if let Some(limits) = &shown.limits {
        list["limits"] = limits.json();
    }
    if let Some(profiles) = &shown.profiles {
        list["profiles"] = profiles.iter().map(profile).collect();
    }
    list
}

fn study_json(study: &Study) -> Value {
    let defaults = study.defaults();
    let arms = study.arms().iter().map(|arm| json!({"name": arm.name, "help": arm.help}));
    let metrics = study.metrics().iter().map(|m| {
        let MetricSpec { name, unit, help, better, headline } = m;
        json!({"name": name, "unit": unit, "help": help, "better": better, "headline": headline})
    });
    json!({
        "name": study.name(),
        "summary": study.summary(),
        "start": study.start(),
        "report": study.report().map(|r| json!({"subject": r.subject, "link": r.link})),
        "machines": defaults.machines,
        "profile": defaults.profile,
        "cpus": defaults.cpus,
        "hz": defaults.hz,
        "arms": arms.collect::<Vec<_>>(),
        "params": study.params().iter().map(parameter_json).collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
    })
}

fn parameter_json(spec: &ParamSpec) -> Value {
    let default: [ParamValue; 2] = [Length::Full, Length::Quick].map(|length| spec.default(length));
    let (ends, names) = match &spec.kind {
        Kind::Count { range, .. } => (json!(range), json!(null)),
        Kind::Real { range, .. } => (json!(range), json!(null)),
        Kind::Switch { .. } => (json!(null), json!(["on", "off"])),
        Kind::Choice { names, .. } | Kind::Each { names, .. } => (json!(null), json!(names)),
    };
    json!({
        "name": spec.name,
        "help": spec.help,
        "unit": spec.unit().map(|unit| unit.name()),
        "range": spec.range(),
        "ends": ends,
        "names": names,
        "default": spec.in_turn().is_empty().then_some(&default[0]),
        "quick_default": spec.in_turn().is_empty().then_some(&default[1]),
    })
}
