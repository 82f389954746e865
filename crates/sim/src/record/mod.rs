//! Records of a run. Nothing here changes the time of a CPU or knows the engine.
//!
//! | module | contents |
//! |---|---|
//! | `names` | names of a program's own paths and locks |
//! | `stats` | times, acquisitions and waits by call path |
//! | `blame` | for every wait for a lock, what its holders did meanwhile |
//! | `sections` | how long CPUs could run no other task, and why |
//! | `trail` | the order of events, to find where two runs differ |
//! | `timeline` | events and waits around a moment, for a trace |

pub(crate) mod blame;
pub(crate) mod names;
pub(crate) mod sections;
pub(crate) mod stats;
pub(crate) mod timeline;
pub(crate) mod trail;
