//! Phrases in documents: circumlocutions that have a plain term, and nouns for persons where a
//! program or host is meant. Documents are the pages at the root and in `docs`, the unreleased
//! section of the changelog, and the files of packages. The glossary, which quotes such phrases, is
//! omitted.

use super::Finding;
use super::files::TextFile;

/// Phrases, each with its replacement.
const PHRASES: [(&str, &str); 12] = [
    ("to be had", "available"),
    ("held against", "compared with"),
    ("nobody", "the host, program or client"),
    ("whoever", "the host, program or client"),
    ("somebody", "the host, program or client"),
    ("the house", "the workspace"),
    ("the rooms", "the crates"),
    ("out of breath", "saturated"),
    ("by the word of", "as reported by"),
    ("as seldom as", "at most every"),
    ("so many of", "a number of"),
    ("is to be seen", "shows"),
];
/// Pages at the root of the repository.
const ROOT_PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"];
/// Page with a column of retired words.
const GLOSSARY: &str = "docs/glossary.md";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().filter(|file| is_document(file)).flat_map(check_document).collect()
}

fn is_document(file: &TextFile) -> bool {
    let path = file.path.as_str();
    let is_page = path.starts_with("docs/") && file.extension() == "md" && path != GLOSSARY;
    is_page || path.starts_with("packaging/") || ROOT_PAGES.contains(&path)
}

fn check_document(file: &TextFile) -> Vec<Finding> {
    let text = if file.path == "CHANGELOG.md" { unreleased(&file.text) } else { &file.text };
    let words = numbered_words(text);
    let mut findings = Vec::new();
    for (phrase, instead) in PHRASES {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        for used in words.windows(phrase.len()) {
            if used.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()) {
                let message = format!("'{}': use '{instead}'", phrase.join(" "));
                findings.push(Finding::new(&file.path, used[0].0, message));
            }
        }
    }
    findings
}

/// Returns the changelog up to its first release; released sections remain as published.
fn unreleased(text: &str) -> &str {
    let mut headings = text.match_indices("\n## ").map(|(at, _)| at);
    let end = headings.nth(1);
    &text[..end.unwrap_or(text.len())]
}

/// Returns the words in lower case, each with its line, so that a phrase is found across lines and
/// marks of comments. An identifier is one word.
fn numbered_words(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let words = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty());
            words.map(move |word| (index + 1, word.to_lowercase()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{NO_LINES, texts};
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&texts(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn phrases_are_found_in_each_document_and_across_lines() {
        let text = "A page.\nNobody answers,\nand XDP is to be\n# had.\n";
        for path in ["README.md", "docs/load.md", "packaging/horolog.preset", "ARCHITECTURE.md"] {
            assert_eq!(lines(path, text), [3, 2], "{path}");
        }
    }

    #[test]
    fn plain_words_and_other_files_pass() {
        assert_eq!(lines("docs/load.md", "Warehouse: `shuts_nobody_out`.\n"), NO_LINES);
        for path in ["docs/glossary.md", "crates/a/src/b.rs", "docs/images/a.txt"] {
            assert_eq!(lines(path, "Nobody.\n"), NO_LINES, "{path}");
        }
    }

    #[test]
    fn released_sections_of_the_changelog_are_skipped() {
        let text = "# Changes\n\n## Unreleased\n\nOld.\n\n## 1.0\n\nNobody.\n";
        assert_eq!(lines("CHANGELOG.md", text), NO_LINES);
        assert_eq!(lines("CHANGELOG.md", &text.replace("Old", "Nobody")), [5]);
    }
}
