//! Check of the links of the documentation: the file exists in the project, and so does the heading
//! of a link that has one. Links to the network are not checked.

use std::collections::BTreeSet;

use super::Finding;
use super::files::TextFile;

const TARGET_OPENING: &str = "](";

/// Checks every link of every page. `exists` returns true if a path below the root exists.
pub(super) fn check(files: &[TextFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let pages = || files.iter().filter(|file| file.extension() == "md");
    let mut findings = Vec::new();
    for page in pages() {
        for (line, target) in links(&page.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (name, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if name.is_empty() { page.path.clone() } else { resolve(&page.path, name) };
            if !exists(&path) {
                let message = format!("the link target '{path}' does not exist");
                findings.push(Finding::new(&page.path, line, message));
                continue;
            }
            let linked_page = pages().find(|other| other.path == path);
            if !heading.is_empty()
                && !linked_page.is_some_and(|page| has_heading(&page.text, heading))
            {
                let message = format!("'{path}' has no heading '#{heading}'");
                findings.push(Finding::new(&page.path, line, message));
            }
        }
    }
    findings
}

/// Returns the targets of a page's links, each with its line.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(TARGET_OPENING).filter_map(|(at, _)| {
        let target = text[at + TARGET_OPENING.len()..].split_once(')')?.0;
        let is_link = !target.is_empty() && !target.contains(char::is_whitespace);
        is_link.then(|| (text[..at].matches('\n').count() + 1, target))
    })
}

/// Returns the path that `name` denotes on the page at `path`.
fn resolve(path: &str, name: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<String> = headings.map(anchor_of).collect();
    anchors.contains(anchor)
}

/// Returns the anchor of a heading, as forges make it.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let retained = words.chars().filter(|&one| one.is_alphanumeric() || " -_".contains(one));
    retained.map(|one| if one == ' ' { '-' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{NO_LINES, texts};

    fn lines(text: &str) -> Vec<usize> {
        let files =
            texts(&[("docs/a.md", text), ("README.md", "# Horolog: it's\n## Two words, `code`\n")]);
        let exists = |path: &str| ["docs/a.md", "README.md", "docs/image.png"].contains(&path);
        check(&files, exists).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn valid_links_pass() {
        let text = "# A\n[a](#a) [b](../README.md#horolog-its) [c](../README.md#two-words-code)\n\
                    ![an\nimage](image.png) [d](https://example.org/#nothing)\n";
        assert_eq!(lines(text), NO_LINES);
    }

    #[test]
    fn dangling_links_are_found() {
        assert_eq!(lines("\n[a](gone.md) [b](README.md)\n"), [2, 2]);
        assert_eq!(lines("# A\n[a](#b)\n[b](../README.md#a)\n[c](image.png#a)\n"), [2, 3, 4]);
    }
}
