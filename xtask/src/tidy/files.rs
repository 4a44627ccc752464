//! Text files of the project: those that git tracks or would track. Files that `.gitignore` matches
//! are not read.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Text file with its path relative to the root of the repository, with `/` between the parts.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// Returns the extension of the file's name, or an empty text.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|e| e.to_str()).unwrap_or_default()
    }
}

/// Reads all text files of the project below `root`.
pub(crate) fn read_text_files(root: &Path) -> Result<Vec<TextFile>> {
    let output = Command::new("git")
        // As root, git would refuse to read a clone that another user owns.
        .args(["-c", &format!("safe.directory={}", root.display())])
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    ensure!(
        output.status.success(),
        "git ls-files failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("file name is not UTF-8")?;
    let mut files: Vec<TextFile> =
        names.split_terminator('\0').filter_map(|path| read(root, path)).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Reads a file. Returns `None` if it is not text, or is tracked but deleted.
fn read(root: &Path, path: &str) -> Option<TextFile> {
    let bytes = std::fs::read(root.join(path)).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    Some(TextFile { path: path.to_owned(), text })
}

/// Returns the text of the file at `path`.
pub(crate) fn text_of<'a>(files: &'a [TextFile], path: &str) -> Result<&'a str> {
    let file = files.iter().find(|file| file.path == path);
    Ok(&file.with_context(|| format!("{path} is missing"))?.text)
}
