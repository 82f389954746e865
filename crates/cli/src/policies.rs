//! The policies of each mechanism, as `mmscale list` shows them.

use mmscale_document::Target;
use mmscale_harness::{About, ArmId, Length, MECHANISMS, Mechanism, Params, Registry, Study};
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
    registry: Registry,
) -> impl Iterator<Item = (&'static Mechanism, Vec<Listed>)> {
    MECHANISMS.iter().map(move |mechanism| {
        let policies = mechanism.policies.iter().map(|policy| listed(registry, mechanism, policy));
        (mechanism, policies.collect())
    })
}

fn listed(registry: Registry, mechanism: &'static Mechanism, policy: &'static About) -> Listed {
    let About { name, help } = *policy;
    let arms: Vec<_> = registry.all().flat_map(|study| arms(study, mechanism, name)).collect();
    let json_arms = arms.iter().map(|(study, arm)| json!({"study": study, "arm": arm}));
    let json = json!({"name": name, "help": help, "arms": json_arms.collect::<Vec<_>>()});
    let named: Vec<_> = arms.iter().map(|(study, arm)| format!("{study} {arm}")).collect();
    let more = match &named[..] {
        _ if policy == mechanism.default() => " The default.".to_owned(),
        [] => " Used by no arm.".to_owned(),
        named => format!(" Used by: {}.", named.join(", ")),
    };
    Listed { name, text: format!("{help}{more}"), json }
}

/// Returns all mechanisms with their policies as JSON.
pub(crate) fn as_json(registry: Registry) -> Vec<Value> {
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
fn arms(
    study: &'static dyn Study,
    mechanism: &'static Mechanism,
    policy: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let params = Params::defaults(study.params(), Length::Full);
    let arms = study.arms().iter().enumerate();
    let has = move |&(place, _): &(usize, _)| {
        let chosen = study.policies(ArmId(place), &params, Target::Sim);
        chosen.get(mechanism.key).is_some_and(|chosen| chosen == policy)
    };
    arms.filter(has).map(move |(_, arm)| (study.name(), arm.name))
}
