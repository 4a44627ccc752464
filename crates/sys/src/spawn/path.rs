//! Search for a program in `PATH`, done before the start.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Search path of `execvp(3)` if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the candidate paths in order: the present location of the program, then each directory
/// of `path`, in case the program is replaced before the start. A name with a slash is the only
/// candidate.
pub(super) fn candidate_paths(name: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return Ok(vec![CString::new(name.as_bytes())?]);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let all = std::env::split_paths(path).map(|directory| {
        // An empty entry is the working directory.
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
        directory.join(name).into_os_string()
    });
    let mut all: Vec<OsString> = all.collect();
    if let Some(found) = all.iter().position(|full_path| is_program(Path::new(full_path))) {
        all.insert(0, all[found].clone());
    }
    all.into_iter().map(|full_path| Ok(CString::new(full_path.into_vec())?)).collect()
}

fn is_program(full_path: &Path) -> bool {
    let found = std::fs::metadata(full_path);
    found.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str, path: Option<&str>) -> Vec<String> {
        let full_paths = candidate_paths(OsStr::new(name), path.map(OsStr::new)).unwrap();
        full_paths.into_iter().map(|full_path| full_path.into_string().unwrap()).collect()
    }

    #[test]
    fn the_present_location_precedes_all_directories() {
        let all = ["/bin/sh", "/nowhere/sh", "./sh", "/bin/sh"];
        assert_eq!(texts("sh", Some("/nowhere::/bin")), all);
        assert_eq!(texts("sh", None)[0], "/bin/sh");
        assert_eq!(texts("no such program", Some("/bin")), ["/bin/no such program"]);
        assert_eq!(texts("./sh", Some("/bin")), ["./sh"]);
        assert_eq!(texts("", Some("/bin")), [""]);
        assert!(candidate_paths(OsStr::new("a\0b"), None).is_err());
    }
}
