//! Whether the counts and times of a document can be added up: tables and pictures have sums of
//! them.

use serde_json::Value;

/// Returns whether the sum of all whole numbers of a document is one of 64 bits, and with it every
/// sum of some of them. Seeds are names.
pub(super) fn add_up(document: &Value) -> bool {
    sum(document).is_some()
}

fn sum(value: &Value) -> Option<u64> {
    let add = |all: u64, value: &Value| all.checked_add(sum(value)?);
    match value {
        Value::Number(number) => Some(number.as_u64().unwrap_or(0)),
        Value::Array(all) => all.iter().try_fold(0, add),
        Value::Object(all) => {
            let counts = all.iter().filter(|(key, _)| !["seed", "seeds"].contains(&key.as_str()));
            counts.map(|(_, value)| value).try_fold(0, add)
        }
        Value::Null | Value::Bool(_) | Value::String(_) => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_beyond_64_bits_do_not_add_up_and_seeds_are_no_counts() {
        let half = 1_u64 << 63;
        assert!(add_up(&json!({"rows": [{"ns": half}, {"ns": half - 1}], "x": 0.5, "y": -1})));
        assert!(!add_up(&json!({"rows": [{"ns": half}, {"ns": half}]})));
        assert!(add_up(&json!({"seeds": [u64::MAX, 1], "failures": [{"seed": u64::MAX}]})));
    }
}
