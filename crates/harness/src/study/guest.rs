//! Guest allocators: `--policy caches=guest:FILE`, where FILE is a shared library with the
//! functions of `mmscale_guest.h`.

use libloading::Library;
use mmscale_document::Fingerprint;
use mmscale_frames::guest::{Guest, GuestCalls};
use std::path::Path;

/// The mechanism that a guest takes the place of.
pub(crate) const KEY: &str = "caches";
const PREFIX: &str = "guest:";

/// Returns the file of a policy that is a guest, with or without the fingerprint of its content.
pub(crate) fn file_of(policy: &str) -> Option<&str> {
    let file = policy.strip_prefix(PREFIX)?;
    let file = file.split_once('#').map_or(file, |(file, _)| file);
    (!file.is_empty()).then_some(file)
}

/// Returns the policy of an arm with this guest: with the fingerprint of the file's content, as a
/// library that was built again gives other results.
///
/// # Errors
/// Why the file cannot be read, or is no guest.
pub(crate) fn policy_of(file: &str) -> Result<String, String> {
    load(file)?;
    // tidy: opened: the library that was just loaded
    let content = std::fs::read(file).map_err(|why| format!("`{file}`: {why}"))?;
    let mut print = Fingerprint::new();
    content.iter().for_each(|&byte| print.add(u64::from(byte)));
    Ok(format!("{PREFIX}{file}#{}", print.to_hex()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_its_file_with_and_without_a_fingerprint() {
        assert_eq!(file_of("guest:./a.so"), Some("./a.so"));
        assert_eq!(file_of("guest:./a.so#0123456789abcdef"), Some("./a.so"));
        assert_eq!((file_of("guest:"), file_of("guest:#1"), file_of("stock")), (None, None, None));
        assert_eq!(name_of("./folder/a.b.so"), "guest-a");
    }

    #[test]
    fn a_file_that_is_no_library_has_no_policy() {
        let why = policy_of(file!()).expect_err("it is a source");
        assert!(why.contains("guest.rs"), "{why}");
    }
}
