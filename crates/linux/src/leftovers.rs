//! Leftovers of runs that were killed together with the processes that clean up after them.

use crate::remembered::Remembered;
use crate::sysctl::restored;
use crate::{groups, scratch};

/// The leftovers that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Completed actions: settings restored, groups and folders removed.
    pub done: Vec<String>,
    /// Actions that failed, with the reason.
    pub failed: Vec<String>,
}

/// Restores settings, ends processes and removes memory groups and folders that dead runs of this
/// user left. Live runs are not touched. Settings are checked only with root: only root can have
/// changed them.
pub fn clear() -> Leftovers {
    let mut found = Leftovers::default();
    for remembered in Remembered::left() {
        setting(remembered, &mut found);
    }
    for (what, (removed, left)) in
        [("memory group", groups::remove_stale()), ("temporary folder", scratch::remove_stale())]
    {
        let name = |path: &std::path::PathBuf| format!("{what} {}", path.display());
        found.done.extend(removed.iter().map(|path| format!("removed {}", name(path))));
        found.failed.extend(left.iter().map(|path| format!("cannot remove {}", name(path))));
    }
    found
}

fn setting(mut remembered: Remembered, found: &mut Leftovers) {
    let file = remembered.path().display().to_string();
    let record = match remembered.record() {
        Ok(record) => record,
        Err(why) => return found.failed.push(format!("cannot read {file}: {why}")),
    };
    if record.as_ref().is_some_and(|record| record.tool.runs()) {
        return;
    }
    let values = record.map_or(Vec::new(), |record| record.values);
    match restored(&values, &remembered) {
        Ok(()) => {
            let done = values.iter().map(|old| format!("restored {}={}", old.key, old.value));
            found.done.extend(done);
            if let Err(why) = remembered.forget() {
                found.failed.push(format!("cannot remove {file}: {why}"));
            }
        }
        Err(why) => found.failed.push(why.to_string()),
    }
}
