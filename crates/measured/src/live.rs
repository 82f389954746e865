//! Documents of `mmscale live watch --format json`.

use mmscale_document::MeasuredWait;
use serde::Deserialize;

use crate::controls::without_controls;
use crate::fault::DocumentError;
use crate::table::Table;

/// The schema of these documents.
const SCHEMA: &str = "mmscale/live/1";

/// The parts of a document that have waits.
#[derive(Deserialize)]
struct Observation {
    seconds: f64,
    cpus: u32,
    #[serde(default)]
    waits: Option<Vec<MeasuredWait>>,
    #[serde(default)]
    missing: Vec<String>,
}

/// Reads a document. `None` if the text is not a JSON object.
pub(crate) fn parse(text: &str) -> Option<Result<Table, DocumentError>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    Some(read(text))
}

fn read(text: &str) -> Result<Table, DocumentError> {
    let broken = |why: serde_json::Error| DocumentError::Broken {
        line: why.line().max(1),
        column: why.column().max(1),
        why: why.to_string(),
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(broken)?;
    let schema = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("without schema");
    if schema != SCHEMA {
        return Err(DocumentError::Kind(schema.to_owned()));
    }
    let seen: Observation = serde_json::from_str(text).map_err(broken)?;
    let lines = text.lines().count();
    let mut table = Table {
        tool: "mmscale live".to_owned(),
        lines: (1, lines),
        end: lines,
        cpus: Some(seen.cpus),
        window_ns: Some((seen.seconds.max(0.0) * 1e9).round() as u64),
        ..Table::default()
    };
    match seen.waits {
        Some(waits) => table.waits = waits.into_iter().map(shown).collect(),
        None => table.notes.push("the document has no waits by call path".to_owned()),
    }
    if !seen.missing.is_empty() {
        table.notes.push(format!("hidden by that kernel: {}", seen.missing.join(", ")));
    }
    Ok(table)
}

/// Returns a row without characters on which terminals act.
fn shown(wait: MeasuredWait) -> MeasuredWait {
    let clean = |text: String| without_controls(&text).replace(['\n', '\r', '\t'], " ");
    MeasuredWait {
        class: clean(wait.class),
        path: wait.path.into_iter().map(clean).collect(),
        kind: wait.kind.map(clean),
        lock: wait.lock.map(clean),
        task: wait.task.map(clean),
        ..wait
    }
}
