//! Every planted fault is used in the crate that its declaration names.
//!
//! The compiler refuses the use of a fault that is not declared. A declared fault that is not used
//! would count as missed by the tests.

use super::{Finding, Tree};
use mmscale_arch::planted::{Declared, Fault};

/// The folder in which faults are declared and the macro is documented.
const DECLARED: &str = "crates/arch/src/planted/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let path = format!("{DECLARED}faults.rs");
    let Some(source) = tree.source(&path) else { return Vec::new() };
    let mut found = Vec::new();
    for Declared { fault, krate, name, .. } in Fault::ALL {
        let place = format!("planted!({fault:?})");
        let has_place = |source: &super::Source| {
            let own = source.krate() == Some(*krate) && source.part() == "src";
            own && !source.path.starts_with(DECLARED) && source.text.contains(&place)
        };
        if !tree.rust().any(has_place) {
            let line = source.text.lines().position(|line| line.contains(&format!("\"{name}\"")));
            let what = format!("no `{place}` in crate `{krate}`: use the fault");
            found.push(Finding::new(&path, line.map_or(0, |line| line + 1), what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_without_a_place_is_caught() {
        let places: String = Fault::ALL
            .iter()
            .filter(|declared| declared.krate == "mm")
            .map(|declared| format!("if planted!({:?}) {{}}\n", declared.fault))
            .collect();
        let declared = ("crates/arch/src/planted/faults.rs", "");
        let of = |places: &str| {
            let tree = Tree::of(&[declared, ("crates/mm/src/lib.rs", places)]);
            check(&tree).iter().filter(|found| found.what.contains("crate `mm`")).count()
        };
        assert_eq!(of(&places), 0);
        assert_eq!(of(&places.replace("RcuEnoughEarly", "Other")), 1);
    }
}
