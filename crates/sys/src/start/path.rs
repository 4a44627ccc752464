//! Where a program is found that is called by its name, looked up before it is wanted.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What `execvp(3)` searches where there is no `PATH`.
const DEFAULT: &str = "/bin:/usr/bin";

/// The places to try, in order: where it is now, and then each directory of `path`, for it may be
/// elsewhere when it is started. A name with a slash is a place.
pub(super) fn places(name: &OsStr, path: Option<&OsStr>) -> io::Result<Vec<CString>> {
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
        let places = places(OsStr::new(name), path.map(OsStr::new)).unwrap();
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
        assert!(places(OsStr::new("a\0b"), None).is_err());
    }
}
