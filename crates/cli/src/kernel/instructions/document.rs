//! The result of a call.

use mmscale_harness::Study;
use mmscale_vm::Image;
use mmscale_vm::instructions::{Counted, Summary};
use serde::{Deserialize, Serialize};

use crate::kernel::machine::settings;

/// The schema of the document.
const SCHEMA: &str = "mmscale/instructions/1";

/// The document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    schema: String,
    /// The images, one or two.
    pub(super) images: Vec<Side>,
    /// The scripts.
    pub(super) scripts: Vec<Script>,
    /// The model of the first image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<Model>,
}

/// An image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Side {
    /// The name that the user gave.
    pub(super) image: String,
    /// The package that it is from, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<String>,
    /// The release of the kernel.
    pub(super) release: String,
    /// Settings of its build that change many functions.
    pub(super) settings: Vec<String>,
    /// CPUs of the machine.
    pub(super) cpus: usize,
}

/// The operations of a script, on each image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) summary: String,
    /// In the order of the images.
    pub(super) operations: Vec<Summary>,
}

/// The model of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Model {
    /// The simulated machine.
    pub(super) profile: String,
    /// The version of Linux whose policies it has.
    pub(super) linux: String,
    /// Operations, and the holds of each class of locks.
    pub(super) rows: Vec<Row>,
    /// Costs of the profile.
    pub(super) costs: Vec<Row>,
}

/// Instructions of the kernel, and time of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) script: String,
    /// `all`, a class of locks, or a cost.
    pub(super) what: String,
    pub(super) instructions: f64,
    pub(super) ns: f64,
}

/// A script's operation on an image.
pub(super) struct Operation {
    pub(super) script: String,
    pub(super) summary: Summary,
}

impl Document {
    /// Creates a document without images.
    pub(super) fn new(studies: &[(String, Study)]) -> Self {
        let script = |(_, study): &(String, Study)| Script {
            name: study.name().to_owned(),
            summary: study.summary().to_owned(),
            operations: Vec::new(),
        };
        let scripts = studies.iter().map(script).collect();
        Self { schema: SCHEMA.to_owned(), images: Vec::new(), scripts, model: None }
    }
    /// Adds a script that has run on the only image.
    pub(super) fn add_script(&mut self, study: &Study, operation: Operation) {
        self.scripts.push(Script {
            name: operation.script,
            summary: study.summary().to_owned(),
            operations: vec![operation.summary],
        });
    }
    /// Returns the document of two images from those of one each; scripts that both have.
    pub(super) fn joined(self, other: Self) -> Self {
        let of_other = |name: &str| other.scripts.iter().find(|script| script.name == name);
        let script = |script: Script| {
            let second = of_other(&script.name)?.operations.first()?.clone();
            let first = script.operations.first()?.clone();
            Some(Script { operations: vec![first, second], ..script })
        };
        Self {
            images: [self.images, other.images.clone()].concat(),
            scripts: self.scripts.into_iter().filter_map(script).collect(),
            model: None,
            ..self
        }
    }
    /// Adds an image.
    pub(super) fn add(&mut self, side: Side, operations: Vec<Operation>) {
        self.images.push(side);
        for (script, operation) in self.scripts.iter_mut().zip(operations) {
            debug_assert_eq!(script.name, operation.script);
            script.operations.push(operation.summary);
        }
    }
}

impl Side {
    /// Describes an image by what its kernel said.
    pub(super) fn new(image: &Image, counted: &Counted) -> Self {
        let up = &counted.ended.up;
        let settings = settings(up, &|name| counted.has_function(name));
        Self {
            image: image.name.clone(),
            package: image.package.clone(),
            release: up.release.clone(),
            settings,
            cpus: up.cpus,
        }
    }
}
