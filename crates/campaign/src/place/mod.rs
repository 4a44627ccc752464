//! Where the roles of a plan go: which agent runs which instance, with which options. Pure; it
//! knows of agents what they say of themselves and asks nobody. It either places everything or says
//! what is missing.

mod fill;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use self::search::{Want, search};
use crate::id::{AgentName, CampaignId, JobId, RoleName};
use crate::order::{AgentState, Job, Order, PROTOCOL};
use crate::plan::{Instances, Plan, Role};
use crate::role::RoleKind;

/// Names that a message lists, at most.
const NAMES_TOLD: usize = 8;

/// An agent that could be given something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: AgentName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where others reach it, the best address first.
    pub addresses: Vec<IpAddr>,
    /// The kinds of roles that it runs.
    pub kinds: Vec<RoleKind>,
}

impl From<&AgentState> for Candidate {
    fn from(state: &AgentState) -> Self {
        Self {
            name: state.name.clone(),
            labels: state.labels.clone(),
            addresses: state.addresses.clone(),
            kinds: state.abilities.kinds.clone(),
        }
    }
}

/// Where all roles of a plan go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The instances of all roles, in the plan's order.
    pub jobs: Vec<Placed>,
}

/// An instance of a role and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Who runs it.
    pub agent: AgentName,
    /// Its address.
    pub address: IpAddr,
    /// What it runs.
    pub job: Job,
    /// Which instances it is for: of a pair the one that is on this agent and the other.
    pub beside: Beside,
}

/// Which instances an instance is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Beside {
    /// None: its role has a count.
    Nobody,
    /// This one, on the same agent.
    One(JobId),
    /// This one on the same agent, and the second elsewhere.
    Pair(JobId, JobId),
}

/// Why a plan cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PlaceFault {
    /// The line of the plan.
    pub line: usize,
    /// What is missing, and what to do, in one line.
    pub reason: String,
    /// Whether an option cannot be as the plan fills it in, whichever agents there are.
    pub is_option: bool,
    /// Whether there is no agent at all.
    pub is_empty: bool,
}

impl PlaceFault {
    /// The same of a plan that is called so, which stands before the line.
    #[must_use]
    pub fn of_file(&self, name: &str) -> String {
        format!("{name}:{}: {}", self.line, self.reason)
    }
}

impl Placement {
    /// The orders of the agents, by their names.
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

    /// The agents that have something to do.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<&AgentName> {
        self.jobs.iter().map(|placed| &placed.agent).collect()
    }
}

/// The least number of agents that a plan could be placed on, were they all alike and had all
/// labels; what [`place`] says of so many is what it says of more.
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

/// Places a plan on agents; their order does not matter.
///
/// # Errors
///
/// The first role that lacks agents, or an option that cannot be as it was filled in.
pub fn place(plan: &Plan, candidates: &[Candidate]) -> Result<Placement, PlaceFault> {
    let mut agents: Vec<&Candidate> =
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

/// The roles that have agents of their own.
fn counted(plan: &Plan) -> impl Iterator<Item = &Role> {
    plan.roles.iter().filter(|role| matches!(role.instances, Instances::Count { .. }))
}

fn want(plan: &Plan, role: &Role, fit: Vec<usize>) -> Want {
    let Instances::Count { count, apart_from, .. } = &role.instances else {
        return Want { count: 0, fit, apart: Vec::new() };
    };
    let place = |name: &RoleName| counted(plan).position(|role| role.name == *name);
    Want { count: *count as usize, fit, apart: apart_from.iter().filter_map(place).collect() }
}

/// Every kind that runs on a role's agents: its own, and those of the roles beside it.
fn kinds(plan: &Plan, role: &Role) -> BTreeSet<RoleKind> {
    let mut names = BTreeSet::from([&role.name]);
    // Each pass finds those that are for one that was found before.
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

/// The agents that are fit for a role.
fn fit(plan: &Plan, role: &Role, agents: &[&Candidate]) -> Result<Vec<usize>, PlaceFault> {
    let Instances::Count { count, labels, .. } = &role.instances else { return Ok(Vec::new()) };
    let kinds = kinds(plan, role);
    let is_fit = |agent: &Candidate| {
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
        nobody(labels, &kinds, agents),
    );
    let is_empty = agents.is_empty();
    Err(PlaceFault { line: role.line, reason, is_option: false, is_empty })
}

fn has(agent: &Candidate, (name, value): (&String, &String)) -> bool {
    agent.labels.get(name) == Some(value)
}

/// What an agent has to have.
fn wanted(labels: &BTreeMap<String, String>, kinds: &BTreeSet<RoleKind>) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let with = if labels.is_empty() { "" } else { " with " };
    format!("{with}{} that may run {}", labels.join(", "), kinds.join(" and "))
}

/// What no agent has, each thing with a semicolon before it; nothing where there are no agents.
fn nobody(
    labels: &BTreeMap<String, String>,
    kinds: &BTreeSet<RoleKind>,
    agents: &[&Candidate],
) -> String {
    if agents.is_empty() {
        return String::new();
    }
    let lacks = |label: &(&String, &String)| !agents.iter().any(|agent| has(agent, *label));
    let labels = labels.iter().filter(lacks);
    let labels =
        labels.map(|(name, value)| format!("; none that can be used has the label {name}={value}"));
    let runs = |kind: &&RoleKind| agents.iter().any(|agent| agent.kinds.contains(*kind));
    let kinds = kinds.iter().filter(|kind| !runs(kind));
    labels
        .chain(kinds.map(|kind| format!("; the policy of none that can be used allows {kind}")))
        .collect()
}

fn agents_of(count: usize) -> String {
    if count == 1 { "an agent".to_owned() } else { format!("{count} agents") }
}

fn there_are(names: &[&str]) -> String {
    let told = names.iter().take(NAMES_TOLD).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "is none".to_owned(),
        1 => format!("is one: {told}"),
        many if many > NAMES_TOLD => format!("are {many}: {told} and others"),
        many => format!("are {many}: {told}"),
    }
}

/// Each role has enough agents, but not all roles together.
fn not_apart(plan: &Plan, wants: &[Want]) -> PlaceFault {
    let roles: Vec<_> = counted(plan).collect();
    let at = wants.iter().position(|want| !want.apart.is_empty()).unwrap_or(0);
    let others: Vec<_> =
        wants[at].apart.iter().map(|other| format!("'{}'", roles[*other].name)).collect();
    let mut agents: BTreeSet<usize> = wants[at].fit.iter().copied().collect();
    agents.extend(wants[at].apart.iter().flat_map(|other| wants[*other].fit.iter().copied()));
    let needed: usize =
        wants[at].count + wants[at].apart.iter().map(|other| wants[*other].count).sum::<usize>();
    let reason = format!(
        "role '{}' is to be apart from {}, for which {needed} agents would do, and of the {} that \
         are fit not enough are left for each; start more agents, or change labels or apart-from",
        roles[at].name,
        others.join(" and "),
        agents.len(),
    );
    PlaceFault { line: roles[at].line, reason, is_option: false, is_empty: false }
}

#[cfg(test)]
mod tests;
