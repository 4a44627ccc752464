//! Check that every package that is built into Horolog, or that its tests use, has a licence that
//! deny.toml accepts. The list is only in that file, so that `cargo deny` and this check, which
//! needs no network and no installation, agree.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use super::Finding;
use crate::cargo::Package;

#[derive(Deserialize)]
struct DenyConfig {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
}

/// Returns the SPDX identifiers that deny.toml accepts.
pub(super) fn accepted(deny_toml: &str) -> Result<Vec<String>> {
    let config: DenyConfig = toml::from_str(deny_toml).context("cannot read deny.toml")?;
    let allow = config.licenses.allow;
    ensure!(!allow.is_empty(), "deny.toml accepts no licence");
    Ok(allow)
}

pub(super) fn check(packages: &[Package], accepted: &[String]) -> Vec<Finding> {
    packages
        .iter()
        .filter_map(|package| {
            let message = rejection_reason(package.license.as_deref(), accepted)?;
            let name = format!("{} {}", package.name, package.version);
            Some(Finding::new(&name, 0, message))
        })
        .collect()
}

/// Returns the reason for which a package's licence is not accepted.
fn rejection_reason(licence: Option<&str>, accepted: &[String]) -> Option<String> {
    let Some(text) = licence else {
        return Some("has no licence".to_owned());
    };
    // Older packages write MIT/Apache-2.0 for "or", which is not SPDX.
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!("the licence is no SPDX expression: {text}"));
    };
    let usable = expression.evaluate(|requirement| accepted.contains(&requirement.to_string()));
    (!usable).then(|| format!("the licence is not accepted by deny.toml: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(licence: &str) -> bool {
        let allow = ["MIT", "BSD-2-Clause", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        rejection_reason(Some(licence), &allow).is_none()
    }

    #[test]
    fn one_acceptable_choice_is_enough() {
        assert!(is_accepted("MIT"));
        assert!(is_accepted("MIT/Apache-2.0"));
        assert!(is_accepted("LGPL-2.1-only OR BSD-2-Clause"));
        assert!(is_accepted("MIT AND (Zlib OR Apache-2.0 WITH LLVM-exception)"));
    }

    #[test]
    fn other_licences_are_found() {
        assert!(!is_accepted("GPL-2.0-only"));
        assert!(!is_accepted("MIT AND GPL-2.0-only"));
        assert!(!is_accepted("Apache-2.0"));
        assert!(!is_accepted("whatever you like"));
        assert!(rejection_reason(None, &["MIT".to_owned()]).is_some());
    }

    #[test]
    fn a_missing_list_is_an_error() {
        assert!(accepted("[licenses]\nallow = [\"MIT\"]\n").is_ok());
        assert!(accepted("[licenses]\nallow = []\n").is_err());
        assert!(accepted("[bans]\n").is_err());
    }
}
