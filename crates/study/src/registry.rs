//! The studies that there are.

use crate::churn::CHURN;
use crate::ipi::IPI;
use crate::names::UnknownName;
use crate::pcp::PCP;
use crate::reap::REAP;
use crate::study::Study;
use crate::vmstat::VMSTAT;
use std::sync::LazyLock;

/// Studies by name. The shipped ones are [`Registry::shipped`]; tests have their own.
#[derive(Clone, Copy, Debug)]
pub struct Registry(&'static [&'static dyn Study]);

impl Registry {
    /// A registry of given studies; names differ.
    pub const fn new(studies: &'static [&'static dyn Study]) -> Self {
        Self(studies)
    }

    /// The studies of this workspace.
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<[&dyn Study; 5]> =
            LazyLock::new(|| [&*VMSTAT, &*CHURN, &*PCP, &*REAP, &*IPI]);
        Self(&*SHIPPED)
    }

    /// All studies, in the order in which `all` runs them.
    pub fn all(self) -> impl Iterator<Item = &'static dyn Study> + Clone {
        self.0.iter().copied()
    }

    /// The study of a name.
    pub fn find(self, name: &str) -> Result<&'static dyn Study, UnknownName> {
        self.all()
            .find(|study| study.name() == name)
            .ok_or_else(|| UnknownName::new("study", name, self.all().map(|study| study.name())))
    }
}
