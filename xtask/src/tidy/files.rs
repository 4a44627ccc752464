//! The files that belong to the project: what git tracks or would track, as far as it is text. What
//! `.gitignore` names is not looked at.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A text file, its path relative to the repository's root, with `/` between the parts.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// What follows the last dot of the file's name; empty where there is none.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|e| e.to_str()).unwrap_or_default()
    }
}

/// Reads all text files of the project below `root`.
pub(crate) fn tracked(root: &Path) -> Result<Vec<TextFile>> {
    let output = Command::new("git")
        // As root, git would refuse to read a clone that another user owns.
        .args(["-c", &format!("safe.directory={}", root.display())])
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git, which knows the project's files")?;
    ensure!(
        output.status.success(),
        "git ls-files failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let mut files: Vec<TextFile> =
        names.split_terminator('\0').filter_map(|path| read(root, path)).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// `None` for a file that is not text, and for one that git knows but that is deleted here.
fn read(root: &Path, path: &str) -> Option<TextFile> {
    let bytes = std::fs::read(root.join(path)).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    Some(TextFile { path: path.to_owned(), text })
}

/// The text of the file at `path`.
pub(crate) fn text_of<'a>(files: &'a [TextFile], path: &str) -> Result<&'a str> {
    let file = files.iter().find(|file| file.path == path);
    Ok(&file.with_context(|| format!("{path} is missing"))?.text)
}
