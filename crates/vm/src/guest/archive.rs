//! An archive of files in the format `newc` of cpio, which the kernel unpacks
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    /// Paths that it has.
    paths: Vec<String>,
}

impl Archive {
    /// Adds a file that can be executed. A path is without its first slash. A path that the archive
    /// has already is left as it is.
    pub(super) fn file(&mut self, path: &str, data: &[u8]) {
        if self.is_new(path) {
            self.entry(path, FILE, (0, 0), data);
        }
    }
    /// Adds the node of a character device with these numbers.
    pub(super) fn device(&mut self, path: &str, numbers: (u32, u32)) {
        if self.is_new(path) {
            self.entry(path, CHARACTER_DEVICE, numbers, &[]);
        }
    }
    /// Adds a folder.
    pub(super) fn folder(&mut self, path: &str) {
        if !path.is_empty() && self.is_new(path) {
            self.entry(path, FOLDER, (0, 0), &[]);
        }
    }
    /// Returns the archive with the entry that ends it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// Notes a path, after the folders above it. Returns whether the archive had none of it.
    fn is_new(&mut self, path: &str) -> bool {
        if self.paths.iter().any(|known| known == path) {
            return false;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.paths.push(path.to_owned());
        true
    }
    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("a file below 4 GiB");
        let name = path.len() as u32 + 1;
        // Number, mode, user, group, links, time, size, device, its device, name, sum.
        let (major, minor) = device;
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(path.bytes().chain([0]));
        self.pad();
        self.bytes.extend(data);
        self.pad();
    }
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in an archive, with mode, device and data.
    fn listed(bytes: &[u8]) -> Vec<(String, u32, [u32; 2], Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6) as usize, field(11) as usize);
            let text = String::from_utf8(bytes[at + 110..at + 109 + name].to_vec()).unwrap();
            let data = (at + 110 + name).next_multiple_of(4);
            let kept = bytes[data..data + size].to_vec();
            entries.push((text, field(1), [field(9), field(10)], kept));
            at = (data + size).next_multiple_of(4);
        }
        entries
    }

    #[test]
    fn an_archive_has_files_folders_and_devices_once() {
        let mut archive = Archive::default();
        archive.device("dev/console", (5, 1));
        archive.file("a/b/c", b"12345");
        archive.file("a/b/d", b"");
        archive.file("a/b/d", b"other");
        archive.folder("a/b");
        let found = listed(&archive.finish());
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["dev", "dev/console", "a", "a/b", "a/b/c", "a/b/d", "TRAILER!!!"]);
        assert_eq!(found[1].1, CHARACTER_DEVICE);
        assert_eq!(found[1].2, [5, 1]);
        assert_eq!((found[3].1, found[4].3.as_slice()), (FOLDER, b"12345".as_slice()));
        assert_eq!(found[5].3, b"");
    }
}
