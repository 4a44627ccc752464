//! Placement of the roles of a plan: assignment of instances to agents, and resolution of their
//! options. Pure: the only input besides the plan is the published states of the agents. Either all
//! roles are placed, or the missing resource is reported.

mod fill;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use self::search::{RoleDemand, search};
use crate::id::{AgentName, CampaignId, JobId, RoleName};
use crate::order::{AgentState, Job, Order, PROTOCOL};
use crate::plan::{Plan, Role, RoleInstanceSpec};
use crate::role::RoleKind;

/// Largest number of agents named in a message.
const NAMES_MAX: usize = 8;

/// Agent that can receive jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCandidate {
    /// Agent name.
    pub name: AgentName,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Addresses at which the jobs of other agents reach its host, preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Kinds of roles that its policy allows.
    pub kinds: Vec<RoleKind>,
}

impl From<&AgentState> for AgentCandidate {
    fn from(state: &AgentState) -> Self {
        Self {
            name: state.name.clone(),
            labels: state.labels.clone(),
            addresses: state.addresses.clone(),
            kinds: state.abilities.kinds.clone(),
        }
    }
}

/// Placement of all roles of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Instances of all roles, in the plan's order.
    pub jobs: Vec<PlacedJob>,
}

/// Job of one instance of a role, with its placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedJob {
    /// Agent that runs it.
    pub agent: AgentName,
    /// Address of the agent.
    pub address: IpAddr,
    /// Job of the instance.
    pub job: Job,
    /// Colocation with instances of another role.
    pub colocation: ColocationTarget,
}

/// Colocation of an instance with the instances of its `for-each` or `for-each-pair` role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ColocationTarget {
    /// No colocation: the role has a count.
    None,
    /// The instance runs on the agent of this one (`for-each`).
    With(JobId),
    /// The instance runs on the agent of the first one of this pair (`for-each-pair`).
    Pair(JobId, JobId),
}

/// Reason why a plan cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PlacementError {
    /// Line of the plan.
    pub line: usize,
    /// Missing resource and remedy, in one line.
    pub reason: String,
    /// True if the cause is an invalid option, which other agents would not change.
    pub is_option: bool,
    /// True if there are no agents at all.
    pub is_empty: bool,
}

impl PlacementError {
    /// Formats the error with the name of the plan, which precedes the line number.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        format!("{name}:{}: {}", self.line, self.reason)
    }
}

impl Placement {
    /// Returns the orders of all agents with jobs, sorted by agent.
    #[must_use]
    pub fn orders(&self, campaign: &CampaignId, version: &str, plan: &Plan) -> Vec<Order> {
        let mut by_agent: BTreeMap<&AgentName, Vec<Job>> = BTreeMap::new();
        for placed in &self.jobs {
            by_agent.entry(&placed.agent).or_default().push(placed.job.clone());
        }
        let deadline_ns = u64::try_from(plan.duration_max.as_nanos()).unwrap_or(u64::MAX);
        let order = |(agent, jobs): (&AgentName, _)| Order {
            protocol: PROTOCOL,
            version: version.to_owned(),
            campaign: campaign.clone(),
            agent: agent.clone(),
            plan_hash: plan.hash.clone(),
            deadline_ns,
            jobs,
        };
        by_agent.into_iter().map(order).collect()
    }

    /// Returns the agents that have jobs.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<&AgentName> {
        self.jobs.iter().map(|placed| &placed.agent).collect()
    }
}

/// Returns the smallest number of agents on which a plan can be placed, if every agent has all
/// labels and allows all kinds of roles.
#[must_use]
pub fn agents_needed(plan: &Plan) -> usize {
    let count = |role: &Role| match role.instances {
        RoleInstanceSpec::Count { count, .. } => count as usize,
        _ => 0,
    };
    let largest = plan.roles.iter().map(count).max().unwrap_or(0);
    let all: usize = plan.roles.iter().map(count).sum();
    let is_enough = |agents| {
        let demands: Vec<_> = roles_with_count(plan)
            .map(|role| role_demand(plan, role, (0..agents).collect()))
            .collect();
        search(&demands, agents).is_some()
    };
    (largest..all).find(|agents| is_enough(*agents)).unwrap_or(all)
}

/// Places a plan on agents. The result does not depend on the order of the candidates.
///
/// # Errors
///
/// The first role that lacks suitable agents, roles that must be apart and lack different agents,
/// or an option that is invalid with its references resolved.
pub fn assign_roles(
    plan: &Plan,
    candidates: &[AgentCandidate],
) -> Result<Placement, PlacementError> {
    let mut agents: Vec<&AgentCandidate> =
        candidates.iter().filter(|one| !one.addresses.is_empty()).collect();
    agents.sort_by(|one, other| one.name.cmp(&other.name));
    let suitable: Vec<_> = roles_with_count(plan)
        .map(|role| suitable_agents(plan, role, &agents))
        .collect::<Result<_, _>>()?;
    let demands: Vec<_> = roles_with_count(plan)
        .zip(suitable)
        .map(|(role, fit)| role_demand(plan, role, fit))
        .collect();
    let Some(chosen) = search(&demands, agents.len()) else {
        return Err(separation_error(plan, &demands));
    };
    let agents_by_role: BTreeMap<&RoleName, Vec<usize>> =
        roles_with_count(plan).map(|role| &role.name).zip(chosen).collect();
    fill::create_jobs(plan, &agents, &agents_by_role)
}

/// Returns the roles with a count. The other roles run on the agents of these.
fn roles_with_count(plan: &Plan) -> impl Iterator<Item = &Role> {
    plan.roles.iter().filter(|role| matches!(role.instances, RoleInstanceSpec::Count { .. }))
}

fn role_demand(plan: &Plan, role: &Role, suitable: Vec<usize>) -> RoleDemand {
    let RoleInstanceSpec::Count { count, apart_from, .. } = &role.instances else {
        return RoleDemand { count: 0, suitable_agents: suitable, apart_from: Vec::new() };
    };
    let index_of = |name: &RoleName| roles_with_count(plan).position(|role| role.name == *name);
    RoleDemand {
        count: *count as usize,
        suitable_agents: suitable,
        apart_from: apart_from.iter().filter_map(index_of).collect(),
    }
}

/// Returns all kinds of roles that run on a role's agents: its own, and those of colocated roles.
fn required_kinds(plan: &Plan, role: &Role) -> BTreeSet<RoleKind> {
    let mut names = BTreeSet::from([&role.name]);
    // Each pass adds the roles whose `for-each` role was added by an earlier one.
    for _ in &plan.roles {
        for other in &plan.roles {
            if let RoleInstanceSpec::ForEach(base) | RoleInstanceSpec::ForEachPair(base) =
                &other.instances
                && names.contains(base)
            {
                names.insert(&other.name);
            }
        }
    }
    let is_included = |other: &&Role| names.contains(&other.name);
    plan.roles.iter().filter(is_included).map(|role| role.kind).collect()
}

/// Returns the indices of the agents that have a role's labels and allow its kinds; an error if
/// they are fewer than its count.
fn suitable_agents(
    plan: &Plan,
    role: &Role,
    agents: &[&AgentCandidate],
) -> Result<Vec<usize>, PlacementError> {
    let RoleInstanceSpec::Count { count, labels, .. } = &role.instances else {
        return Ok(Vec::new());
    };
    let kinds = required_kinds(plan, role);
    let is_fit = |agent: &AgentCandidate| {
        labels.iter().all(|label| has_label(agent, label))
            && kinds.iter().all(|kind| agent.kinds.contains(kind))
    };
    let suitable: Vec<_> = (0..agents.len()).filter(|index| is_fit(agents[*index])).collect();
    if suitable.len() >= *count as usize {
        return Ok(suitable);
    }
    let names: Vec<_> = suitable.iter().map(|index| agents[*index].name.as_str()).collect();
    let reason = format!(
        "role '{}' needs {}{}, and there {}{}",
        role.name,
        agent_count_text(*count as usize),
        requirements_text(labels, &kinds),
        candidates_text(&names),
        unmet_requirements(labels, &kinds, agents),
    );
    let is_empty = agents.is_empty();
    Err(PlacementError { line: role.line, reason, is_option: false, is_empty })
}

fn has_label(agent: &AgentCandidate, (name, value): (&String, &String)) -> bool {
    agent.labels.get(name) == Some(value)
}

/// Formats the requirements of an agent.
fn requirements_text(labels: &BTreeMap<String, String>, kinds: &BTreeSet<RoleKind>) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let with = if labels.is_empty() { "" } else { " with " };
    format!("{with}{} that may run {}", labels.join(", "), kinds.join(" and "))
}

/// Formats the labels and kinds of roles that no agent has, each preceded by a semicolon; empty if
/// there are no agents.
fn unmet_requirements(
    labels: &BTreeMap<String, String>,
    kinds: &BTreeSet<RoleKind>,
    agents: &[&AgentCandidate],
) -> String {
    if agents.is_empty() {
        return String::new();
    }
    let lacks = |label: &(&String, &String)| !agents.iter().any(|agent| has_label(agent, *label));
    let labels = labels.iter().filter(lacks);
    let labels =
        labels.map(|(name, value)| format!("; no usable agent has the label {name}={value}"));
    let runs = |kind: &&RoleKind| agents.iter().any(|agent| agent.kinds.contains(*kind));
    let kinds = kinds.iter().filter(|kind| !runs(kind));
    labels.chain(kinds.map(|kind| format!("; no usable agent's policy allows {kind}"))).collect()
}

fn agent_count_text(count: usize) -> String {
    if count == 1 { "an agent".to_owned() } else { format!("{count} agents") }
}

fn candidates_text(names: &[&str]) -> String {
    let listed = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "is none".to_owned(),
        1 => format!("is one: {listed}"),
        many if many > NAMES_MAX => format!("are {many}: {listed} and others"),
        many => format!("are {many}: {listed}"),
    }
}

/// Returns the error for roles with `apart-from` that each have enough suitable agents, but not
/// enough different ones together.
fn separation_error(plan: &Plan, demands: &[RoleDemand]) -> PlacementError {
    let roles: Vec<_> = roles_with_count(plan).collect();
    let index = demands.iter().position(|want| !want.apart_from.is_empty()).unwrap_or(0);
    let others: Vec<_> =
        demands[index].apart_from.iter().map(|other| format!("'{}'", roles[*other].name)).collect();
    let mut agents: BTreeSet<usize> = demands[index].suitable_agents.iter().copied().collect();
    agents.extend(
        demands[index]
            .apart_from
            .iter()
            .flat_map(|other| demands[*other].suitable_agents.iter().copied()),
    );
    let needed: usize = demands[index].count
        + demands[index].apart_from.iter().map(|other| demands[*other].count).sum::<usize>();
    let reason = format!(
        "role '{}' is apart from {}, which takes {needed} agents, and the {} suitable ones are not \
         enough for each; start more agents, or change labels or apart-from",
        roles[index].name,
        others.join(" and "),
        agents.len(),
    );
    PlacementError { line: roles[index].line, reason, is_option: false, is_empty: false }
}

#[cfg(test)]
mod tests;
