//! Existence of files and mounted file systems. A mount is looked up in the kernel's table; the
//! file system itself is not accessed, since its server may not answer.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::CheckResult;

const MOUNTS: &str = "/proc/self/mountinfo";

/// Checks that the path exists.
pub(super) fn check_file(path: &Path) -> CheckResult {
    match fs::metadata(path) {
        Ok(_) => CheckResult::satisfied("it exists"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            CheckResult::unsatisfied("it does not exist")
        }
        Err(error) => CheckResult::unsatisfied(error.to_string()),
    }
}

/// Checks that a file system is mounted at the path. An automount point (autofs) does not count
/// until it is mounted.
pub(super) fn check_mount(path: &Path) -> CheckResult {
    let table = match fs::read(MOUNTS) {
        Ok(table) => table,
        Err(error) => return CheckResult::unsatisfied(format!("{MOUNTS}: {error}")),
    };
    match filesystem_at(&String::from_utf8_lossy(&table), &lexically_normalised(path)) {
        None => CheckResult::unsatisfied("no file system is mounted"),
        Some("autofs") => {
            CheckResult::unsatisfied("autofs is mounted, and no file system through it yet")
        }
        Some(kind) => CheckResult::satisfied(format!("{kind} is mounted")),
    }
}

/// Returns the type of the file system mounted last at the path (`proc_pid_mountinfo(5)`); `None`
/// if none is.
fn filesystem_at<'a>(table: &'a str, path: &Path) -> Option<&'a str> {
    let entry = |line: &'a str| {
        let (before, after) = line.split_once(" - ")?;
        let mount_point = before.split(' ').nth(4)?;
        (Path::new(&decode_octal_escapes(mount_point)) == path)
            .then(|| after.split(' ').next())
            .flatten()
    };
    table.lines().rev().find_map(entry)
}

/// Decodes spaces and similar characters, which are written as a backslash and three octal digits.
fn decode_octal_escapes(mount_point: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = mount_point.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let escaped = byte.filter(|_| first == b'\\');
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &others[3..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes the path absolute and removes `.`, `..` and a trailing slash. Links are not followed, as
/// that would access the file system.
fn lexically_normalised(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut normalised = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                normalised.pop();
            }
            Component::CurDir => {}
            component => normalised.push(component),
        }
    }
    normalised
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 28 0:21 / /proc rw,relatime shared:12 - proc proc rw
30 28 0:26 / /mnt/auto rw shared:13 - autofs systemd-1 rw
31 28 0:27 / /data/disk\\04013 rw shared:14 - nfs 192.168.1.13:/data/disk13 ro
32 30 0:28 / /mnt/auto rw - nfs4 nas:/ rw
33 28 0:29 / /pool rw shared:15 - autofs systemd-1 rw
";

    #[test]
    fn a_mount_is_found_by_its_mount_point() {
        let of = |path: &str| filesystem_at(TABLE, &lexically_normalised(Path::new(path)));
        assert_eq!(of("/data/disk 13"), Some("nfs"));
        assert_eq!(of("/data/../data/./disk 13/"), Some("nfs"));
        assert_eq!(of("/mnt/auto"), Some("nfs4"), "what was mounted last counts");
        assert_eq!(of("/pool"), Some("autofs"));
        assert_eq!((of("/data"), of("/pool/me")), (None, None));
    }

    #[test]
    fn this_machine_has_processes_and_no_nonsense() {
        assert!(check_mount(Path::new("/proc")).holds && check_file(Path::new("/proc/self")).holds);
        assert!(!check_mount(Path::new("/proc/self")).holds);
        assert_eq!(check_file(Path::new("/no/such/file")).detail, "it does not exist");
    }
}
