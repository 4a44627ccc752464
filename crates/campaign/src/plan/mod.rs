//! A plan: the roles of a campaign, how many there are of each, and with which options. Pure: it is
//! read from text and says what is wrong with it by line. It neither knows agents nor runs
//! anything; [`crate::place`] brings the two together.
//!
//! The language is TOML. Values may refer to parameters (`{rate}`), which the person who runs the
//! plan can set, and to places (`{server}`, `{self}`), which are known when roles are placed.

mod check;
mod file;
mod read;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use template::{Filled, Reference, Template, Which};

use crate::fault::Fault;
use crate::id::RoleName;
use crate::role::{OptionSpec, RoleKind};

/// The schema's name and version.
pub const PLAN_SCHEMA: &str = "horolog.plan/1";
/// Bytes of a plan, at most.
pub const PLAN_BYTES_MAX: usize = 256 << 10;
/// Roles of a plan, at most.
pub const ROLES_MAX: usize = 64;
/// Instances of a role that is not for each pair, at most.
pub const COUNT_MAX: u32 = 1_024;
/// Instances of all roles, at most.
pub const INSTANCES_MAX: u64 = 16_384;
/// How long a job may take unless a plan says otherwise.
pub const DURATION_MAX: Duration = Duration::from_mins(10);
/// How far an agent's clock may be off unless a plan says otherwise.
pub const OFFSET_MAX: Duration = Duration::from_millis(1);

/// A plan that can be.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// What it is for; empty where it does not say.
    pub about: String,
    /// As it was written.
    pub text: String,
    /// What its text and parameters hash to, SHA-256 in hexadecimal.
    pub hash: String,
    /// How long each job may take from the instant on.
    pub duration_max: Duration,
    /// How far an agent's clock may be off.
    pub max_offset: Duration,
    /// Its parameters with the values that are in force.
    pub parameters: BTreeMap<String, String>,
    /// Its roles, in its order.
    pub roles: Vec<Role>,
}

/// A role of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Role {
    /// What it is called.
    pub name: RoleName,
    /// Where it stands in the plan.
    pub line: usize,
    /// What it does.
    pub kind: RoleKind,
    /// How many there are of it, and where.
    pub instances: Instances,
    /// Whether errors that its results tell of are the campaign's as well.
    pub judged: bool,
    pub(crate) options: Vec<RoleOption>,
}

/// An option of a role.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RoleOption {
    pub(crate) spec: &'static OptionSpec,
    pub(crate) line: usize,
    pub(crate) values: Vec<Template>,
}

/// How many instances of a role there are, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Instances {
    /// So many, each on an agent of its own.
    Count {
        /// How many.
        count: u32,
        /// Labels that an agent has to have, all of them.
        labels: BTreeMap<String, String>,
        /// Roles that are not to be on the same agents.
        apart_from: Vec<RoleName>,
    },
    /// One beside each instance of this role, on the same agent.
    ForEach(RoleName),
    /// One for each ordered pair of instances of this role, on the agent of the first.
    ForEachPair(RoleName),
}

impl Plan {
    /// Reads a plan; `settings` take the place of its parameters' values.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its line where it has one.
    pub fn parse(text: &str, settings: &[(String, String)]) -> Result<Self, Fault> {
        let plan = read::plan(text, settings)?;
        check::check(&plan)?;
        Ok(plan)
    }

    /// The role of this name.
    #[must_use]
    pub fn role(&self, name: &RoleName) -> Option<&Role> {
        self.roles.iter().find(|role| role.name == *name)
    }

    /// How many instances of a role there are; 0 where there is no such role.
    #[must_use]
    pub fn count(&self, name: &RoleName) -> u64 {
        // A chain is no longer than there are roles, unless it is a loop, which is refused.
        self.count_within(name, self.roles.len())
    }

    fn count_within(&self, name: &RoleName, steps: usize) -> u64 {
        let (Some(role), Some(rest)) = (self.role(name), steps.checked_sub(1)) else { return 0 };
        match &role.instances {
            Instances::Count { count, .. } => u64::from(*count),
            Instances::ForEach(other) => self.count_within(other, rest),
            Instances::ForEachPair(other) => {
                let count = self.count_within(other, rest);
                count * count.saturating_sub(1)
            }
        }
    }

    /// Instances of all roles.
    #[must_use]
    pub fn instances(&self) -> u64 {
        self.roles.iter().map(|role| self.count(&role.name)).sum()
    }
}

#[cfg(test)]
mod tests;
