//! The plugins as QEMU loads them. `cargo xtask objects` compiles them; they are the same for all
//! versions of QEMU's interface for plugins, but for the number of the version that they ask for.

use crate::machine::{BootError, EMULATOR, in_memory, path_of};
use std::process::{Command, Stdio};

/// A plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It counts instructions.
    Instructions,
    /// It records operations.
    Operations,
}

impl Kind {
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Instructions => include_bytes!("../plugin/instructions.so"),
            Self::Operations => include_bytes!("../plugin/operations.so"),
        }
    }
}

/// The bytes in front of the version, and the version that the compiled plugin asks for.
const MARK: &[u8] = b"mmscale plugin version ";
const COMPILED: i32 = 1;
/// Versions that were looked at: 1 is QEMU 7.2, 2 is 9.0, 3 is 9.1.
const NEWEST: i32 = 64;

/// Returns a plugin for a version of the interface.
pub(crate) fn library(kind: Kind, version: i32) -> Vec<u8> {
    let mut library = kind.bytes().to_vec();
    let at = library.windows(MARK.len()).position(|bytes| bytes == MARK);
    let at = at.expect("the mark of the version") + MARK.len().next_multiple_of(4);
    debug_assert_eq!(library[at..at + 4], COMPILED.to_ne_bytes());
    library[at..at + 4].copy_from_slice(&version.to_ne_bytes());
    library
}

/// Asks QEMU for the version of its interface: it refuses the plugin for another one with a message
/// that names it.
///
/// # Errors
/// QEMU is missing, or has no plugins.
pub(crate) fn interface() -> Result<i32, BootError> {
    let mut version = COMPILED;
    for _ in 0..3 {
        let said = said_of(version)?;
        if !said.contains("API version") {
            return match said.contains("plugin: needs symbols") {
                // It was loaded, and refused its arguments.
                true => Ok(version),
                false => Err(BootError::Emulator(format!(
                    "it cannot load plugins, which this command needs: {}",
                    said.trim()
                ))),
            };
        }
        version = offered(&said).ok_or_else(|| BootError::Emulator(said.trim().to_owned()))?;
    }
    Err(BootError::Emulator("it names another version of its plugins each time".to_owned()))
}

/// Returns the version in the message on another one: `.. requires API version 1, but this QEMU
/// supports only a minimum version of 2` or `.. up to version 1`.
fn offered(said: &str) -> Option<i32> {
    let (_, rest) = said.split_once("but this QEMU supports only")?;
    let number = rest.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok())?;
    (COMPILED..=NEWEST).contains(&number).then_some(number)
}

/// Returns what QEMU says of the plugin without arguments.
fn said_of(version: i32) -> Result<String, BootError> {
    let why = |why| BootError::Host { what: "ask QEMU for its plugins", why };
    let library = in_memory("plugin", &library(Kind::Instructions, version)).map_err(why)?;
    // QEMU inherits standard input, and opens the plugin by it.
    let path = path_of(&rustix::stdio::stdin());
    let mut command = Command::new(EMULATOR);
    command.args(["-nodefaults", "-machine", "none", "-display", "none", "-S"]);
    command.arg("-plugin").arg(format!("file={path}"));
    command.stdin(Stdio::from(library));
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BootError::NoEmulator,
        _ => why(error),
    })?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_differs_in_its_version_only() {
        for kind in [Kind::Instructions, Kind::Operations] {
            let (first, third) = (library(kind, COMPILED), library(kind, 3));
            assert_eq!(first, kind.bytes());
            let differ = first.iter().zip(&third).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 1);
        }
    }

    #[test]
    fn the_version_of_a_message_is_found() {
        let said = |rest: &str| {
            format!("TCG plugin: plugin requires API version 1, but this QEMU supports only {rest}")
        };
        assert_eq!(offered(&said("a minimum version of 2")), Some(2));
        assert_eq!(offered(&said("up to version 1")), Some(1));
        assert_eq!(offered("Could not load plugin"), None);
    }
}
