//! Templates of option values in a plan: text with references in braces. Parameters (`{rate}`) are
//! substituted when the plan is parsed, other references when its roles are placed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::id::RoleName;
use crate::order::SHOWN_MAX;

/// Names of references that are neither parameters nor roles.
pub(super) const RESERVED: [&str; 4] = ["self", "instance", "from", "to"];

/// Template of a value: text and references that are resolved at placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ValueTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TemplatePiece {
    Text(String),
    Reference(TemplateReference),
}

/// Reference in braces, other than a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TemplateReference {
    /// `{self}`: the address of the agent that runs this instance.
    SelfAddress,
    /// `{instance}`: number of this instance, from 1 on.
    Instance,
    /// `{from}`: address of the instance of a pair that runs this job.
    From,
    /// `{to}`: address of the other instance of a pair.
    To,
    /// `{role}`, `{role.2}`, `{role.all}`, `{role.share}`: addresses of a role's instances;
    /// `{role}` is the same as `{role.1}`.
    Role(RoleName, InstanceSelector),
}

/// Selector of instances of a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InstanceSelector {
    /// Instance of this number.
    One(NonZeroU32),
    /// All instances, which yields several values.
    All,
    /// Share of the referring instance, if the instances are distributed round-robin over all
    /// instances of the referring role; may yield several values or none.
    Share,
}

/// Resolved value of a reference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResolvedReference {
    /// Text.
    Text(String),
    /// Addresses of the referenced instances.
    Addresses(Vec<IpAddr>),
}

impl ValueTemplate {
    /// Parses a template and substitutes its parameters.
    pub(super) fn parse(text: &str, parameters: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut plain = String::new();
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let unpaired = || format!("'{text}' has an unmatched brace");
            let inside = rest[at..].strip_prefix('{').ok_or_else(unpaired)?;
            let (name, remainder) = inside.split_once('}').ok_or_else(unpaired)?;
            if let Some(value) = parameters.get(name) {
                plain.push_str(value);
            } else {
                let reference = TemplateReference::parse(name)?;
                push_text(&mut pieces, &mut plain);
                pieces.push(TemplatePiece::Reference(reference));
            }
            rest = remainder;
        }
        plain.push_str(rest);
        if pieces.is_empty() {
            return Ok(Self { pieces: vec![TemplatePiece::Text(plain)] });
        }
        push_text(&mut pieces, &mut plain);
        Ok(Self { pieces })
    }

    /// Returns the text if no references remain.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the references.
    pub(crate) fn references(&self) -> impl Iterator<Item = &TemplateReference> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Reference(reference) => Some(reference),
        })
    }

    /// Returns true if the template can yield several values.
    pub(super) fn can_yield_several(&self) -> bool {
        self.references().any(TemplateReference::can_yield_several)
    }

    /// Returns the values with all references resolved: one for each combination of addresses.
    pub(crate) fn fill(
        &self,
        resolve: impl Fn(&TemplateReference) -> ResolvedReference,
    ) -> Vec<String> {
        let is_only_piece = self.pieces.len() == 1;
        // An IPv6 address next to other text, such as a port, needs brackets.
        let shown = |address: &IpAddr| match address {
            IpAddr::V6(v6) if !is_only_piece => format!("[{v6}]"),
            _ => address.to_string(),
        };
        let mut values = vec![String::new()];
        for piece in &self.pieces {
            let variants = match piece {
                TemplatePiece::Text(text) => vec![text.clone()],
                TemplatePiece::Reference(reference) => match resolve(reference) {
                    ResolvedReference::Text(text) => vec![text],
                    ResolvedReference::Addresses(all) => all.iter().map(shown).collect(),
                },
            };
            let with_each = |value: &String| {
                let value = value.clone();
                variants.iter().map(move |variant| format!("{value}{variant}")).collect::<Vec<_>>()
            };
            values = values.iter().flat_map(with_each).collect();
        }
        values
    }
}

fn push_text(pieces: &mut Vec<TemplatePiece>, plain: &mut String) {
    if !plain.is_empty() {
        pieces.push(TemplatePiece::Text(std::mem::take(plain)));
    }
}

impl TemplateReference {
    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "self" => return Ok(Self::SelfAddress),
            "instance" => return Ok(Self::Instance),
            "from" => return Ok(Self::From),
            "to" => return Ok(Self::To),
            _ => {}
        }
        let (role, which) = name.split_once('.').unwrap_or((name, "1"));
        let unknown = |_| {
            let name: String = name.chars().take(SHOWN_MAX).collect();
            format!("'{{{name}}}' is neither a parameter nor a reference")
        };
        let role = role.parse().map_err(unknown)?;
        let which = match which {
            "all" => InstanceSelector::All,
            "share" => InstanceSelector::Share,
            number => InstanceSelector::One(number.parse().map_err(|_| {
                format!(
                    "'{{{role}.…}}' takes a number of at least 1, 'all' or 'share' after the \
                         dot"
                )
            })?),
        };
        Ok(Self::Role(role, which))
    }

    const fn can_yield_several(&self) -> bool {
        matches!(self, Self::Role(_, InstanceSelector::All | InstanceSelector::Share))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<ValueTemplate, String> {
        let rate = ("rate".to_owned(), "5k".to_owned());
        ValueTemplate::parse(text, &BTreeMap::from([rate]))
    }

    fn fill(text: &str, addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        parse(text).unwrap().fill(|reference| match reference {
            TemplateReference::Instance => ResolvedReference::Text("3".into()),
            _ => ResolvedReference::Addresses(addresses.clone()),
        })
    }

    #[test]
    fn parameters_are_filled_in_at_once() {
        assert_eq!(parse("1k-{rate}").unwrap().as_text(), Some("1k-5k"));
        assert_eq!(parse("").unwrap().as_text(), Some(""));
        assert_eq!(parse("{self}").unwrap().as_text(), None);
    }

    #[test]
    fn references_are_filled_in_later() {
        assert_eq!(fill("{server}:123", &["192.0.2.1"]), ["192.0.2.1:123"]);
        assert_eq!(fill("{server}", &["2001:db8::1"]), ["2001:db8::1"]);
        assert_eq!(fill("{self}:5{instance}", &["2001:db8::1"]), ["[2001:db8::1]:53"]);
        assert_eq!(fill("{leaf.all}:9", &["192.0.2.1", "::1"]), ["192.0.2.1:9", "[::1]:9"]);
        assert!(fill("{leaf.share}:9", &[]).is_empty());
        assert!(
            parse("{leaf.share}").unwrap().can_yield_several()
                && !parse("{leaf.2}").unwrap().can_yield_several()
        );
    }

    #[test]
    fn invalid_references_are_reported() {
        for (text, reason) in [
            ("{rate", "an unmatched brace"),
            ("rate}", "an unmatched brace"),
            ("{}", "neither a parameter nor a reference"),
            ("{Rate}", "neither a parameter nor a reference"),
            ("{a b}", "neither a parameter nor a reference"),
            ("{server.0}", "takes a number of at least 1"),
            ("{server.every}", "takes a number of at least 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn text_without_braces_is_itself(text in "[^{}]{0,40}") {
            let template = parse(&text).unwrap();
            prop_assert_eq!(template.as_text(), Some(&*text));
            prop_assert_eq!(template.fill(|_| ResolvedReference::Text(String::new())), vec![text]);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[{}a-z.0-9:]{0,20}|\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
