//! Reading a plan's file into roles and options. Whether roles fit one another is looked at behind
//! it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use horolog_time::text;
use sha2::{Digest, Sha256};
use toml::{Spanned, Value};

use super::file::{RawPlan, RawRole, Source, word, words};
use super::template::{RESERVED, Template};
use super::{
    COUNT_MAX, DURATION_MAX, Instances, OFFSET_MAX, PLAN_BYTES_MAX, PLAN_SCHEMA, Plan, ROLES_MAX,
    Role, RoleOption,
};
use crate::fault::Fault;
use crate::id::RoleName;
use crate::order::DEADLINE_NS_MAX;
use crate::role::{RoleFault, RoleKind};

/// Bytes of a plan's name, and of a label, at most.
const NAME_MAX: usize = 64;

type Parameters = BTreeMap<String, String>;

pub(super) fn plan(text: &str, settings: &[(String, String)]) -> Result<Plan, Fault> {
    if text.len() > PLAN_BYTES_MAX {
        let reason = format!("it has more than {PLAN_BYTES_MAX} bytes, which no plan needs");
        return Err(Fault::new(None, reason));
    }
    let source = Source(text);
    let raw = source.read()?;
    if raw.schema.get_ref() != PLAN_SCHEMA {
        let reason = format!("this version reads plans of the schema \"{PLAN_SCHEMA}\"");
        return Err(source.fault(&raw.schema, reason));
    }
    let name = raw.name.get_ref();
    if !is_name(name) {
        let reason = format!(
            "a plan's name has 1 to {NAME_MAX} small letters, digits and '-', a letter first"
        );
        return Err(source.fault(&raw.name, reason));
    }
    let parameters = parameters(source, &raw, settings)?;
    let duration_max = time(source, raw.duration_max.as_ref(), &parameters, DURATION_MAX)?;
    if duration_max > Duration::from_nanos(DEADLINE_NS_MAX) {
        return Err(Fault::new(None, "duration-max is at most 7d"));
    }
    if raw.role.len() > ROLES_MAX {
        let reason = format!("a plan has up to {ROLES_MAX} roles");
        return Err(source.fault(&raw.role[ROLES_MAX].name, reason));
    }
    let role = |raw: &RawRole| Reader { source, parameters: &parameters }.role(raw);
    Ok(Plan {
        name: name.clone(),
        about: raw.about.split_whitespace().collect::<Vec<_>>().join(" "),
        text: text.to_owned(),
        hash: hash(text, &parameters),
        duration_max,
        max_offset: time(source, raw.max_offset.as_ref(), &parameters, OFFSET_MAX)?,
        roles: raw.role.iter().map(role).collect::<Result<_, _>>()?,
        parameters,
    })
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(is_part)
}

/// The parameters with the values that are in force.
fn parameters(
    source: Source<'_>,
    raw: &RawPlan,
    settings: &[(String, String)],
) -> Result<Parameters, Fault> {
    let mut parameters = Parameters::new();
    for (name, value) in &raw.parameters {
        let wrong = |reason: String| Err(source.fault(value, reason));
        if !is_name(name) || RESERVED.contains(&&**name) {
            return wrong(format!(
                "'{name}' cannot name a parameter: use small letters and digits"
            ));
        }
        let Some(text) = word(value.get_ref()) else {
            return wrong(format!("the parameter '{name}' is a text or a number"));
        };
        if text.contains(['{', '}']) {
            return wrong(format!("the parameter '{name}' cannot refer to anything else"));
        }
        parameters.insert(name.clone(), text);
    }
    for (name, value) in settings {
        let known: Vec<_> = parameters.keys().cloned().collect();
        let Some(own) = parameters.get_mut(name) else {
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            let reason = format!("it has no parameter '{name}' to set; its parameters: {known}");
            return Err(Fault::new(None, reason));
        };
        if value.contains(['{', '}']) {
            let reason = format!("the parameter '{name}' cannot refer to anything else");
            return Err(Fault::new(None, reason));
        }
        own.clone_from(value);
    }
    Ok(parameters)
}

fn hash(text: &str, parameters: &Parameters) -> String {
    let mut hash = Sha256::new();
    hash.update(text);
    for (name, value) in parameters {
        // With zero bytes, which neither has, between them.
        hash.update(format!("\0{name}\0{value}"));
    }
    let mut shown = String::new();
    for byte in hash.finalize() {
        // Writing to memory does not fail.
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

fn time(
    source: Source<'_>,
    given: Option<&Spanned<String>>,
    parameters: &Parameters,
    usual: Duration,
) -> Result<Duration, Fault> {
    let Some(given) = given else { return Ok(usual) };
    let template = Template::parse(given.get_ref(), parameters);
    let template = template.map_err(|why| source.fault(given, why))?;
    let Some(text) = template.as_text() else {
        return Err(source.fault(given, "only parameters can be referred to here"));
    };
    text::long_duration(text).map_err(|why| source.fault(given, why))
}

struct Reader<'a> {
    source: Source<'a>,
    parameters: &'a Parameters,
}

impl Reader<'_> {
    fn role(&self, raw: &RawRole) -> Result<Role, Fault> {
        let name = self.role_name(&raw.name)?;
        if RESERVED.contains(&name.as_str()) || self.parameters.contains_key(name.as_str()) {
            let reason = format!("'{name}' is the name of something else; give the role another");
            return Err(self.source.fault(&raw.name, reason));
        }
        let kind: RoleKind =
            raw.kind.get_ref().parse().map_err(|why| self.source.fault(&raw.kind, why))?;
        let line = self.source.line(&raw.name);
        let instances = self.instances(raw)?;
        let judged = raw.judged.unwrap_or(true);
        Ok(Role { options: self.options(raw, kind, line)?, name, line, kind, instances, judged })
    }

    fn role_name(&self, text: &Spanned<String>) -> Result<RoleName, Fault> {
        text.get_ref().parse().map_err(|why: crate::IdError| {
            let why = why.to_string();
            self.source.fault(text, why)
        })
    }

    fn instances(&self, raw: &RawRole) -> Result<Instances, Fault> {
        let beside = |other: &Spanned<String>| {
            let name = &raw.name;
            let reason = match (&raw.count, raw.labels.is_empty(), raw.apart_from.is_empty()) {
                (Some(_), _, _) => "has both a count and another role to follow; leave one out",
                (_, false, _) => "has the agents of another role; give that one the labels",
                (_, _, false) => "has the agents of another role; give that one apart-from",
                (None, true, true) => return self.role_name(other),
            };
            Err(self.source.fault(name, format!("role '{}' {reason}", name.get_ref())))
        };
        match (&raw.for_each, &raw.for_each_pair) {
            (Some(_), Some(pair)) => {
                Err(self.source.fault(pair, "for-each and for-each-pair exclude one another"))
            }
            (Some(other), None) => beside(other).map(Instances::ForEach),
            (None, Some(other)) => beside(other).map(Instances::ForEachPair),
            (None, None) => self.counted(raw),
        }
    }

    fn counted(&self, raw: &RawRole) -> Result<Instances, Fault> {
        let count = raw.count.as_ref().map_or(Ok(1), |count| self.count(count))?;
        let mut labels = BTreeMap::new();
        for (name, value) in &raw.labels {
            let text = value.get_ref();
            if name.len() > NAME_MAX || text.len() > NAME_MAX {
                let reason = format!("labels have up to {NAME_MAX} bytes");
                return Err(self.source.fault(value, reason));
            }
            labels.insert(name.clone(), text.clone());
        }
        let apart = raw.apart_from.iter().map(|other| self.role_name(other));
        Ok(Instances::Count { count, labels, apart_from: apart.collect::<Result<_, _>>()? })
    }

    fn count(&self, given: &Spanned<Value>) -> Result<u32, Fault> {
        let form = format!("a count is a number from 1 to {COUNT_MAX}, or a difference as in 3-1");
        let wrong = || self.source.fault(given, form.clone());
        let written = word(given.get_ref()).ok_or_else(wrong)?;
        let template = Template::parse(&written, self.parameters);
        let template = template.map_err(|why| self.source.fault(given, why))?;
        let text = template.as_text().ok_or_else(wrong)?;
        let count = difference(text).ok_or_else(wrong)?;
        if (1..=i64::from(COUNT_MAX)).contains(&count) {
            return Ok(count.unsigned_abs() as u32);
        }
        let reason = format!("the count '{written}' comes to {count}; it is from 1 to {COUNT_MAX}");
        Err(self.source.fault(given, reason))
    }

    fn options(
        &self,
        raw: &RawRole,
        kind: RoleKind,
        line: usize,
    ) -> Result<Vec<RoleOption>, Fault> {
        let options = raw.options.iter().map(|(name, value)| self.option(kind, name, value));
        let options: Vec<_> = options.collect::<Result<_, _>>()?;
        let is_given = |name| options.iter().any(|option: &RoleOption| option.spec.name == name);
        let mut missing = kind.options().iter().filter(|spec| spec.required);
        match missing.find(|spec| !is_given(spec.name)) {
            Some(spec) => {
                let (option, says) = (spec.name, spec.says);
                let reason = RoleFault::Missing { kind, option, says }.to_string();
                Err(Fault::new(Some(line), reason))
            }
            None => Ok(options),
        }
    }

    fn option(
        &self,
        kind: RoleKind,
        name: &str,
        value: &Spanned<Value>,
    ) -> Result<RoleOption, Fault> {
        let wrong = |why: RoleFault| self.source.fault(value, why.to_string());
        let Some(spec) = kind.option(name) else {
            return Err(wrong(RoleFault::Unknown { kind, option: name.to_owned() }));
        };
        let given = words(value.get_ref());
        let given = given.ok_or_else(|| {
            self.source.fault(value, format!("'{name}' is a text, a number, or a list of such"))
        })?;
        if given.is_empty() || (given.len() > 1 && !spec.many) {
            let (option, many, count) = (spec.name, spec.many, given.len());
            return Err(wrong(RoleFault::Values { kind, option, count, many }));
        }
        let mut values = Vec::new();
        for text in given {
            let template = Template::parse(&text, self.parameters);
            let template = template.map_err(|why| self.source.fault(value, why))?;
            if let Some(Err(reason)) = template.as_text().map(|text| spec.value.read(text)) {
                let shown = template.as_text().unwrap_or_default().to_owned();
                return Err(wrong(RoleFault::Value {
                    kind,
                    option: spec.name,
                    value: shown,
                    reason,
                }));
            }
            if template.is_many() && !spec.many {
                let reason = format!("'{name}' of {kind} takes one value; '{text}' may be several");
                return Err(self.source.fault(value, reason));
            }
            values.push(template);
        }
        Ok(RoleOption { spec, line: self.source.line(value), values })
    }
}

/// A number, or one less another: all nodes but the first.
fn difference(text: &str) -> Option<i64> {
    let number = |text: &str| text.parse::<u32>().ok().map(i64::from);
    match text.split_once('-') {
        None => number(text),
        Some((from, less)) => Some(number(from.trim())? - number(less.trim())?),
    }
}
