//! Placement of the roles of a plan: assignment of instances to agents, and their options. Pure; it
//! uses only the published states of agents and sends no requests. It either places everything or
//! reports what is missing.

mod fill;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use self::search::{RoleDemand, search};
use crate::id::{AgentName, CampaignId, JobId, RoleName};
use crate::order::{AgentState, Job, Order, PROTOCOL};
use crate::plan::{Instances, Plan, Role};
use crate::role::RoleKind;

/// Largest number of names in a message.
const NAMES_MAX: usize = 8;

/// Agent that can receive jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCandidate {
    /// Agent name.
    pub name: AgentName,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Addresses at which others reach it, preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Kinds of roles that it runs.
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

/// Instance of a role and its placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedJob {
    /// Agent that runs it.
    pub agent: AgentName,
    /// Address of the agent.
    pub address: IpAddr,
    /// Job of the instance.
    pub job: Job,
    /// Colocated instances: of a pair the one on this agent and the other.
    pub colocation: Colocation,
}

/// Colocation of an instance with those that it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Colocation {
    /// No colocation: its role has a count.
    None,
    /// Colocated with this instance.
    With(JobId),
    /// Colocated with the first instance; the second is on another agent.
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
    /// True if an option is invalid once filled in, whichever agents there are.
    pub is_option: bool,
    /// True if there are no agents at all.
    pub is_empty: bool,
}

impl PlacementError {
    /// Formats the error with the name of the plan, which precedes the line number.
    #[must_use]
    pub fn of_file(&self, name: &str) -> String {
        format!("{name}:{}: {}", self.line, self.reason)
    }
}

impl Placement {
    /// Returns the orders, by agent.
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

/// Returns the smallest number of agents on which a plan could be placed if they were equal and had
/// all labels; the result of [`assign_roles`] for this number holds for more as well.
#[must_use]
pub fn agents_needed(plan: &Plan) -> usize {
    let count = |role: &Role| match role.instances {
        Instances::Count { count, .. } => count as usize,
        _ => 0,
    };
    let largest = plan.roles.iter().map(count).max().unwrap_or(0);
    let all: usize = plan.roles.iter().map(count).sum();
    let alike = |agents| {
        let wants: Vec<_> =
            counted(plan).map(|role| want(plan, role, (0..agents).collect())).collect();
        search(&wants, agents).is_some()
    };
    (largest..all).find(|agents| alike(*agents)).unwrap_or(all)
}

/// Places a plan on agents; their order is irrelevant.
///
/// # Errors
///
/// The first role that lacks agents, or an option that is invalid once filled in.
pub fn assign_roles(
    plan: &Plan,
    candidates: &[AgentCandidate],
) -> Result<Placement, PlacementError> {
    let mut agents: Vec<&AgentCandidate> =
        candidates.iter().filter(|one| !one.addresses.is_empty()).collect();
    agents.sort_by(|one, other| one.name.cmp(&other.name));
    let fit: Vec<_> =
        counted(plan).map(|role| fit(plan, role, &agents)).collect::<Result<_, _>>()?;
    let wants: Vec<_> = counted(plan).zip(fit).map(|(role, fit)| want(plan, role, fit)).collect();
    let Some(chosen) = search(&wants, agents.len()) else {
        return Err(not_apart(plan, &wants));
    };
    let of_role: BTreeMap<&RoleName, Vec<usize>> =
        counted(plan).map(|role| &role.name).zip(chosen).collect();
    fill::fill(plan, &agents, &of_role)
}

/// Returns the roles with a count, which have agents of their own.
fn counted(plan: &Plan) -> impl Iterator<Item = &Role> {
    plan.roles.iter().filter(|role| matches!(role.instances, Instances::Count { .. }))
}

fn want(plan: &Plan, role: &Role, fit: Vec<usize>) -> RoleDemand {
    let Instances::Count { count, apart_from, .. } = &role.instances else {
        return RoleDemand { count: 0, fit, apart: Vec::new() };
    };
    let index_of = |name: &RoleName| counted(plan).position(|role| role.name == *name);
    RoleDemand {
        count: *count as usize,
        fit,
        apart: apart_from.iter().filter_map(index_of).collect(),
    }
}

/// Returns every kind that runs on a role's agents: its own, and those of colocated roles.
fn kinds(plan: &Plan, role: &Role) -> BTreeSet<RoleKind> {
    let mut names = BTreeSet::from([&role.name]);
    // Each pass finds the roles that depend on one already found.
    for _ in &plan.roles {
        for other in &plan.roles {
            if let Instances::ForEach(of) | Instances::ForEachPair(of) = &other.instances
                && names.contains(of)
            {
                names.insert(&other.name);
            }
        }
    }
    let is_there = |other: &&Role| names.contains(&other.name);
    plan.roles.iter().filter(is_there).map(|role| role.kind).collect()
}

/// Returns the agents that are suitable for a role.
fn fit(plan: &Plan, role: &Role, agents: &[&AgentCandidate]) -> Result<Vec<usize>, PlacementError> {
    let Instances::Count { count, labels, .. } = &role.instances else { return Ok(Vec::new()) };
    let kinds = kinds(plan, role);
    let is_fit = |agent: &AgentCandidate| {
        labels.iter().all(|label| has(agent, label))
            && kinds.iter().all(|kind| agent.kinds.contains(kind))
    };
    let fit: Vec<_> = (0..agents.len()).filter(|at| is_fit(agents[*at])).collect();
    if fit.len() >= *count as usize {
        return Ok(fit);
    }
    let names: Vec<_> = fit.iter().map(|at| agents[*at].name.as_str()).collect();
    let reason = format!(
        "role '{}' needs {}{}, and there {}{}",
        role.name,
        agents_of(*count as usize),
        wanted(labels, &kinds),
        there_are(&names),
        unmet_requirements(labels, &kinds, agents),
    );
    let is_empty = agents.is_empty();
    Err(PlacementError { line: role.line, reason, is_option: false, is_empty })
}

fn has(agent: &AgentCandidate, (name, value): (&String, &String)) -> bool {
    agent.labels.get(name) == Some(value)
}

/// Formats the requirements of an agent.
fn wanted(labels: &BTreeMap<String, String>, kinds: &BTreeSet<RoleKind>) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let with = if labels.is_empty() { "" } else { " with " };
    format!("{with}{} that may run {}", labels.join(", "), kinds.join(" and "))
}

/// Formats the requirements that no agent meets, each preceded by a semicolon; empty if there are
/// no agents.
fn unmet_requirements(
    labels: &BTreeMap<String, String>,
    kinds: &BTreeSet<RoleKind>,
    agents: &[&AgentCandidate],
) -> String {
    if agents.is_empty() {
        return String::new();
    }
    let lacks = |label: &(&String, &String)| !agents.iter().any(|agent| has(agent, *label));
    let labels = labels.iter().filter(lacks);
    let labels =
        labels.map(|(name, value)| format!("; no usable agent has the label {name}={value}"));
    let runs = |kind: &&RoleKind| agents.iter().any(|agent| agent.kinds.contains(*kind));
    let kinds = kinds.iter().filter(|kind| !runs(kind));
    labels.chain(kinds.map(|kind| format!("; no usable agent's policy allows {kind}"))).collect()
}

fn agents_of(count: usize) -> String {
    if count == 1 { "an agent".to_owned() } else { format!("{count} agents") }
}

fn there_are(names: &[&str]) -> String {
    let listed = names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "is none".to_owned(),
        1 => format!("is one: {listed}"),
        many if many > NAMES_MAX => format!("are {many}: {listed} and others"),
        many => format!("are {many}: {listed}"),
    }
}

/// Returns the error for roles that each have enough agents, but not all together.
fn not_apart(plan: &Plan, wants: &[RoleDemand]) -> PlacementError {
    let roles: Vec<_> = counted(plan).collect();
    let at = wants.iter().position(|want| !want.apart.is_empty()).unwrap_or(0);
    let others: Vec<_> =
        wants[at].apart.iter().map(|other| format!("'{}'", roles[*other].name)).collect();
    let mut agents: BTreeSet<usize> = wants[at].fit.iter().copied().collect();
    agents.extend(wants[at].apart.iter().flat_map(|other| wants[*other].fit.iter().copied()));
    let needed: usize =
        wants[at].count + wants[at].apart.iter().map(|other| wants[*other].count).sum::<usize>();
    let reason = format!(
        "role '{}' is apart from {}, which takes {needed} agents, and the {} suitable ones are not \
         enough for each; start more agents, or change labels or apart-from",
        roles[at].name,
        others.join(" and "),
        agents.len(),
    );
    PlacementError { line: roles[at].line, reason, is_option: false, is_empty: false }
}

#[cfg(test)]
mod tests;
