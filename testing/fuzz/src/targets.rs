//! All targets.

use std::path::Path;

use crate::document::Documents;
use crate::machine::Machines;
use crate::planted::Planted;
use crate::profile::Profiles;
use crate::recording::Recordings;
use crate::report::Reports;
use crate::script::Scripts;
use crate::target::Target;

/// The names of all targets but the one of the tests.
pub const NAMES: [&str; 6] = ["script", "document", "profile", "recording", "report", "machine"];

/// Returns the target with this name. `root` is the workspace, `seeds` the folder of [`prepare`].
pub(crate) fn of(name: &str, root: &Path, seeds: &Path) -> Option<Box<dyn Target>> {
    Some(match name {
        "script" => Box::new(Scripts::new(root)),
        "document" => Box::new(Documents::new(seeds)),
        "profile" => Box::new(Profiles::new(root)),
        "recording" => Box::new(Recordings::new(root)),
        "report" => Box::new(Reports),
        "machine" => Box::new(Machines),
        "planted" => Box::new(Planted),
        _ => return None,
    })
}

/// Makes the documents that the target `document` starts from.
pub(crate) fn prepare(seeds: &Path) {
    crate::document::prepare(seeds);
}
