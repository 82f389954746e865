//! `mmscale live`: what the kernel of this computer is asked.

#[cfg(feature = "live")]
mod ab;
#[cfg(feature = "live")]
mod commands;
#[cfg(feature = "live")]
mod counts;
#[cfg(feature = "live")]
mod doctor;
#[cfg(feature = "live")]
pub(crate) mod preparation;
#[cfg(not(feature = "live"))]
mod refused;
#[cfg(feature = "live")]
mod stress;
#[cfg(feature = "live")]
mod watch;

#[cfg(feature = "live")]
pub(crate) use commands::live;
#[cfg(feature = "live")]
pub(crate) use preparation::{prepare, refuse_emulated};
#[cfg(not(feature = "live"))]
pub(crate) use refused::{live, prepare};
#[cfg(feature = "live")]
pub(crate) use watch::seconds;
