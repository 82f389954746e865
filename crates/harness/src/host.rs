//! The computer that executes the runs, as documents name it.

use std::fs;

use mmscale_document::Host;

/// Returns the release string of the running kernel, such as `6.18.44-rt`; `None` if unknown.
pub(crate) fn release() -> Option<String> {
    // tidy: opened: a file of /proc
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned()).filter(|release| !release.is_empty())
}

/// Returns a description of this computer.
pub fn host() -> Host {
    let release = release().unwrap_or_default();
    let system = if cfg!(target_os = "linux") { "Linux" } else { std::env::consts::OS };
    let kernel = [system, &release, std::env::consts::ARCH];
    let kernel: Vec<&str> = kernel.into_iter().filter(|part| !part.is_empty()).collect();
    Host {
        kernel: kernel.join(" "),
        // tidy: opened: a file of /proc
        cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
    }
}

/// Returns the CPUs of this computer that this process may use.
pub(crate) fn host_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the memory available to programs, in bytes. `None` if unknown.
pub(crate) fn available_bytes() -> Option<u64> {
    #[cfg(feature = "live")]
    return mmscale_linux::available_bytes();
    #[cfg(not(feature = "live"))]
    None
}

/// Returns the processor model from `/proc/cpuinfo`: a name on x86, numbers on Arm.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "))
        })
    };
    let by_number = || {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("implementer {implementer} part {part}"))
    };
    field("model name").or_else(by_number).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_naming_a_processor_are_read() {
        let x86 = "processor\t: 0\nmodel name\t: Some  CPU @ 2GHz\nmodel name\t: other\n";
        assert_eq!(cpu_model(x86), "Some CPU @ 2GHz");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0c");
        assert_eq!(cpu_model(""), "unknown");
    }
}
