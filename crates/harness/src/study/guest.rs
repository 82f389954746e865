//! Guest allocators: `--policy caches=guest:FILE`, where FILE is a shared library with the
//! functions of `mmscale_guest.h`.

use libloading::Library;
use mmscale_frames::guest::{Guest, GuestCalls};
use std::path::Path;

/// The mechanism that a guest takes the place of.
pub(crate) const KEY: &str = "caches";
const PREFIX: &str = "guest:";

/// Returns the file of a policy that is a guest.
pub(crate) fn file_of(policy: &str) -> Option<&str> {
    policy.strip_prefix(PREFIX).filter(|file| !file.is_empty())
}

/// Returns a name for the guest of a file: its own name without extensions.
pub(crate) fn name_of(file: &str) -> String {
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    let stem = name.split('.').next().unwrap_or(name);
    format!("guest-{stem}")
}

/// Loads the guest of a file, which stays in memory.
///
/// # Errors
/// Why it cannot be loaded, with the file or the function that is missing.
pub(crate) fn load(file: &str) -> Result<Guest, String> {
    // The loader would look for a file without a folder in the system's folders.
    let path = Path::new(file).canonicalize().map_err(|why| format!("`{file}`: {why}"))?;
    // SAFETY: a library may run code as it is loaded, as its author has written it.
    let library = unsafe { Library::new(&path) }.map_err(|why| format!("`{file}`: {why}"))?;
    let library = Box::leak(Box::new(library));
    let missing = |why: libloading::Error| {
        format!("`{file}` lacks a function of crates/frames/include/mmscale_guest.h: {why}")
    };
    // SAFETY: the header gives the types of the functions.
    let calls = unsafe {
        GuestCalls {
            bytes: *library.get(b"mms_guest_bytes").map_err(missing)?,
            init: *library.get(b"mms_guest_init").map_err(missing)?,
            alloc: *library.get(b"mms_guest_alloc").map_err(missing)?,
            free: *library.get(b"mms_guest_free").map_err(missing)?,
            drain: *library.get(b"mms_guest_drain").map_err(missing)?,
            count_free: *library.get(b"mms_guest_count_free").map_err(missing)?,
        }
    };
    // SAFETY: the library stays loaded; its author promises the rest.
    Ok(unsafe { Guest::new(Box::leak(Box::new(calls))) })
}
