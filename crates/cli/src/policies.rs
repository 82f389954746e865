//! The policies of each mechanism, as `mmscale list` shows them.

use mmscale_document::Target;
use mmscale_harness::versions::{
    GAPS, Gap, HISTORIES, History, Missing, NEWEST, OLDEST, Step, VERSIONS, Version, policies_of,
};
use mmscale_harness::{
    About, ArmId, Length, MECHANISMS, Mechanism, Params, Registry, Study, policies_in,
};
use mmscale_report::wrap;
use serde_json::{Value, json};

/// A policy with the arms in which it is in effect.
pub(crate) struct Listed {
    pub(crate) name: &'static str,
    /// The description of the policy; whether it is the default, or else which arms use it.
    pub(crate) text: String,
    json: Value,
}

/// Returns all mechanisms with their policies.
pub(crate) fn mechanisms(
    registry: &Registry,
) -> impl Iterator<Item = (&'static Mechanism, Vec<Listed>)> + '_ {
    MECHANISMS.iter().map(move |mechanism| {
        let policies = mechanism.policies.iter().map(|policy| listed(registry, mechanism, policy));
        (mechanism, policies.collect())
    })
}

fn listed(registry: &Registry, mechanism: &'static Mechanism, policy: &'static About) -> Listed {
    let About { name, help } = *policy;
    let arms: Vec<_> = registry.all().flat_map(|study| arms(study, mechanism, name)).collect();
    let json_arms = arms.iter().map(|(study, arm)| json!({"study": study, "arm": arm}));
    let json = json!({"name": name, "help": help, "arms": json_arms.collect::<Vec<_>>()});
    let named: Vec<_> = arms.iter().map(|(study, arm)| format!("{study} {arm}")).collect();
    let more = match &named[..] {
        _ if policy == mechanism.default() => " The default.".to_owned(),
        [] => format!(" For an arm with it: --policy {}={name}.", mechanism.key),
        named => format!(" Used by: {}.", named.join(", ")),
    };
    let span = History::of(mechanism.key).and_then(|history| history.span(name));
    let versions = span.map_or(String::new(), |span| format!(" {}.", versions(span)));
    Listed { name, text: format!("{help}{versions}{more}"), json }
}

/// Formats the versions of Linux that have a policy: since the first, before the second.
fn versions(span: (Option<Version>, Option<Version>)) -> String {
    match span {
        (None, None) => "All versions of Linux".to_owned(),
        (None, Some(end)) => format!("Linux before {end}"),
        (Some(since), None) => format!("Linux since {since}"),
        (Some(since), Some(end)) => format!("Linux since {since}, before {end}"),
    }
}

/// Returns the versions of Linux that can be simulated, each with its policies; then the evidence
/// for each change, and the changes that are not modelled.
pub(crate) fn of_linux() -> Vec<String> {
    let mut lines = vec!["versions of Linux (--linux VERSION)".to_owned()];
    let indented = |name: String, text: &str| wrap(text, &format!("  {name:<6}"), "        ");
    for version in VERSIONS {
        lines.extend(indented(version.to_string(), &policies_in(version)));
    }
    lines.push("  other mechanisms have their default in all versions".to_owned());
    lines.push(format!("  any version from {OLDEST} to {NEWEST} has the changes below up to it"));
    lines.push(String::new());
    lines.push("changes, with their sources".to_owned());
    for History { key, first, steps } in HISTORIES {
        lines.push(format!("  {key}={first}"));
        for Step { since, policy, source } in *steps {
            lines.extend(indented(since.to_string(), &format!("{key}={policy}; {source}")));
        }
    }
    lines.push(String::new());
    lines.push("not modelled, with their sources".to_owned());
    for Gap { at, missing, what, source } in GAPS {
        let side = if *missing == Missing::Before { "before" } else { "since" };
        lines.extend(wrap(&format!("{side} {at}: {what}; {source}"), "  ", "        "));
    }
    lines
}

/// Returns the versions with their policies as JSON.
pub(crate) fn linux_json() -> Value {
    let of = |version: Version| {
        let all = policies_of(version).map(|(mechanism, policy)| (mechanism.key, policy.name));
        let policies: serde_json::Map<_, _> =
            all.map(|(key, name)| (key.to_owned(), name.into())).collect();
        let gaps = GAPS.iter().filter(|gap| gap.is_of(version)).map(|gap| gap.what);
        json!({
            "version": version.to_string(),
            "policies": policies,
            "not_modelled": gaps.collect::<Vec<_>>(),
        })
    };
    VERSIONS.map(of).to_vec().into()
}

/// Returns all mechanisms with their policies as JSON.
pub(crate) fn as_json(registry: &Registry) -> Vec<Value> {
    let each = mechanisms(registry).map(|(mechanism, policies)| {
        json!({
            "key": mechanism.key,
            "summary": mechanism.summary,
            "default": mechanism.default().name,
            "policies": policies.into_iter().map(|policy| policy.json).collect::<Vec<_>>(),
        })
    });
    each.collect()
}

/// Returns the arms of a study in which a policy is in effect, unless a parameter overrides it.
fn arms<'a>(
    study: &'a Study,
    mechanism: &'static Mechanism,
    policy: &'static str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let params = Params::defaults(study.params(), Length::Full);
    let arms = study.arms().iter().enumerate();
    let has = move |&(place, _): &(usize, _)| {
        let chosen = study.policies(ArmId(place), &params, Target::Sim);
        chosen.get(mechanism.key).is_some_and(|chosen| chosen == policy)
    };
    arms.filter(has).map(move |(_, arm)| (study.name(), &*arm.name))
}
