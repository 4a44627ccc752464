//! Conversion of the values of a plan file to roles and options. Consistency between roles is
//! checked afterwards.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use horolog_time::text;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use toml::{Spanned, Value};

use super::template::{RESERVED, ValueTemplate};
use super::{
    COUNT_MAX, DURATION_MAX, OFFSET_MAX, PLAN_BYTES_MAX, PLAN_SCHEMA, Plan, ROLES_MAX, Role,
    RoleInstanceSpec, RoleOption,
};
use crate::file_error::{FileContentError, line_at_offset};
use crate::id::RoleName;
use crate::order::DEADLINE_NS_MAX;
use crate::role::{RoleKind, RoleOptionError};

/// Largest size of a plan's name and of a label, in bytes.
const NAME_MAX: usize = 64;

type PlanParameters = BTreeMap<String, String>;

pub(super) fn parse_plan(
    text: &str,
    settings: &[(String, String)],
) -> Result<Plan, FileContentError> {
    if text.len() > PLAN_BYTES_MAX {
        let reason = format!("a plan is limited to {PLAN_BYTES_MAX} bytes");
        return Err(FileContentError::new(None, reason));
    }
    let source = PlanText(text);
    let raw = source.read()?;
    if raw.schema.get_ref() != PLAN_SCHEMA {
        let reason = format!(
            "unsupported schema; this version reads plans of the schema \
                              \"{PLAN_SCHEMA}\""
        );
        return Err(source.error_at(&raw.schema, reason));
    }
    let name = raw.name.get_ref();
    if !is_valid_name(name) {
        let reason = format!(
            "a plan's name has 1 to {NAME_MAX} lower-case letters, digits and '-', a letter first"
        );
        return Err(source.error_at(&raw.name, reason));
    }
    let parameters = effective_parameters(source, &raw, settings)?;
    let duration_max =
        parse_duration(source, raw.duration_max.as_ref(), &parameters, DURATION_MAX)?;
    if duration_max > Duration::from_nanos(DEADLINE_NS_MAX) {
        return Err(FileContentError::new(None, "duration-max is at most 7d"));
    }
    if raw.role.len() > ROLES_MAX {
        let reason = format!("a plan has up to {ROLES_MAX} roles");
        return Err(source.error_at(&raw.role[ROLES_MAX].name, reason));
    }
    let role = |raw: &RawRole| PlanReader { source, parameters: &parameters }.parse_role(raw);
    Ok(Plan {
        name: name.clone(),
        description: raw.description.split_whitespace().collect::<Vec<_>>().join(" "),
        text: text.to_owned(),
        hash: plan_hash(text, &parameters),
        duration_max,
        max_offset: parse_duration(source, raw.max_offset.as_ref(), &parameters, OFFSET_MAX)?,
        roles: raw.role.iter().map(role).collect::<Result<_, _>>()?,
        parameters,
    })
}

fn is_valid_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(is_part)
}

/// Returns the parameters with their effective values.
fn effective_parameters(
    source: PlanText<'_>,
    raw: &RawPlan,
    settings: &[(String, String)],
) -> Result<PlanParameters, FileContentError> {
    let mut parameters = PlanParameters::new();
    for (name, value) in &raw.parameters {
        let wrong = |reason: String| Err(source.error_at(value, reason));
        if !is_valid_name(name) || RESERVED.contains(&&**name) {
            return wrong(format!(
                "'{name}' is not a valid parameter name: use lower-case letters and digits"
            ));
        }
        let Some(text) = scalar_text(value.get_ref()) else {
            return wrong(format!("the parameter '{name}' is a text or a number"));
        };
        if text.contains(['{', '}']) {
            return wrong(format!("the parameter '{name}' cannot contain references"));
        }
        parameters.insert(name.clone(), text);
    }
    for (name, value) in settings {
        let known: Vec<_> = parameters.keys().cloned().collect();
        let Some(parameter) = parameters.get_mut(name) else {
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            let reason = format!("unknown parameter '{name}'; its parameters: {known}");
            return Err(FileContentError::new(None, reason));
        };
        if value.contains(['{', '}']) {
            let reason = format!("the parameter '{name}' cannot contain references");
            return Err(FileContentError::new(None, reason));
        }
        parameter.clone_from(value);
    }
    Ok(parameters)
}

fn plan_hash(text: &str, parameters: &PlanParameters) -> String {
    let mut hash = Sha256::new();
    hash.update(text);
    for (name, value) in parameters {
        // Names and values cannot contain the separator.
        hash.update(format!("\0{name}\0{value}"));
    }
    let mut hex = String::new();
    for byte in hash.finalize() {
        // Writing to memory cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn parse_duration(
    source: PlanText<'_>,
    configured: Option<&Spanned<String>>,
    parameters: &PlanParameters,
    default_duration: Duration,
) -> Result<Duration, FileContentError> {
    let Some(configured) = configured else { return Ok(default_duration) };
    let template = ValueTemplate::parse(configured.get_ref(), parameters);
    let template = template.map_err(|why| source.error_at(configured, why))?;
    let Some(text) = template.as_text() else {
        return Err(source.error_at(configured, "only parameters can be referenced here"));
    };
    text::positive_duration(text).map_err(|why| source.error_at(configured, why))
}

struct PlanReader<'a> {
    source: PlanText<'a>,
    parameters: &'a PlanParameters,
}

impl PlanReader<'_> {
    fn parse_role(&self, raw: &RawRole) -> Result<Role, FileContentError> {
        let name = self.role_name(&raw.name)?;
        if RESERVED.contains(&name.as_str()) || self.parameters.contains_key(name.as_str()) {
            let reason = format!("'{name}' is in use already; choose another name for the role");
            return Err(self.source.error_at(&raw.name, reason));
        }
        let kind: RoleKind =
            raw.kind.get_ref().parse().map_err(|why| self.source.error_at(&raw.kind, why))?;
        let line = self.source.line(&raw.name);
        let instances = self.parse_instances(raw)?;
        let affects_verdict = raw.affects_verdict.unwrap_or(true);
        Ok(Role {
            options: self.parse_options(raw, kind, line)?,
            name,
            line,
            kind,
            instances,
            affects_verdict,
        })
    }

    fn role_name(&self, text: &Spanned<String>) -> Result<RoleName, FileContentError> {
        text.get_ref().parse().map_err(|why: crate::IdError| {
            let why = why.to_string();
            self.source.error_at(text, why)
        })
    }

    fn parse_instances(&self, raw: &RawRole) -> Result<RoleInstanceSpec, FileContentError> {
        let colocated_role = |other: &Spanned<String>| {
            let name = &raw.name;
            let reason = match (&raw.count, raw.labels.is_empty(), raw.apart_from.is_empty()) {
                (Some(_), _, _) => "has both a count and a for-each; omit one of the two",
                (_, false, _) => "uses the agents of another role; move the labels there",
                (_, _, false) => "uses the agents of another role; move apart-from there",
                (None, true, true) => return self.role_name(other),
            };
            Err(self.source.error_at(name, format!("role '{}' {reason}", name.get_ref())))
        };
        match (&raw.for_each, &raw.for_each_pair) {
            (Some(_), Some(pair)) => {
                Err(self.source.error_at(pair, "for-each and for-each-pair exclude one another"))
            }
            (Some(other), None) => colocated_role(other).map(RoleInstanceSpec::ForEach),
            (None, Some(other)) => colocated_role(other).map(RoleInstanceSpec::ForEachPair),
            (None, None) => self.counted_instances(raw),
        }
    }

    fn counted_instances(&self, raw: &RawRole) -> Result<RoleInstanceSpec, FileContentError> {
        let count = raw.count.as_ref().map_or(Ok(1), |count| self.parse_count(count))?;
        let mut labels = BTreeMap::new();
        for (name, value) in &raw.labels {
            let text = value.get_ref();
            if name.len() > NAME_MAX || text.len() > NAME_MAX {
                let reason = format!("labels have up to {NAME_MAX} bytes");
                return Err(self.source.error_at(value, reason));
            }
            labels.insert(name.clone(), text.clone());
        }
        let apart = raw.apart_from.iter().map(|other| self.role_name(other));
        Ok(RoleInstanceSpec::Count { count, labels, apart_from: apart.collect::<Result<_, _>>()? })
    }

    fn parse_count(&self, value: &Spanned<Value>) -> Result<u32, FileContentError> {
        let form = format!("a count is a number from 1 to {COUNT_MAX}, or a difference as in 3-1");
        let wrong = || self.source.error_at(value, form.clone());
        let written = scalar_text(value.get_ref()).ok_or_else(wrong)?;
        let template = ValueTemplate::parse(&written, self.parameters);
        let template = template.map_err(|why| self.source.error_at(value, why))?;
        let text = template.as_text().ok_or_else(wrong)?;
        let count = parse_difference(text).ok_or_else(wrong)?;
        if (1..=i64::from(COUNT_MAX)).contains(&count) {
            return Ok(count.unsigned_abs() as u32);
        }
        let reason =
            format!("the count '{written}' evaluates to {count}; it is from 1 to {COUNT_MAX}");
        Err(self.source.error_at(value, reason))
    }

    fn parse_options(
        &self,
        raw: &RawRole,
        kind: RoleKind,
        line: usize,
    ) -> Result<Vec<RoleOption>, FileContentError> {
        let options = raw.options.iter().map(|(name, value)| self.parse_option(kind, name, value));
        let options: Vec<_> = options.collect::<Result<_, _>>()?;
        let is_set = |name| options.iter().any(|option: &RoleOption| option.spec.name == name);
        let mut missing = kind.options().iter().filter(|spec| spec.required);
        match missing.find(|spec| !is_set(spec.name)) {
            Some(spec) => {
                let (option, help) = (spec.name, spec.help);
                let reason = RoleOptionError::Missing { kind, option, help }.to_string();
                Err(FileContentError::new(Some(line), reason))
            }
            None => Ok(options),
        }
    }

    fn parse_option(
        &self,
        kind: RoleKind,
        name: &str,
        value: &Spanned<Value>,
    ) -> Result<RoleOption, FileContentError> {
        let wrong = |why: RoleOptionError| self.source.error_at(value, why.to_string());
        let Some(spec) = kind.option(name) else {
            return Err(wrong(RoleOptionError::Unknown { kind, option: name.to_owned() }));
        };
        let texts = scalar_texts(value.get_ref());
        let texts = texts.ok_or_else(|| {
            self.source.error_at(value, format!("'{name}' is a text, a number, or a list of such"))
        })?;
        if texts.is_empty() || (texts.len() > 1 && !spec.many) {
            let (option, many, count) = (spec.name, spec.many, texts.len());
            return Err(wrong(RoleOptionError::Values { kind, option, count, many }));
        }
        let mut values = Vec::new();
        for text in texts {
            let template = ValueTemplate::parse(&text, self.parameters);
            let template = template.map_err(|why| self.source.error_at(value, why))?;
            if let Some(Err(reason)) = template.as_text().map(|text| spec.value_type.parse(text)) {
                let shown = template.as_text().unwrap_or_default().to_owned();
                return Err(wrong(RoleOptionError::Value {
                    kind,
                    option: spec.name,
                    value: shown,
                    reason,
                }));
            }
            if template.can_yield_several() && !spec.many {
                let reason =
                    format!("'{name}' of {kind} takes one value; '{text}' may expand to several");
                return Err(self.source.error_at(value, reason));
            }
            values.push(template);
        }
        Ok(RoleOption { spec, line: self.source.line(value), values })
    }
}

/// Parses a number or the difference of two numbers, such as `8-1` for all nodes except one.
fn parse_difference(text: &str) -> Option<i64> {
    let number = |text: &str| text.parse::<u32>().ok().map(i64::from);
    match text.split_once('-') {
        None => number(text),
        Some((from, less)) => Some(number(from.trim())? - number(less.trim())?),
    }
}

/// Contents of a plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPlan {
    pub(super) schema: Spanned<String>,
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) duration_max: Option<Spanned<String>>,
    pub(super) max_offset: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    pub(super) role: Vec<RawRole>,
}

/// Role in a plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawRole {
    pub(super) name: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) count: Option<Spanned<Value>>,
    pub(super) for_each: Option<Spanned<String>>,
    pub(super) for_each_pair: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) apart_from: Vec<Spanned<String>>,
    pub(super) affects_verdict: Option<bool>,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Spanned<Value>>,
}

/// Text of the file, from which line numbers are derived.
#[derive(Clone, Copy)]
pub(super) struct PlanText<'a>(pub(super) &'a str);

impl PlanText<'_> {
    pub(super) fn read(self) -> Result<RawPlan, FileContentError> {
        toml::from_str(self.0).map_err(|error| FileContentError::from_toml_error(self.0, &error))
    }

    pub(super) fn line<T>(self, value: &Spanned<T>) -> usize {
        line_at_offset(self.0, value.span().start)
    }

    pub(super) fn error_at<T>(
        self,
        value: &Spanned<T>,
        reason: impl Into<String>,
    ) -> FileContentError {
        FileContentError::new(Some(self.line(value)), reason)
    }
}

/// Converts a string, a number or a Boolean to text; `None` for other types.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Converts a scalar value, or a list of scalar values, to texts; `None` for other types.
pub(super) fn scalar_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(list) => list.iter().map(scalar_text).collect(),
        one => Some(vec![scalar_text(one)?]),
    }
}
