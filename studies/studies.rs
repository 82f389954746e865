//! The studies of mmscale: one folder each, with workload and metrics (Rust), arms and defaults
//! (`study.toml`), and a description (`README.md`).

#[path = "churn/churn.rs"]
pub mod churn;
#[path = "ipi/ipi.rs"]
pub mod ipi;
mod kept;
#[path = "pcp/pcp.rs"]
pub mod pcp;
#[path = "reap/reap.rs"]
pub mod reap;
mod scripts;
#[path = "vmstat/vmstat.rs"]
pub mod vmstat;

use mmscale_harness::Registry;
pub use scripts::SCRIPTS;
use std::sync::LazyLock;

/// Returns all studies, in the order in which `run all` runs them, and the scripts.
pub fn all() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        let studies = Registry::default()
            .with::<vmstat::Vmstat>()
            .with::<churn::Churn>()
            .with::<pcp::Pcp>()
            .with::<reap::Reap>()
            .with::<ipi::Ipi>();
        let studies =
            scripts::LIKE.iter().fold(studies, |all, (study, text)| all.with_likeness(study, text));
        SCRIPTS.iter().fold(studies, |all, (file, text)| all.with_script(file, text))
    });
    &REGISTRY
}
