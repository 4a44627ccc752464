//! Check that no file contains a path of the host that it was written on. Such a path is useless on
//! other hosts and reveals something about the author. System paths (`/usr`, `/proc`, `/sys`) pass.

use super::Finding;
use super::files::TextFile;

/// Directories of users, written in two pieces so that this file passes its own check.
const PRIVATE_DIRECTORIES: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(path) = PRIVATE_DIRECTORIES.iter().find(|path| names_directory(line, path))
            {
                let message = format!("path of a user's directory: {path}…");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Returns true if an absolute path in `line` begins with `directory` and continues; `a/work/b`
/// does not.
fn names_directory(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + directory.len()..]);
        let relative = before.ends_with(|c: char| c.is_alphanumeric() || "._-/~$}".contains(c));
        !relative && after.starts_with(|c: char| c.is_alphanumeric() || "._-".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::texts;
    use super::*;

    fn found(text: &str) -> bool {
        !check(&texts(&[("a.md", text)])).is_empty()
    }

    #[test]
    fn a_path_of_a_developers_machine_is_found() {
        for directory in PRIVATE_DIRECTORIES {
            assert!(found(&format!("see {directory}jo/notes\n")), "{directory}");
            assert!(found(&format!("path={directory}.cache\n")), "{directory}");
        }
    }

    #[test]
    fn other_paths_pass() {
        for text in ["/usr/share/a\n", "https://a.example/work/b\n", "$HOME/work/b\n", "~/work/b\n"]
        {
            assert!(!found(text), "{text}");
        }
    }
}
