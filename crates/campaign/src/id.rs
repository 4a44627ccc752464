//! Names of campaigns, agents, roles and jobs, as used in network messages and file names. Each is
//! validated when it is created, so none can be a path, a NATS wildcard or several words.

use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::file_error::sanitised;

/// Largest length of a campaign identifier, in bytes.
pub const CAMPAIGN_ID_MAX: usize = 64;
/// Largest length of an agent name, in bytes.
pub const AGENT_NAME_MAX: usize = 63;
/// Largest length of a role name, in bytes.
pub const ROLE_NAME_MAX: usize = 32;
/// Length of the generated part of a campaign identifier, in bytes: hyphens, time, random number.
const GENERATED_SUFFIX_BYTES: usize = 25;

/// Text that is not a valid name of its kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdError {
    /// Invalid campaign identifier.
    #[error(
        "invalid campaign name '{0}': use up to {CAMPAIGN_ID_MAX} lower-case letters, digits and \
         '-', a letter or digit first"
    )]
    Campaign(String),
    /// Invalid agent name.
    #[error(
        "invalid agent name '{0}': use up to {AGENT_NAME_MAX} letters, digits, '-' and '_', a \
         letter or digit first"
    )]
    Agent(String),
    /// Invalid role name.
    #[error(
        "invalid role name '{0}': use up to {ROLE_NAME_MAX} lower-case letters, digits and '-', a \
         letter first"
    )]
    Role(String),
    /// Invalid job name.
    #[error(
        "invalid job name '{0}': use a role's name, a dot and a number of at least 1, as in \
             load.2"
    )]
    Job(String),
}

/// Largest number of characters shown of a refused text.
const SHOWN_MAX: usize = 80;

fn is_made_of(text: &str, max: usize, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= max && bytes.first().is_some_and(|byte| first(*byte)) && {
        bytes.iter().all(|byte| rest(*byte))
    }
}

const fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// Defines a type for a validated name, with conversions from and to text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $error:ident, $max:expr, $first:expr, $rest:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                if is_made_of(text, $max, $first, $rest) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError::$error(sanitised(text, SHOWN_MAX)))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// Identifier of one run of a plan.
    CampaignId, Campaign, CAMPAIGN_ID_MAX,
    |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), is_id_byte
}

name! {
    /// Name of an agent.
    AgentName, Agent, AGENT_NAME_MAX,
    |byte| byte.is_ascii_alphanumeric(),
    |byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

name! {
    /// Name of a role in a plan.
    RoleName, Role, ROLE_NAME_MAX, |byte| byte.is_ascii_lowercase(), is_id_byte
}

impl CampaignId {
    /// Returns a unique identifier: the plan name (truncated, only its lower-case letters, digits
    /// and hyphens), the time (UTC, in ms since 1970) and a random number, as in
    /// `ntp-saturation-1795468800000-9f31c2aa`.
    ///
    /// # Errors
    ///
    /// The system supplies no random bytes.
    pub fn generate(plan: &str, now_ms: u64) -> Result<Self, getrandom::Error> {
        let mut random = [0; 4];
        getrandom::fill(&mut random)?;
        let random = u32::from_be_bytes(random);
        let name: String = plan
            .bytes()
            .filter(|byte| is_id_byte(*byte))
            .skip_while(|byte| *byte == b'-')
            .take(CAMPAIGN_ID_MAX - GENERATED_SUFFIX_BYTES)
            .map(char::from)
            .collect();
        let name = if name.is_empty() { "plan" } else { &name };
        // Thirteen digits suffice until the year 2286; higher digits are dropped.
        Ok(Self(format!("{name}-{:013}-{random:08x}", now_ms % 10_000_000_000_000)))
    }
}

/// Identifier of one instance of a role within its campaign: `load.2`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId {
    /// Name of the role.
    pub role: RoleName,
    /// Number of the instance, from 1 on.
    pub instance: NonZeroU32,
}

impl Display for JobId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.role, self.instance)
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parts = text.split_once('.').and_then(|(role, instance)| {
            // `u32::from_str` would also accept '+1' and '01'; each job has only one notation.
            let is_all_digits = instance.bytes().all(|byte| byte.is_ascii_digit());
            let instance =
                instance.parse().ok().filter(|_| is_all_digits && !instance.starts_with('0'));
            Some(Self { role: role.parse().ok()?, instance: instance? })
        });
        parts.ok_or_else(|| IdError::Job(sanitised(text, SHOWN_MAX)))
    }
}

impl TryFrom<String> for JobId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_could_mean_more_are_refused() {
        let wrong = ["", "-a", "_a", "a.b", "a/b", "..", "a*", "a>", "a b", "ä", "a\n", "$SYS"];
        for text in wrong {
            assert!(text.parse::<CampaignId>().is_err(), "{text}");
            assert!(text.parse::<AgentName>().is_err(), "{text}");
            assert!(text.parse::<RoleName>().is_err(), "{text}");
        }
        assert!("N1_a-b".parse::<AgentName>().is_ok() && "N1".parse::<CampaignId>().is_err());
        assert!("1a".parse::<CampaignId>().is_ok() && "1a".parse::<RoleName>().is_err());
        let long = "a".repeat(CAMPAIGN_ID_MAX + 1);
        assert!(long.parse::<CampaignId>().is_err() && long[1..].parse::<CampaignId>().is_ok());
        let error = "a\nb".parse::<AgentName>().unwrap_err().to_string();
        assert!(error.starts_with("invalid agent name 'a?b': "), "{error}");
    }

    #[test]
    fn jobs_have_one_way_of_being_written() {
        let job: JobId = "load.12".parse().unwrap();
        assert_eq!((job.role.as_str(), job.instance.get()), ("load", 12));
        for text in ["load", "load.", "load.0", "load.01", "load.+1", "load.1.2", ".1", "l.-1"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }

    #[test]
    fn fresh_identifiers_are_valid_and_differ() {
        let long = "x".repeat(100);
        for plan in ["ntp-saturation", "", "-", "Grüße", &long] {
            let one = CampaignId::generate(plan, 1_795_468_800_000).unwrap();
            assert_eq!(one.as_str().parse(), Ok(one.clone()));
            assert_ne!(one, CampaignId::generate(plan, 1_795_468_800_000).unwrap());
        }
        let id = CampaignId::generate("udp-all-pairs", u64::MAX).unwrap();
        assert!(id.as_str().starts_with("udp-all-pairs-"), "{id}");
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_as_it_was(text in ".{0,70}") {
            if let Ok(id) = text.parse::<CampaignId>() {
                prop_assert_eq!(id.to_string(), text.clone());
            }
            if let Ok(job) = text.parse::<JobId>() {
                prop_assert_eq!(job.to_string(), text);
            }
        }

        #[test]
        fn jobs_round_trip(role in "[a-z][a-z0-9-]{0,31}", instance in 1_u32..) {
            let job: JobId = format!("{role}.{instance}").parse().unwrap();
            prop_assert_eq!(job.to_string().parse(), Ok(job.clone()));
            let json = serde_json::to_string(&job).unwrap();
            prop_assert_eq!(serde_json::from_str::<JobId>(&json).unwrap(), job);
        }
    }
}
