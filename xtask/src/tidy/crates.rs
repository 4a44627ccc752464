//! Rules for dependencies and `unsafe`, read from the table of crates in ARCHITECTURE.md, so that
//! the document stays current. A table that cannot be parsed is an error, never an empty set of
//! rules.

use anyhow::{Context, Result, bail, ensure};

/// Row of the table.
#[derive(Debug)]
pub(crate) struct CrateRule {
    /// Directory, such as `crates/time` or `tests`.
    pub(crate) directory: String,
    /// Directories of the crates that this crate may use.
    pub(crate) may_use: Vec<String>,
    /// True if the crate may contain `unsafe` code.
    pub(crate) allows_unsafe: bool,
}

/// Rules of all crates, in the order of the document.
#[derive(Debug)]
pub(crate) struct CrateRules(pub(crate) Vec<CrateRule>);

impl CrateRules {
    /// Parses the rules in the document.
    pub(crate) fn parse(document: &str) -> Result<Self> {
        let rows = rows(document)?;
        let directories: Vec<String> = rows.iter().map(|row| row.directory.clone()).collect();
        let mut rules = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            rules.push(CrateRule {
                directory: row.directory.clone(),
                may_use: allowed(row.may_use, &directories, index)
                    .with_context(|| format!("row `{}`", row.directory))?,
                allows_unsafe: row.holds.contains("`unsafe`"),
            });
        }
        forbid_one_another(&mut rules, &tool_crates(document)?)?;
        Ok(Self(rules))
    }

    pub(crate) fn find(&self, directory: &str) -> Option<&CrateRule> {
        self.0.iter().find(|rule| rule.directory == directory)
    }

    /// Returns the rule of the crate that contains the file at `path`.
    pub(crate) fn of_file(&self, path: &str) -> Option<&CrateRule> {
        self.0.iter().find(|rule| {
            path.strip_prefix(rule.directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

struct Row<'a> {
    directory: String,
    holds: &'a str,
    may_use: &'a str,
}

fn rows(document: &str) -> Result<Vec<Row<'_>>> {
    let mut rows = Vec::new();
    for line in document.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [directory, holds, may_use] = columns.as_slice() else {
            bail!("not three columns: {line}");
        };
        let directory = directory.trim_matches('`').trim_end_matches('/').to_owned();
        rows.push(Row { directory, holds, may_use });
    }
    ensure!(!rows.is_empty(), "no row begins with a crate's directory in backticks");
    Ok(rows)
}

/// Returns the directories that the column "may use" of the row at `index` represents.
fn allowed(may_use: &str, directories: &[String], index: usize) -> Result<Vec<String>> {
    let above = &directories[..index];
    Ok(match may_use {
        "nothing" | "nothing of the product" => Vec::new(),
        "everything" => directories.to_vec(),
        "all above" => above.to_vec(),
        names => match names.strip_prefix("everything but ") {
            Some(excepted) => {
                let excepted = named(excepted, above)?;
                directories.iter().filter(|one| !excepted.contains(one)).cloned().collect()
            }
            None => named(names, above)?,
        },
    })
}

/// Returns the directories of the crates of a list of names, all of which are in rows above.
fn named(names: &str, above: &[String]) -> Result<Vec<String>> {
    let directory = |name: &str| {
        let directory = format!("crates/{}", name.trim());
        ensure!(above.contains(&directory), "`{}` is in no row above", name.trim());
        Ok(directory)
    };
    names.split(',').map(directory).collect()
}

/// Returns the crates that must not import one another by the document, in whatever order they are.
fn tool_crates(document: &str) -> Result<Vec<String>> {
    let (_, rest) = document
        .split_once("The tool crates (")
        .context("missing sentence: \"The tool crates (…) never import one another\"")?;
    let (names, rest) = rest.split_once(')').context("the list of tool crates has no end")?;
    let sentence: String = rest.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    ensure!(
        sentence.starts_with("never import one another"),
        "unexpected sentence on tool crates: `{sentence}`"
    );
    Ok(names.split(',').map(|name| format!("crates/{}", name.trim().trim_matches('`'))).collect())
}

fn forbid_one_another(rules: &mut [CrateRule], tools: &[String]) -> Result<()> {
    for tool in tools {
        let rule = rules
            .iter_mut()
            .find(|rule| rule.directory == *tool)
            .with_context(|| format!("the tool crate {tool} has no row"))?;
        rule.may_use.retain(|used| !tools.contains(used));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const DOCUMENT: &str = "\
| crate | holds | may use |
|---|---|---|
| `crates/time` | timestamps | nothing |
| `crates/sys` | system calls; one crate with `unsafe` | time |
| `crates/server` | the time server | all above |
| `crates/load` | the generator | all above |
| `crates/cli` | the binary | everything but sys |
| `tests/` | scenarios | everything |
| `xtask/` | chores | nothing of the product |

The tool crates (`server`, `load`) never import
one another: what two of them need moves up.
";

    fn may_use(directory: &str) -> Vec<String> {
        CrateRules::parse(DOCUMENT).unwrap().find(directory).unwrap().may_use.clone()
    }

    #[test]
    fn each_phrase_of_the_table_is_parsed() {
        assert!(may_use("crates/time").is_empty());
        assert_eq!(may_use("crates/sys"), ["crates/time"]);
        assert_eq!(may_use("crates/server"), ["crates/time", "crates/sys"]);
        assert_eq!(may_use("tests").len(), 7);
        assert_eq!(may_use("crates/cli").len(), 6);
        assert!(!may_use("crates/cli").contains(&"crates/sys".to_owned()));
        assert!(may_use("xtask").is_empty());
    }

    #[test]
    fn tool_crates_may_not_use_one_another() {
        assert_eq!(may_use("crates/load"), ["crates/time", "crates/sys"]);
    }

    #[test]
    fn unsafe_is_allowed_by_the_table() {
        let rules = CrateRules::parse(DOCUMENT).unwrap();
        assert!(rules.of_file("crates/sys/src/lib.rs").unwrap().allows_unsafe);
        assert!(!rules.of_file("crates/time/src/lib.rs").unwrap().allows_unsafe);
        assert!(rules.of_file("crates/system/src/lib.rs").is_none());
    }

    #[test]
    fn an_invalid_table_is_an_error() {
        for (from, to) in [
            ("| time |", "| load |"),
            ("| time |", "| whatever |"),
            ("| nothing |", "| nothing | more |"),
            ("everything but sys", "everything but tests"),
            ("| `", "| "),
            ("The tool crates", "Tool crates"),
            ("never import", "seldom import"),
            ("`server`, `load`", "`server`, `relay`"),
        ] {
            let invalid = DOCUMENT.replace(from, to);
            assert_ne!(invalid, DOCUMENT);
            assert!(CrateRules::parse(&invalid).is_err(), "{from} -> {to} was accepted");
        }
    }
}
