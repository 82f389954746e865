//! The work of a lock's holder while others waited, in words.

use mmscale_document::{BlameRecord, Doing};

/// Describes what the holder did, with the `depth` innermost functions of its call path.
pub(crate) fn holder(row: &BlameRecord, depth: usize) -> String {
    let path: Vec<&str> = row.holder.iter().rev().take(depth).map(String::as_str).collect();
    let path = path.join(" < ");
    let did = match row.doing {
        Doing::Work => path,
        Doing::MissCore => format!("lines of its core in {path}"),
        Doing::MissCluster => format!("lines of the same cache in {path}"),
        Doing::MissNode => format!("lines of its node in {path}"),
        Doing::MissRemote => format!("lines of another node in {path}"),
        Doing::MissMemory => format!("lines from memory in {path}"),
        Doing::Handover => "handoff from CPU to CPU".to_owned(),
        Doing::Stolen => format!("time stolen from {path}"),
        Doing::Unseen => "a holder that was not seen".to_owned(),
        Doing::Handler => format!("a foreign interrupt in {path}"),
    };
    match &row.through {
        Some(class) => format!("its holder waited for {class}: {did}"),
        None => did,
    }
}
