//! A document for tests to fill.

use std::collections::BTreeMap;

use mmscale_document::{Build, Document, Host, SCHEMA, Target};

/// Returns a document of a simulated machine of 8 CPUs, without results.
pub(crate) fn empty() -> Document {
    Document {
        schema: SCHEMA.into(),
        build: Build::new("mmscale", "0.1.0", "0123456789ab"),
        program: None,
        command: vec![],
        study: "churn".into(),
        study_file_hash: None,
        script: None,
        on: Target::Sim,
        profile: "x86-512".into(),
        profile_hash: None,
        profile_bases: vec![],
        linux: None,
        cpus: 8,
        topology: None,
        hz: 1000,
        window_ns: None,
        params: BTreeMap::new(),
        host: Host { kernel: "Linux".into(), cpu: "CPU".into() },
        fingerprint: "00112233aabbccdd".into(),
        arms: vec![],
        failures: vec![],
        looks: None,
        checksum: None,
        left_out: BTreeMap::new(),
        not_simulated: vec![],
    }
}
