//! Reads a folder of documents, as written by `mmscale run -o DIR`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Reads the JSON files of a folder, by name.
///
/// # Errors
/// The path that cannot be read or parsed as `T`, and the reason.
pub(crate) fn read<T: DeserializeOwned>(folder: &Path) -> Result<BTreeMap<String, T>, String> {
    let told = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|why| told(folder, &why))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(|why| told(folder, &why))?;
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).map_err(|why| told(path, &why))?;
        let document = serde_json::from_str(&text).map_err(|why| told(path, &why))?;
        Ok((name, document))
    };
    let is_json = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "json");
    paths.iter().filter(is_json).map(read).collect()
}
