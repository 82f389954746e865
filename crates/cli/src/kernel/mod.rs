//! `mmscale kernel`: an image of a kernel, in a virtual machine.

#[cfg(feature = "live")]
mod boot;
#[cfg(feature = "live")]
mod commands;
#[cfg(feature = "live")]
mod instructions;
#[cfg(feature = "live")]
mod machine;
#[cfg(not(feature = "live"))]
mod refused;
#[cfg(feature = "live")]
mod rounds;

#[cfg(feature = "live")]
pub(crate) use commands::kernel;
#[cfg(not(feature = "live"))]
pub(crate) use refused::kernel;
