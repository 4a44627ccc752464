//! Notices that must be distributed with the binary: each part with its licence, and the texts of
//! all parts, each text once with the names of its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use spdx::Expression;

use super::{Part, Parts};

/// Beginnings of the names of files with notices, in capitals.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Directory of such files, by the REUSE specification.
const DIRECTORY: &str = "LICENSES";
const RULE: &str =
    "-------------------------------------------------------------------------------------------";

/// Returns the notices of all parts.
pub(super) fn text(parts: &Parts) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut list = String::new();
    for part in parts.list.iter().filter(|part| !part.is_own()) {
        let called = format!("{} {}", part.name, part.version);
        let home = part.home.as_deref().unwrap_or_default();
        writeln!(list, "{called}: {} {home}", part.licence)?;
        for text in texts_of(part).with_context(|| called.clone())? {
            texts.entry(text).or_default().insert(called.clone());
        }
    }
    let mut whole = format!(
        "Horolog is under Apache-2.0 or MIT. Its binary is linked from these parts of others, whose\n\
         licences are named here and whose notices follow.\n\n{list}"
    );
    for (text, owners) in &texts {
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        write!(whole, "\n{RULE}\n{}\n{RULE}\n\n{text}\n", owners.join("\n"))?;
    }
    Ok(whole)
}

/// Returns the notices of one part, or the texts of its licences if it has none.
fn texts_of(part: &Part) -> Result<Vec<String>> {
    let mut files = part.notices.clone();
    if let (true, Some(directory)) = (files.is_empty(), &part.directory) {
        files.extend(files_in(directory, is_notice)?);
        files.extend(files_in(&directory.join(DIRECTORY), |_| true)?);
    }
    let texts: Vec<String> = files.iter().map(|path| read(path)).collect::<Result<_>>()?;
    if texts.is_empty() { standard_texts(part) } else { Ok(texts) }
}

fn is_notice(name: &str) -> bool {
    let is_source = Path::new(name).extension().is_some_and(|extension| extension == "rs");
    let name = name.to_uppercase();
    !is_source && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Returns the files of a directory with matching names, in order; none if there is no directory.
fn files_in(directory: &Path, is_matching: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let named = entries.iter().filter(|entry| is_matching(&entry.file_name().to_string_lossy()));
    let mut paths: Vec<_> = named.map(fs::DirEntry::path).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}

/// Reads a text with uniform line ends and without surrounding blank space, so that equal texts
/// compare as equal.
fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    Ok(lines.join("\n"))
}

/// Returns the texts of a part's licences, with the names of its authors.
fn standard_texts(part: &Part) -> Result<Vec<String>> {
    let expression = Expression::parse(&part.licence)?;
    let names: BTreeSet<_> =
        expression.requirements().filter_map(|required| required.req.license.id()).collect();
    ensure!(!names.is_empty(), "no notice of the part, and no text of '{}'", part.licence);
    let authors = if part.authors.is_empty() {
        format!("the authors of {}", part.name)
    } else {
        part.authors.join(", ")
    };
    let text = |id: spdx::LicenseId| format!("By {authors}. {}\n\n{}", id.name, id.text().trim());
    Ok(names.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(directory: Option<PathBuf>) -> Part {
        Part {
            name: "small".to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT OR Zlib".to_owned(),
            purl: Some("pkg:cargo/small@1.0.0".to_owned()),
            home: None,
            authors: vec!["A. Author".to_owned()],
            directory,
            notices: Vec::new(),
        }
    }

    #[test]
    fn files_of_notices_are_recognised_by_their_names() {
        assert!(is_notice("LICENSE-MIT") && is_notice("license.md") && is_notice("NOTICE"));
        assert!(!is_notice("README.md") && !is_notice("license.rs") && !is_notice("src"));
    }

    #[test]
    fn a_part_without_a_notice_gets_its_licences_own_texts() {
        let texts = texts_of(&part(None)).unwrap();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("A. Author"), "{}", texts[0]);
        assert!(texts.iter().any(|text| text.contains("Permission is hereby granted")));
        let nameless = Part { licence: "LicenseRef-Own".to_owned(), ..part(None) };
        assert!(texts_of(&nameless).is_err());
    }

    #[test]
    fn equal_texts_are_listed_once() {
        let directory =
            super::super::metadata().unwrap().members().next().map(|package| {
                package.manifest_path.ancestors().nth(3).map(Path::to_owned).unwrap()
            });
        let other = Part { name: "other".to_owned(), ..part(directory.clone()) };
        let list = vec![part(directory), other];
        let whole = text(&Parts { list, uses: BTreeMap::new() }).unwrap();
        assert_eq!(whole.matches("Permission is hereby granted").count(), 1, "{whole}");
        assert!(whole.contains("\nother 1.0.0\nsmall 1.0.0\n"), "{whole}");
    }

    #[test]
    fn each_part_of_the_binary_has_a_notice() {
        let metadata = super::super::metadata().unwrap();
        let whole = text(&super::super::parts(&metadata).unwrap()).unwrap();
        for sign in ["\nSQLite ", "BoringSSL", "uPlot", "rustls ", "\nlibbpf "] {
            assert!(whole.contains(sign), "{sign}");
        }
        assert!(!whole.contains("horolog-time"));
    }
}
