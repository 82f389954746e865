//! The forms in which `lscpu` and `numactl` print the CPUs of a machine, as rows and fields.
//!
//! | form | content |
//! |---|---|
//! | `lscpu -J -e`, `lscpu -e`, `lscpu -p` | a row for each CPU |
//! | `lscpu -J`, `lscpu` | fields: counts of CPUs, cores, sockets, nodes and caches |
//! | `numactl -H` | CPUs and memory of each node |
//!
//! A text may be quoted, and may have several of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// A CPU: columns by their names in lower case. Columns of several caches are apart: `l1d`, `l3`.
/// A value that is missing, also as a dash, has no entry.
pub(super) type Row = BTreeMap<String, String>;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// CPUs, one a row.
    pub(super) rows: Vec<Row>,
    /// Fields with their values, in the order of the file.
    pub(super) fields: Vec<(String, String)>,
    /// Nodes of `numactl -H`: CPUs, and memory in MiB.
    pub(super) nodes: BTreeMap<u64, (Vec<u64>, Option<u64>)>,
}

/// The advice for a file that is none of the forms.
const CREATE: &str = "create it with `lscpu -J -e`";

impl Form {
    /// Parses a file.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let form = if text.trim_start().starts_with('{') { of_json(text) } else { of_text(text) }?;
        if form.rows.is_empty() && form.nodes.is_empty() && form.field("CPU(s)").is_none() {
            return Err(format!(
                "it has no row for a CPU, no line `CPU(s):` and no line `node 0 cpus:`; {CREATE}, \
                 or give the text of `lscpu` or `numactl -H`"
            ));
        }
        Ok(form)
    }

    /// Returns the value of the first field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name)?;
        Some(found.1.as_str()).filter(|value| !is_missing(value))
    }
}

/// Returns whether a value stands for none.
pub(super) fn is_missing(value: &str) -> bool {
    matches!(value.trim(), "" | "-")
}

fn of_json(text: &str) -> Result<Form, String> {
    let whole: Value = serde_json::from_str(&with_nulls(text))
        .map_err(|why| format!("it begins as JSON, and is none ({why}); {CREATE}"))?;
    let mut form = Form::default();
    match (&whole["cpus"], &whole["lscpu"]) {
        (Value::Array(rows), _) => {
            let rows = rows.iter().filter_map(Value::as_object);
            form.rows.extend(rows.map(|row| {
                row.iter().filter_map(|(name, value)| Some((name.clone(), word(value)?))).collect()
            }));
            form.rows.iter_mut().for_each(apart);
            if form.rows.is_empty() {
                return Err("it has no online CPU".to_owned());
            }
        }
        (_, Value::Array(fields)) => collect(fields, &mut form.fields),
        _ => return Err(format!("it has neither `cpus` nor `lscpu`; {CREATE}")),
    }
    Ok(form)
}

/// Replaces dashes outside of strings by `null`: util-linux before 2.39 prints them for missing
/// values.
fn with_nulls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let negative = letters.peek().is_some_and(char::is_ascii_digit);
        match letter {
            '-' if !quoted && !negative => out.push_str("null"),
            _ => out.push(letter),
        }
        quoted ^= letter == '"' && !escaped;
        escaped = quoted && letter == '\\' && !escaped;
    }
    out
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Collects fields by name, without the colon; newer versions nest them.
fn collect(from: &[Value], fields: &mut Vec<(String, String)>) {
    for field in from {
        if let (Some(name), Some(data)) = (field["field"].as_str(), word(&field["data"])) {
            fields.push((name.trim_end_matches(':').to_owned(), data));
        }
        if let Some(children) = field["children"].as_array() {
            collect(children, fields);
        }
    }
}

/// Divides a column of several caches (`l1d:l1i:l2:l3`), and removes missing values.
fn apart(row: &mut Row) {
    *row = std::mem::take(row)
        .into_iter()
        .flat_map(|(names, values)| {
            let names = names.to_lowercase();
            if !names.contains(':') {
                return vec![(names, values)];
            }
            let values = values.split(':').map(str::to_owned);
            names.split(':').map(str::to_owned).zip(values).collect()
        })
        .filter(|(_, value)| !is_missing(value))
        .collect();
}

fn of_text(text: &str) -> Result<Form, String> {
    let mut form = Form::default();
    let mut columns: Option<Vec<String>> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start_matches(['>', ' ', '\t']).trim_end();
        if let Some(found) = heading(line) {
            columns = Some(found);
        } else if let Some(names) = &columns
            && line.starts_with(|first: char| first.is_ascii_digit())
        {
            let row = row(line, names);
            form.rows.push(row.map_err(|why| format!("line {}: {why}", at + 1))?);
        } else if let Some(node) = line.strip_prefix("node ") {
            of_node(node, &mut form.nodes);
        } else if let Some((name, value)) = line.split_once(':') {
            form.fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        if line.is_empty() {
            columns = None;
        }
    }
    Ok(form)
}

/// Returns the columns of a heading of `lscpu -e` or, after a `#`, of `lscpu -p`.
fn heading(line: &str) -> Option<Vec<String>> {
    let (line, comma) = match line.strip_prefix("# ") {
        Some(line) => (line, true),
        None => (line, false),
    };
    let split: Vec<&str> =
        if comma { line.split(',').collect() } else { line.split_whitespace().collect() };
    let names: Vec<String> = split.into_iter().map(|name| name.trim().to_lowercase()).collect();
    let is_heading = names.first().is_some_and(|name| name == "cpu")
        && names.iter().any(|name| ["core", "socket", "node"].contains(&name.as_str()));
    is_heading.then_some(names)
}

fn row(line: &str, names: &[String]) -> Result<Row, String> {
    let comma = line.contains(',') && !line.contains(' ');
    let mut values: Vec<String> = if comma {
        line.split(',').map(str::to_owned).collect()
    } else {
        line.split_whitespace().map(str::to_owned).collect()
    };
    // The name of a processor has several words.
    if let Some(at) = names.iter().position(|name| name == "modelname")
        && values.len() > names.len()
    {
        let words = values.len() - names.len() + 1;
        let name = values[at..at + words].join(" ");
        values.splice(at..at + words, [name]);
    }
    if values.len() != names.len() {
        let (values, names) = (values.len(), names.len());
        return Err(format!(
            "a CPU has {values} columns, and the heading {names}; give the whole output"
        ));
    }
    let mut row: Row = names.iter().cloned().zip(values).collect();
    apart(&mut row);
    Ok(row)
}

/// Reads `0 cpus: 0 1 2` or `0 size: 128000 MB`.
fn of_node(line: &str, nodes: &mut BTreeMap<u64, (Vec<u64>, Option<u64>)>) {
    let mut read = || {
        let (number, rest) = line.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        let (what, values) = rest.split_once(':')?;
        let words = values.split_whitespace();
        match what {
            "cpus" => {
                let cpus = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
                nodes.entry(number).or_default().0 = cpus;
            }
            "size" => {
                nodes.entry(number).or_default().1 =
                    words.take(1).next()?.parse().ok().filter(|mib| *mib < 1 << 32)
            }
            _ => {}
        }
        Some(())
    };
    read();
}

/// Parses a list of CPUs, as in `0-3,8`.
pub(super) fn cpu_list(text: &str) -> Option<Vec<u64>> {
    const MOST: u64 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        if to >= MOST {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}
