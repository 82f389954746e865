//! Counts of instructions that are kept in `gallery/kernels`, and the same counts now.

use super::is_absence;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml::Table;

/// Versions of Debian's kernels with kept counts.
pub(super) const VERSIONS: [&str; 3] = ["6.1", "6.12", "7.3"];
/// The largest relative difference of a median: the program's own size moves some addresses.
const TOLERANCE: f64 = 0.01;
/// That of operations whose rounds are so short that the number of new slabs in a round shows.
const TOLERANCE_OF_SHORT: f64 = 0.05;
/// These operations.
const SHORT: [&str; 3] = ["single", "move", "huge"];
/// Operations that are the rest of a hold of zone->lock, of some 230 instructions a page: merges
/// take more or less of it from boot to boot.
const RESTS: [&str; 2] = ["refill_page_instructions", "drain_page_instructions"];
/// Instructions by which these may differ, and by which others may.
const REST: [f64; 2] = [24.0, 4.0];
/// The CPUs of the machines whose counts are kept. Per-CPU caches are smaller with more, so that
/// Linux 6.1 with 64 CPUs has twice the instructions of some operations.
pub(super) const CPUS: usize = 4;
/// Rows with fewer instructions an operation are not kept.
const LEAST: f64 = 1.0;
/// The most rows of a table that are kept: those with most instructions of their own.
const ROWS: usize = 60;

fn path(root: &Path, version: &str) -> PathBuf {
    root.join("gallery/kernels").join(version).with_added_extension("json")
}

/// The profile of the model that a call runs next to the image.
const PROFILE: &str = "x86-26";

/// Counts on an image.
struct Counts {
    document: Value,
    /// The instructions of operations, as `machines/kernels` has them.
    operations: String,
}

/// Counts on an image; the message of a call that failed.
fn counted(
    root: &Path,
    program: &Path,
    version: &str,
    options: &[String],
) -> Result<Counts, String> {
    let kernel = format!("debian:{version}");
    let written = root.join("target/kernels").join(version).with_added_extension("toml");
    let output = Command::new(program)
        .args(["kernel", "instructions", "--kernel", &kernel, "--format", "json"])
        .args(["--profile", PROFILE, "--replace", "-o"])
        .arg(&written)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .map_err(|why| format!("cannot run {}: {why}", program.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|why| why.to_string())?;
    let profile = fs::read_to_string(&written).map_err(|why| why.to_string())?;
    let release = document["images"][0]["release"].as_str().unwrap_or_default();
    Ok(Counts { operations: operations(&profile, release)?, document })
}

/// Returns the instructions of a profile as a kernel's own file.
fn operations(profile: &str, release: &str) -> Result<String, String> {
    let (_, numbers) = profile.split_once("[instructions]\n").ok_or("no instructions")?;
    Ok(format!("{HEAD}description = \"Linux {release}\"\n\n[instructions]\n{numbers}"))
}

/// The begin of a kernel's file.
const HEAD: &str = "\
# Instructions of operations, counted on Debian's image: `cargo xtask kernels --keep` writes this.
# A range is that between versions from 6.1 to 7.3, with and without checks of lists.
";

/// The file with the instructions of operations of a version.
fn operations_path(root: &Path, version: &str) -> PathBuf {
    root.join("machines/kernels").join(format!("linux-{version}.toml"))
}

/// Operations whose instructions differ between two files.
fn moved(kept: &str, now: &str) -> Result<Vec<String>, String> {
    let read = |text: &str| text.parse::<Table>().map_err(|why| why.to_string());
    let [kept, now] = [read(kept)?, read(now)?];
    let of = |table: &Table| table.get("instructions").and_then(|of| of.as_table()).cloned();
    let [kept, now] = [of(&kept).unwrap_or_default(), of(&now).unwrap_or_default()];
    let value = |table: &Table, key: &str| table.get(key).and_then(|of| of["value"].as_integer());
    let names: BTreeSet<&String> = kept.keys().chain(now.keys()).collect();
    let differs = |key: &&String| match (value(&kept, key), value(&now, key)) {
        (Some(a), Some(b)) => {
            let rest = REST[usize::from(!RESTS.contains(&key.as_str()))];
            a.abs_diff(b) as f64 > (TOLERANCE_OF_SHORT * a as f64).max(rest)
        }
        _ => true,
    };
    let pair = |key: &String| format!("{key}: {:?} and {:?}", value(&kept, key), value(&now, key));
    Ok(names.into_iter().filter(differs).map(pair).collect())
}

/// Counts on each version, and keeps the counts.
pub(super) fn keep(root: &Path, program: &Path) -> Result<String, String> {
    for version in VERSIONS {
        let Counts { mut document, operations } = counted(root, program, version, &[])?;
        fs::write(operations_path(root, version), operations).map_err(|why| why.to_string())?;
        trim(&mut document);
        let path = path(root, version);
        let text = serde_json::to_string(&document).expect("a document");
        // A line for each row, so that a change of the counts can be read.
        let text =
            text.replace("{\"acquire\"", "\n{\"acquire\"").replace("{\"call\":", "\n{\"call\":");
        fs::create_dir_all(path.parent().expect("a folder"))
            .and_then(|()| fs::write(&path, text + "\n"))
            .map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(format!("kernels: kept the counts of {}", VERSIONS.join(", ")))
}

/// Removes small rows, and digits that mean nothing.
fn trim(document: &mut Value) {
    if let Some(document) = document.as_object_mut() {
        document.remove("model");
    }
    let is_large = |row: &Value| row["instructions"].as_f64().is_some_and(|n| n >= LEAST);
    for script in document["scripts"].as_array_mut().into_iter().flatten() {
        for operation in script["operations"].as_array_mut().into_iter().flatten() {
            for rows in ["functions", "holds"] {
                if let Some(rows) = operation[rows].as_array_mut() {
                    rows.retain(is_large);
                    let own = |row: &Value| row["own"].as_f64().or(row["instructions"].as_f64());
                    rows.sort_by(|a, b| own(b).unwrap_or(0.0).total_cmp(&own(a).unwrap_or(0.0)));
                    rows.truncate(ROWS);
                }
            }
            round(operation);
        }
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(real) = number.as_f64().filter(|_| number.is_f64()) {
                *value = json!((real * 100.0).round() / 100.0);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(round),
        Value::Object(all) => all.values_mut().for_each(round),
        _ => {}
    }
}

/// The outcome of a comparison with the kept counts.
pub(super) enum Compared {
    /// They are the same.
    Same,
    /// The differences.
    Different(String),
    /// Why they cannot be compared.
    Skipped(String),
}

/// Compares counts of Debian's image of a version with the kept ones.
///
/// # Errors
/// Why nothing was counted.
pub(super) fn check(
    root: &Path,
    program: &Path,
    version: &str,
    options: &[String],
) -> Result<Compared, String> {
    let Counts { document: now, operations } = match counted(root, program, version, options) {
        Ok(now) => now,
        Err(why) if is_absence(&why) => return Ok(Compared::Skipped(why)),
        Err(why) => return Err(why),
    };
    let path = path(root, version);
    let text = fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let kept: Value = serde_json::from_slice(&text).map_err(|why| why.to_string())?;
    let packages = [&kept, &now].map(|document| document["images"][0]["package"].clone());
    if packages[0] != packages[1] {
        let [kept, now] = packages;
        return Ok(Compared::Skipped(format!(
            "instructions: {kept} is gone, Debian has {now}: `cargo xtask kernels --keep`"
        )));
    }
    let path = operations_path(root, version);
    let of_kept = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let differ = [differences(&kept, &now), moved(&of_kept, &operations)?].concat();
    Ok(match differ.is_empty() {
        true => Compared::Same,
        false => Compared::Different(differ.join("; ")),
    })
}

/// Operations, and holds of them, whose instructions differ.
fn differences(kept: &Value, now: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let beyond =
        |a: f64, b: f64, share: f64| (a - b).abs() > share * a.max(b) && (a - b).abs() > LEAST;
    let far = |a: f64, b: f64| beyond(a, b, TOLERANCE);
    let mut found = Vec::new();
    for script in kept["scripts"].as_array().into_iter().flatten() {
        let is_same = |other: &&Value| other["name"] == script["name"];
        let other = now["scripts"].as_array().and_then(|all| all.iter().find(is_same));
        let Some(other) = other else {
            found.push(format!("{} is missing", script["name"]));
            continue;
        };
        let (a, b) = (&script["operations"][0], &other["operations"][0]);
        let medians = [a, b].map(|operation| number(&operation["instructions"]["median"]));
        // A fork also copies the page tables of this program, whose size depends on its build.
        let is_short = SHORT.iter().any(|name| script["name"] == *name);
        let share = if is_short { TOLERANCE_OF_SHORT } else { TOLERANCE };
        if beyond(medians[0], medians[1], share) && script["name"] != "fork" {
            found.push(format!("{}: {medians:?}", script["name"]));
        }
        let touch = script["name"] == "touch";
        for hold in a["holds"].as_array().into_iter().flatten().filter(|_| touch) {
            let is_same = |other: &&Value| {
                ["acquire", "caller", "outer"].iter().all(|key| other[*key] == hold[*key])
            };
            let same = b["holds"].as_array().and_then(|all| all.iter().find(is_same));
            let of = |hold: &Value| number(&hold["instructions"]);
            let (a, b) = (of(hold), same.map_or(0.0, of));
            if far(a, b) {
                found.push(format!("touch, {}: {a} and {b}", hold["caller"]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(all: f64, hold: f64) -> Value {
        let hold = json!({ "acquire": "l", "caller": "f", "outer": "g", "instructions": hold });
        let small = json!({ "instructions": 0.3 });
        json!({ "scripts": [{ "name": "touch", "operations": [{
            "instructions": { "median": all }, "holds": [hold, small], "functions": []
        }] }] })
    }

    #[test]
    fn a_longer_hold_is_found() {
        let kept = document(4089.0, 398.0);
        assert!(differences(&kept, &document(4089.9, 398.4)).is_empty());
        assert_eq!(differences(&kept, &document(4300.0, 398.0)).len(), 1);
        assert_eq!(differences(&kept, &document(4110.0, 420.0)).len(), 1);
        assert_eq!(differences(&kept, &json!({ "scripts": [] })).len(), 1);
    }

    #[test]
    fn operations_with_other_instructions_are_found() {
        let file = |lru_link: i64, more: &str| {
            let number = format!("{{ value = {lru_link}, range = [1, 900], source = \"x\" }}");
            let profile = format!(
                "base = \"x86-26\"\n\n[instructions]\nlru_link_instructions = {number}\n{more}"
            );
            operations(&profile, "6.12").unwrap()
        };
        let kept = file(259, "");
        assert!(kept.contains("description = \"Linux 6.12\"") && !kept.contains("base"), "{kept}");
        assert!(moved(&kept, &file(262, "")).unwrap().is_empty());
        assert_eq!(moved(&kept, &file(300, "")).unwrap().len(), 1);
        let more = "map_page_instructions = { value = 7, range = [1, 9], source = \"x\" }";
        assert_eq!(moved(&kept, &file(259, more)).unwrap().len(), 1);
        assert!(operations("base = \"x86-26\"", "6.12").is_err());
    }

    #[test]
    fn small_rows_and_digits_are_not_kept() {
        let mut document = document(4089.664, 398.004);
        trim(&mut document);
        let operation = &document["scripts"][0]["operations"][0];
        assert_eq!(operation["instructions"]["median"], json!(4089.66));
        assert_eq!(operation["holds"].as_array().unwrap().len(), 1);
    }
}
