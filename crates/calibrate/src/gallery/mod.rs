//! The gallery: published measurements of Linux, each with a prediction.
//!
//! An item is data: the published figures with their source, a script with its parameters, a
//! machine, and the policies of each column (`gallery/published.toml`; without figures
//! `gallery/blind.toml`). [`run`] runs them, [`rows`] compares.

mod data;
mod kept;
mod lifted;
mod programs;
mod run;
mod score;

pub use data::{
    Compare, DataError, Item, Knowledge, OPEN, items, items_of, profiles, profiles_with, scripts,
};
pub use kept::{Kept, KeptError, kept, read};
pub use lifted::{Lifted, LiftedCurve, LiftedError, LiftedPoint, LiftedRow, lifted};
pub use run::{Figures, GalleryError, GalleryRequest, SEED, run};
pub use score::{
    CURVE_WITHIN, Counts, EFFECT_WITHIN, Held, LEVEL_WITHIN, Point, Row, SHARE_WITHIN, Verdict,
    What, counts, rows,
};
