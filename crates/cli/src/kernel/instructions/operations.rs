//! Scripts of basic operations of the memory manager, one each.

use mmscale_harness::Registry;
use mmscale_vm::JobFile;

use super::Named;

macro_rules! operations {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../operations/", $name, ".mms")))),*]
    };
}

const OPERATIONS: [(&str, &str); 8] =
    operations!["single" "touch" "populate" "dontneed" "protect" "fork" "move" "huge"];

/// A script whose pages come from the zone and return there, with [`SMALL_CACHES`].
pub(super) const BULK: (&str, &str) = ("bulk", include_str!("../operations/bulk.mms"));
/// The setting of the kernel that keeps page caches small.
const SMALL_CACHES: &str = "percpu_pagelist_high_fraction=100000";

/// The parameters of the kernel for [`BULK`].
pub(super) fn parameters_of_bulk() -> String {
    format!("sysctl.vm.{SMALL_CACHES}")
}

/// The settings of a simulated machine for a script.
pub(super) fn settings(script: &str) -> Vec<String> {
    let own = (script == BULK.0).then_some(SMALL_CACHES);
    ["cpus=1"].into_iter().chain(own).map(str::to_owned).collect()
}

/// Returns these studies and the scripts of all operations, for runs of the model.
pub(super) fn with_all(registry: &Registry) -> Registry {
    let all = OPERATIONS.iter().chain([&BULK]);
    all.fold(registry.clone(), |registry, (name, text)| {
        registry.with_script(&format!("{name}.mms"), text)
    })
}

/// Returns the scripts with the paths of their files in a machine, and the files.
///
/// # Errors
/// A study has the name of a script.
pub(super) fn all(registry: &Registry) -> Result<(Vec<Named>, Vec<JobFile>), String> {
    OPERATIONS.iter().map(|operation| named(registry, *operation)).collect()
}

/// Returns a script with the path of its file in a machine, and the file.
///
/// # Errors
/// A study has the name of the script.
pub(super) fn named(
    registry: &Registry,
    (name, text): (&str, &str),
) -> Result<(Named, JobFile), String> {
    let path = format!("/operations/{name}.mms");
    let study = registry.script_of(name, text).map_err(|why| why.to_string())?;
    let file = JobFile { path: path.clone(), bytes: text.as_bytes().to_vec() };
    Ok(((path, study), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_a_script_with_rounds() {
        let (studies, files) = all(&Registry::default()).unwrap();
        assert_eq!(studies.len(), files.len());
        for (path, study) in studies {
            assert!(study.script().is_some_and(|script| script.loops()), "{path}");
        }
    }
}
