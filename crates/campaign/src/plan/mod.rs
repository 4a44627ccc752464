//! Campaign plan: the roles of a campaign, their numbers of instances, and their options, parsed
//! from text with errors by line. Pure. Roles are assigned to agents by [`crate::placement`].
//!
//! The format is TOML. Values may refer to parameters (`{rate}`), which the user who runs the plan
//! can set, and to addresses (`{server}`, `{self}`), which are known once roles are placed.

mod check;
mod read;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use template::{InstanceSelector, ResolvedReference, TemplateReference, ValueTemplate};

use crate::file_error::FileContentError;
use crate::id::RoleName;
use crate::role::{RoleKind, RoleOptionSpec};

/// Name and version of the schema.
pub const PLAN_SCHEMA: &str = "horolog.plan/2";
/// Largest size of a plan, in bytes.
pub const PLAN_BYTES_MAX: usize = 256 << 10;
/// Largest number of roles in a plan.
pub const ROLES_MAX: usize = 64;
/// Largest `count` of a role.
pub const COUNT_MAX: u32 = 1_024;
/// Largest number of instances of all roles.
pub const INSTANCES_MAX: u64 = 16_384;
/// Default for the longest duration of a job.
pub const DURATION_MAX: Duration = Duration::from_mins(10);
/// Default for the largest clock offset of an agent.
pub const OFFSET_MAX: Duration = Duration::from_millis(1);

/// Plan that was parsed and checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Plan name.
    pub name: String,
    /// Purpose; empty if not stated.
    pub description: String,
    /// Original text.
    pub text: String,
    /// SHA-256 of the text and the effective parameters, in hexadecimal.
    pub hash: String,
    /// Longest duration of each job from the start time.
    pub duration_max: Duration,
    /// Largest clock offset of an agent.
    pub max_offset: Duration,
    /// Parameters with their effective values.
    pub parameters: BTreeMap<String, String>,
    /// Roles, in their order in the file.
    pub roles: Vec<Role>,
}

/// Role of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Role {
    /// Role name.
    pub name: RoleName,
    /// Line in the plan.
    pub line: usize,
    /// Kind of role.
    pub kind: RoleKind,
    /// Number and placement of its instances.
    pub instances: RoleInstanceSpec,
    /// True if errors and warnings in the results of the role become findings of the campaign.
    pub affects_verdict: bool,
    pub(crate) options: Vec<RoleOption>,
}

/// Option of a role in a plan, with its line and the templates of its values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RoleOption {
    pub(crate) spec: &'static RoleOptionSpec,
    pub(crate) line: usize,
    pub(crate) values: Vec<ValueTemplate>,
}

/// Number and placement of the instances of a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleInstanceSpec {
    /// This number of instances, each on an agent of its own.
    Count {
        /// Number of instances.
        count: u32,
        /// Labels that an agent must have, all of them.
        labels: BTreeMap<String, String>,
        /// Roles that must not share its agents.
        apart_from: Vec<RoleName>,
    },
    /// One instance for each instance of this role, on the same agent.
    ForEach(RoleName),
    /// One instance for each ordered pair of instances of this role, on the agent of the first.
    ForEachPair(RoleName),
}

impl Plan {
    /// Parses a plan; `settings` override the values of its parameters.
    ///
    /// # Errors
    ///
    /// The first error, with its line if it has one.
    pub fn parse(text: &str, settings: &[(String, String)]) -> Result<Self, FileContentError> {
        let plan = read::parse_plan(text, settings)?;
        check::check_consistency(&plan)?;
        Ok(plan)
    }

    /// Returns the role of this name; `None` if the plan has none.
    #[must_use]
    pub fn role(&self, name: &RoleName) -> Option<&Role> {
        self.roles.iter().find(|role| role.name == *name)
    }

    /// Returns the number of instances of a role; 0 if it does not exist.
    #[must_use]
    pub fn count(&self, name: &RoleName) -> u64 {
        // A `for-each` chain longer than the number of roles is circular, which is refused.
        self.count_within(name, self.roles.len())
    }

    fn count_within(&self, name: &RoleName, depth_max: usize) -> u64 {
        let (Some(role), Some(rest)) = (self.role(name), depth_max.checked_sub(1)) else {
            return 0;
        };
        match &role.instances {
            RoleInstanceSpec::Count { count, .. } => u64::from(*count),
            RoleInstanceSpec::ForEach(other) => self.count_within(other, rest),
            RoleInstanceSpec::ForEachPair(other) => {
                let count = self.count_within(other, rest);
                count * count.saturating_sub(1)
            }
        }
    }

    /// Returns the number of instances of all roles.
    #[must_use]
    pub fn instances(&self) -> u64 {
        self.roles.iter().map(|role| self.count(&role.name)).sum()
    }
}

#[cfg(test)]
mod tests;
