//! Policy as a TOML file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use horolog_sys::netlink::Prefix;
use horolog_time::text;
use serde::Deserialize;
use toml::Spanned;

use super::{POLICY_SCHEMA, Policy, RoleBounds, plain};
use crate::file_error::{FileError, line_of};
use crate::role::{OptionType, ParsedValue, RoleKind};

/// Contents of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawPolicy {
    schema: Spanned<String>,
    kinds: Option<Vec<Spanned<String>>>,
    max_jobs: Option<Spanned<u32>>,
    targets: Option<Vec<Spanned<String>>>,
    listen: Option<Vec<Spanned<String>>>,
    max_rate: Option<Spanned<String>>,
    max_time: Option<Spanned<String>>,
    #[serde(default)]
    kind: BTreeMap<Spanned<String>, RawBounds>,
}

/// Bounds of one kind, which override those of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawBounds {
    targets: Option<Vec<Spanned<String>>>,
    listen: Option<Vec<Spanned<String>>>,
    max_rate: Option<Spanned<String>>,
    max_time: Option<Spanned<String>>,
}

pub(super) fn parse(text: &str) -> Result<Policy, FileError> {
    let raw: RawPolicy = toml::from_str(text).map_err(|error| FileError::of_toml(text, &error))?;
    if raw.schema.get_ref() != POLICY_SCHEMA {
        let reason = format!(
            "unsupported schema; this version reads policies of the schema \
                              \"{POLICY_SCHEMA}\""
        );
        return Err(at(text, &raw.schema, reason));
    }
    let default = Policy::default();
    let of_all = RawBounds {
        targets: raw.targets,
        listen: raw.listen,
        max_rate: raw.max_rate,
        max_time: raw.max_time,
    };
    let usual = of_all.over(text, &default.default_bounds)?;
    let kinds = match raw.kinds {
        Some(names) => {
            let kind =
                |name: &Spanned<String>| name.get_ref().parse().map_err(|e| at(text, name, e));
            names.iter().map(kind).collect::<Result<Vec<RoleKind>, _>>()?
        }
        None => default.kinds(),
    };
    let mut kinds: BTreeMap<_, _> = kinds.into_iter().map(|kind| (kind, usual.clone())).collect();
    for (name, bounds) in raw.kind {
        let kind: RoleKind = name.get_ref().parse().map_err(|why| at(text, &name, why))?;
        let Some(own) = kinds.get_mut(&kind) else {
            return Err(at(
                text,
                &name,
                format!("add \"{kind}\" to the kinds, or omit this table"),
            ));
        };
        *own = bounds.over(text, &usual)?;
    }
    let jobs = match raw.max_jobs {
        Some(jobs) if *jobs.get_ref() == 0 => {
            return Err(at(text, &jobs, "max-jobs is at least 1"));
        }
        Some(jobs) => jobs.into_inner(),
        None => default.jobs,
    };
    Ok(Policy { jobs, default_bounds: usual, kinds })
}

fn at<T>(text: &str, value: &Spanned<T>, reason: impl Into<String>) -> FileError {
    FileError::new(Some(line_of(text, value.span().start)), reason)
}

impl RawBounds {
    /// Returns these bounds, with missing ones taken from `usual`.
    fn over(self, text: &str, usual: &RoleBounds) -> Result<RoleBounds, FileError> {
        let networks = |list: Option<Vec<Spanned<String>>>, usual: &[Prefix]| match list {
            Some(list) => list.iter().map(|one| network(text, one)).collect(),
            None => Ok(usual.to_vec()),
        };
        let rate = self.max_rate.map(|rate| {
            text::rate(rate.get_ref()).map_err(|why| at(text, &rate, format!("max-rate: {why}")))
        });
        let time = self.max_time.map(|time| {
            let read = text::long_duration(time.get_ref());
            read.map_err(|why| at(text, &time, format!("max-time: {why}")))
        });
        Ok(RoleBounds {
            targets: networks(self.targets, &usual.targets)?,
            listens: networks(self.listen, &usual.listens)?,
            rate: rate.transpose()?.unwrap_or(usual.rate),
            time: time.transpose()?.unwrap_or(usual.time),
        })
    }
}

fn network(text: &str, one: &Spanned<String>) -> Result<Prefix, FileError> {
    match OptionType::Network.read(one.get_ref()) {
        Ok(ParsedValue::Network(network)) => Ok(plain(network.network())),
        Ok(_) => Err(at(text, one, "write a network such as 10.0.0.0/8")),
        Err(why) => Err(at(text, one, why)),
    }
}

pub(super) fn to_toml(policy: &Policy) -> String {
    let Policy { jobs, default_bounds: usual, kinds } = policy;
    let names: Vec<_> = kinds.keys().map(ToString::to_string).collect();
    // Writing to memory cannot fail.
    let mut text = format!("schema = \"{POLICY_SCHEMA}\"\n");
    list(&mut text, "kinds", &names);
    let _ = writeln!(text, "max-jobs = {jobs}");
    bounds(&mut text, usual);
    for (kind, own) in kinds.iter().filter(|(_, own)| *own != usual) {
        let _ = write!(text, "\n[kind.{kind}]\n");
        bounds(&mut text, own);
    }
    text
}

fn bounds(text: &mut String, bounds: &RoleBounds) {
    let shown = |list: &[Prefix]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    list(text, "targets", &shown(&bounds.targets));
    list(text, "listen", &shown(&bounds.listens));
    let _ = writeln!(text, "max-rate = \"{}\"", bounds.rate);
    let _ = writeln!(text, "max-time = \"{}\"", seconds(bounds.time));
}

/// Formats a time so that it parses to the same value.
fn seconds(time: Duration) -> String {
    format!("{}.{:09}s", time.as_secs(), time.subsec_nanos()).replace(".000000000s", "s")
}

fn list(text: &mut String, key: &str, items: &[String]) {
    let quoted: Vec<_> = items.iter().map(|item| format!("\"{item}\"")).collect();
    let _ = match quoted.len() {
        0..=3 => writeln!(text, "{key} = [{}]", quoted.join(", ")),
        _ => writeln!(text, "{key} = [\n    {},\n]", quoted.join(",\n    ")),
    };
}
