//! Check for verbs of speech and pronouns for persons in the text of a source: identifiers,
//! comments and strings. Programs send, read and report.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::words::words;

/// Returns the uses of `avoided` words outside of the excluded lines, each with its line and the
/// name or word that contains it.
pub(super) fn uses(
    text: &str,
    excluded: &[RangeInclusive<usize>],
    avoided: &BTreeSet<String>,
) -> Vec<(usize, String)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let product =
        numbered.filter(|(number, _)| !excluded.iter().any(|lines| lines.contains(number)));
    product
        .flat_map(|(number, line)| {
            let tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let used =
                tokens.filter(|token| words(token).iter().any(|word| avoided.contains(word)));
            used.map(move |token| (number, token.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, excluded: &[RangeInclusive<usize>]) -> Vec<(usize, String)> {
        uses(text, excluded, &["told", "nobody"].map(ToOwned::to_owned).into())
    }

    #[test]
    fn words_are_found_in_identifiers_comments_and_strings() {
        let text = "// Nobody is told.\nlet told_at = ToldLeaps::new(\"nobody's\");\n";
        let names: Vec<_> = found(text, &[]).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["Nobody", "told", "told_at", "ToldLeaps", "nobody"]);
    }

    #[test]
    fn other_words_and_excluded_lines_pass() {
        assert_eq!(found("// Reported; untold, retold.\nlet reported_at = 1;\n", &[]), []);
        assert_eq!(found("fn a() {}\n#[test]\nfn told() {}\n", &[2..=3]), []);
    }
}
