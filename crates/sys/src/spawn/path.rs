//! Search for a program by its name, before it is needed.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Default search path of `execvp(3)` if there is no `PATH`.
const DEFAULT: &str = "/bin:/usr/bin";

/// Returns the paths to try, in order: the present location, and then each directory of `path`, for
/// it may be elsewhere when it is started. A name with a slash is a path.
pub(super) fn candidate_paths(name: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return Ok(vec![CString::new(name.as_bytes())?]);
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT));
    let all = std::env::split_paths(path).map(|directory| {
        // An empty one is the working directory.
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
        directory.join(name).into_os_string()
    });
    let mut all: Vec<OsString> = all.collect();
    if let Some(found) = all.iter().position(|place| is_program(Path::new(place))) {
        all.insert(0, all[found].clone());
    }
    all.into_iter().map(|place| Ok(CString::new(place.into_vec())?)).collect()
}

fn is_program(place: &Path) -> bool {
    let found = std::fs::metadata(place);
    found.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(name: &str, path: Option<&str>) -> Vec<String> {
        let places = candidate_paths(OsStr::new(name), path.map(OsStr::new)).unwrap();
        places.into_iter().map(|place| place.into_string().unwrap()).collect()
    }

    #[test]
    fn a_name_is_looked_for_where_it_is_and_then_everywhere() {
        let all = ["/bin/sh", "/nowhere/sh", "./sh", "/bin/sh"];
        assert_eq!(texts("sh", Some("/nowhere::/bin")), all);
        assert_eq!(texts("sh", None)[0], "/bin/sh");
        assert_eq!(texts("no such program", Some("/bin")), ["/bin/no such program"]);
        assert_eq!(texts("./sh", Some("/bin")), ["./sh"]);
        assert_eq!(texts("", Some("/bin")), [""]);
        assert!(candidate_paths(OsStr::new("a\0b"), None).is_err());
    }
}
