//! Policy as a TOML file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use horolog_time::text::{self, Rate};
use horolog_wire::prefix::Prefix;
use serde::Deserialize;
use toml::Spanned;

use super::{AgentPolicy, POLICY_SCHEMA, RoleBounds, unmap_ipv4};
use crate::file_error::{FileContentError, line_at_offset};
use crate::role::{ParsedOptionValue, RoleKind, RoleOptionType};

/// Contents of a policy file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawAgentPolicy {
    schema: Spanned<String>,
    kinds: Option<Vec<Spanned<String>>>,
    max_jobs: Option<Spanned<u32>>,
    targets: Option<Vec<Spanned<String>>>,
    listen: Option<Vec<Spanned<String>>>,
    max_rate: Option<Spanned<String>>,
    max_time: Option<Spanned<String>>,
    #[serde(default)]
    kind: BTreeMap<Spanned<String>, RawRoleBounds>,
}

/// Bounds of one kind of roles; missing ones are those of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawRoleBounds {
    targets: Option<Vec<Spanned<String>>>,
    listen: Option<Vec<Spanned<String>>>,
    max_rate: Option<Spanned<String>>,
    max_time: Option<Spanned<String>>,
}

pub(super) fn parse(text: &str) -> Result<AgentPolicy, FileContentError> {
    let raw: RawAgentPolicy =
        toml::from_str(text).map_err(|error| FileContentError::from_toml_error(text, &error))?;
    if raw.schema.get_ref() != POLICY_SCHEMA {
        let reason = format!(
            "unsupported schema; this version reads policies of the schema \
                              \"{POLICY_SCHEMA}\""
        );
        return Err(error_at(text, &raw.schema, reason));
    }
    let default = AgentPolicy::default();
    let common_bounds = RawRoleBounds {
        targets: raw.targets,
        listen: raw.listen,
        max_rate: raw.max_rate,
        max_time: raw.max_time,
    };
    let defaults = common_bounds.fill_missing(text, &default.default_bounds)?;
    let kinds = match raw.kinds {
        Some(names) => {
            let kind = |name: &Spanned<String>| {
                name.get_ref().parse().map_err(|e| error_at(text, name, e))
            };
            names.iter().map(kind).collect::<Result<Vec<RoleKind>, _>>()?
        }
        None => default.kinds(),
    };
    let mut kinds: BTreeMap<_, _> =
        kinds.into_iter().map(|kind| (kind, defaults.clone())).collect();
    for (name, bounds) in raw.kind {
        let kind: RoleKind = name.get_ref().parse().map_err(|why| error_at(text, &name, why))?;
        let Some(own) = kinds.get_mut(&kind) else {
            return Err(error_at(
                text,
                &name,
                format!("add \"{kind}\" to the kinds, or omit this table"),
            ));
        };
        *own = bounds.fill_missing(text, &defaults)?;
    }
    let jobs = match raw.max_jobs {
        Some(jobs) if *jobs.get_ref() == 0 => {
            return Err(error_at(text, &jobs, "max-jobs is at least 1"));
        }
        Some(jobs) => jobs.into_inner(),
        None => default.jobs_max,
    };
    Ok(AgentPolicy { jobs_max: jobs, default_bounds: defaults, kinds })
}

fn error_at<T>(text: &str, value: &Spanned<T>, reason: impl Into<String>) -> FileContentError {
    FileContentError::new(Some(line_at_offset(text, value.span().start)), reason)
}

impl RawRoleBounds {
    /// Returns these bounds, with missing ones taken from `defaults`.
    fn fill_missing(
        self,
        text: &str,
        defaults: &RoleBounds,
    ) -> Result<RoleBounds, FileContentError> {
        let networks = |list: Option<Vec<Spanned<String>>>, default_networks: &[Prefix]| match list
        {
            Some(list) => list.iter().map(|one| parse_network(text, one)).collect(),
            None => Ok(default_networks.to_vec()),
        };
        let rate = self.max_rate.map(|rate| {
            rate.get_ref()
                .parse::<Rate>()
                .map(Rate::per_second)
                .map_err(|why| error_at(text, &rate, format!("max-rate: {why}")))
        });
        let time = self.max_time.map(|time| {
            let read = text::positive_duration(time.get_ref());
            read.map_err(|why| error_at(text, &time, format!("max-time: {why}")))
        });
        Ok(RoleBounds {
            targets: networks(self.targets, &defaults.targets)?,
            listens: networks(self.listen, &defaults.listens)?,
            rate_max: rate.transpose()?.unwrap_or(defaults.rate_max),
            time_max: time.transpose()?.unwrap_or(defaults.time_max),
        })
    }
}

fn parse_network(text: &str, one: &Spanned<String>) -> Result<Prefix, FileContentError> {
    match RoleOptionType::Network.parse(one.get_ref()) {
        Ok(ParsedOptionValue::Network(network)) => Ok(unmap_ipv4(network.network())),
        Ok(_) => Err(error_at(text, one, "write a network such as 10.0.0.0/8")),
        Err(why) => Err(error_at(text, one, why)),
    }
}

pub(super) fn to_toml(policy: &AgentPolicy) -> String {
    let AgentPolicy { jobs_max: jobs, default_bounds: usual, kinds } = policy;
    let names: Vec<_> = kinds.keys().map(ToString::to_string).collect();
    // Writing to memory cannot fail.
    let mut text = format!("schema = \"{POLICY_SCHEMA}\"\n");
    write_list(&mut text, "kinds", &names);
    let _ = writeln!(text, "max-jobs = {jobs}");
    write_bounds(&mut text, usual);
    for (kind, own) in kinds.iter().filter(|(_, own)| *own != usual) {
        let _ = write!(text, "\n[kind.{kind}]\n");
        write_bounds(&mut text, own);
    }
    text
}

fn write_bounds(text: &mut String, bounds: &RoleBounds) {
    let shown = |list: &[Prefix]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    write_list(text, "targets", &shown(&bounds.targets));
    write_list(text, "listen", &shown(&bounds.listens));
    let _ = writeln!(text, "max-rate = \"{}\"", bounds.rate_max);
    let _ = writeln!(text, "max-time = \"{}\"", format_seconds(bounds.time_max));
}

/// Formats a duration exactly, in seconds: the text parses to the same duration.
fn format_seconds(time: Duration) -> String {
    format!("{}.{:09}s", time.as_secs(), time.subsec_nanos()).replace(".000000000s", "s")
}

fn write_list(text: &mut String, key: &str, items: &[String]) {
    let quoted: Vec<_> = items.iter().map(|item| format!("\"{item}\"")).collect();
    let _ = match quoted.len() {
        0..=3 => writeln!(text, "{key} = [{}]", quoted.join(", ")),
        _ => writeln!(text, "{key} = [\n    {},\n]", quoted.join(",\n    ")),
    };
}
