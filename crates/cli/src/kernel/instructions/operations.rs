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

/// Returns the scripts with the paths of their files in a machine, and the files.
///
/// # Errors
/// A study has the name of a script.
pub(super) fn all(registry: &Registry) -> Result<(Vec<Named>, Vec<JobFile>), String> {
    let (mut studies, mut files) = (Vec::new(), Vec::new());
    for (name, text) in OPERATIONS {
        let path = format!("/operations/{name}.mms");
        let study = registry.script_of(name, text).map_err(|why| why.to_string())?;
        files.push(JobFile { path: path.clone(), bytes: text.as_bytes().to_vec() });
        studies.push((path, study));
    }
    Ok((studies, files))
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
