//! Costs of a machine that differ from those of its profile, among a document's parameters.

use std::collections::BTreeMap;

use crate::ParamValue;

/// The beginning of the name of such a parameter; the key of the cost follows. No study and no
/// script can declare such a name.
pub const COST_OPTION: &str = "--cost ";

/// The name under which a document has the scale of the holds of one lock class. No study and no
/// script can declare it.
pub const HOLD_OPTION: &str = "--hold";

/// Names a machine: its profile, and the costs that differ, as in `x86-512 with handoff_fixed_ns=110`.
pub fn machine_name(profile: &str, params: &BTreeMap<String, ParamValue>) -> String {
    let costs = params.iter().filter_map(|(name, value)| {
        let key = name.strip_prefix(COST_OPTION)?;
        Some(format!("{key}={value}"))
    });
    let costs: Vec<String> = costs.collect();
    if costs.is_empty() {
        return profile.to_owned();
    }
    format!("{profile} with {}", costs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_with_its_own_costs() {
        let mut params = BTreeMap::from([("pages".to_owned(), ParamValue::Count(4))]);
        assert_eq!(machine_name("x86-512", &params), "x86-512");
        params.insert("--cost handoff_fixed_ns".to_owned(), ParamValue::Real(110.0));
        assert_eq!(machine_name("x86-512", &params), "x86-512 with handoff_fixed_ns=110");
    }
}
