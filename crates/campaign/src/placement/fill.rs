//! Creation of the jobs of a plan once the agents of roles with a count are chosen: derives the
//! instances of the other roles, and resolves the references in all options.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{AgentCandidate, ColocationTarget, PlacedJob, Placement, PlacementError};
use crate::id::{JobId, RoleName};
use crate::order::{Job, VALUES_MAX};
use crate::plan::{
    InstanceSelector, Plan, ResolvedReference, Role, RoleInstanceSpec, TemplateReference,
};
use crate::role::ParsedOptionValue;

/// Option for the duration of a measurement, or of each of its trials or rows.
const TIME: &str = "time";

/// Instance of a role, and the index of the agent that runs it.
#[derive(Clone, Debug)]
struct PlacedRoleInstance {
    agent: usize,
    colocation: ColocationTarget,
    /// Index of the agent of the other instance of a pair.
    far_agent: Option<usize>,
}

type InstancesByRole<'a> = BTreeMap<&'a RoleName, Vec<PlacedRoleInstance>>;

struct TemplateResolver<'a> {
    plan: &'a Plan,
    agents: &'a [&'a AgentCandidate],
    instances: &'a InstancesByRole<'a>,
}

pub(super) fn create_jobs(
    plan: &Plan,
    agents: &[&AgentCandidate],
    agents_by_role: &BTreeMap<&RoleName, Vec<usize>>,
) -> Result<Placement, PlacementError> {
    let mut instances = InstancesByRole::new();
    // Each pass adds the roles whose `for-each` role was added by an earlier one.
    for _ in &plan.roles {
        for role in &plan.roles {
            if let Some(own) = known_instances(role, agents_by_role, &instances) {
                instances.insert(&role.name, own);
            }
        }
    }
    let filler = TemplateResolver { plan, agents, instances: &instances };
    let mut jobs = Vec::new();
    for role in &plan.roles {
        for (number, instance) in (1..).zip(instances.get(&role.name).into_iter().flatten()) {
            jobs.push(filler.create_job(role, number, instance)?);
        }
    }
    Ok(Placement { jobs })
}

fn job_id(role: &RoleName, index: usize) -> JobId {
    let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
    JobId { role: role.clone(), instance: NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX) }
}

/// Returns the instances of a role; `None` if they depend on a role whose instances are not known
/// yet.
fn known_instances(
    role: &Role,
    agents_by_role: &BTreeMap<&RoleName, Vec<usize>>,
    known: &InstancesByRole<'_>,
) -> Option<Vec<PlacedRoleInstance>> {
    match &role.instances {
        RoleInstanceSpec::Count { .. } => {
            let one = |agent: &usize| PlacedRoleInstance {
                agent: *agent,
                colocation: ColocationTarget::None,
                far_agent: None,
            };
            Some(agents_by_role.get(&role.name)?.iter().map(one).collect())
        }
        RoleInstanceSpec::ForEach(other) => {
            let one = |(index, base): (usize, &PlacedRoleInstance)| {
                let colocation = ColocationTarget::With(job_id(other, index));
                PlacedRoleInstance { agent: base.agent, colocation, far_agent: None }
            };
            Some(known.get(other)?.iter().enumerate().map(one).collect())
        }
        RoleInstanceSpec::ForEachPair(other) => {
            let all = known.get(other)?;
            let indices = (0..all.len()).flat_map(|from| (0..all.len()).map(move |to| (from, to)));
            let pair = |(from, to): (usize, usize)| PlacedRoleInstance {
                agent: all[from].agent,
                colocation: ColocationTarget::Pair(job_id(other, from), job_id(other, to)),
                far_agent: Some(all[to].agent),
            };
            Some(indices.filter(|(from, to)| from != to).map(pair).collect())
        }
    }
}

impl TemplateResolver<'_> {
    fn create_job(
        &self,
        role: &Role,
        number: u32,
        instance: &PlacedRoleInstance,
    ) -> Result<PlacedJob, PlacementError> {
        let mut options = BTreeMap::new();
        for option in &role.options {
            let fill = |reference: &TemplateReference| {
                self.resolve_reference(role, number, instance, reference)
            };
            let values = option.values.iter().flat_map(|template| template.fill(fill));
            let values: Vec<String> = values.take(VALUES_MAX).collect();
            // An option whose references yield no addresses is omitted.
            if !values.is_empty() {
                options.insert(option.spec.name.to_owned(), values);
            }
        }
        let line_of = |name: &str| {
            let option = role.options.iter().find(|option| option.spec.name == name);
            option.map_or(role.line, |option| option.line)
        };
        let id = job_id(&role.name, number as usize - 1);
        let wrong = |option: &str, why: &dyn Display| {
            let (line, reason) = (line_of(option), format!("{id}: {why}"));
            PlacementError { line, reason, is_option: true, is_empty: false }
        };
        let read =
            role.kind.parse_options(&options).map_err(|fault| wrong(fault.option(), &fault))?;
        let read = read.iter().find(|(spec, _)| spec.name == TIME);
        if let Some((_, [ParsedOptionValue::Time(time)])) =
            read.map(|(spec, parsed)| (spec, parsed.as_slice()))
        {
            self.check_duration(*time).map_err(|why| wrong(TIME, &why))?;
        }
        let candidate = self.agents[instance.agent];
        Ok(PlacedJob {
            agent: candidate.name.clone(),
            address: self.address(instance.agent, instance.agent),
            job: Job { id, kind: role.kind, options, service: role.kind.is_service() },
            colocation: instance.colocation.clone(),
        })
    }

    /// Returns the address at which agent `from` reaches agent `to`: the preferred address of `to`
    /// in an address family that `from` has as well, or its first address if they share no family.
    fn address(&self, from: usize, to: usize) -> IpAddr {
        let addresses = &self.agents[to].addresses;
        let is_shared = |address: &&IpAddr| {
            self.agents[from].addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4())
        };
        let best = addresses.iter().find(is_shared).or(addresses.first());
        // Agents without an address are excluded from the candidates.
        best.copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// Checks that the duration of a measurement does not exceed the plan's `duration-max`.
    fn check_duration(&self, time: Duration) -> Result<(), String> {
        let max = self.plan.duration_max;
        if time <= max {
            return Ok(());
        }
        let (time, max) = (time.as_secs_f64(), max.as_secs_f64());
        Err(format!(
            "'{TIME}' is {time} s, which exceeds the plan's duration-max of {max} s; shorten it, \
             or raise duration-max"
        ))
    }

    fn resolve_reference(
        &self,
        role: &Role,
        number: u32,
        instance: &PlacedRoleInstance,
        reference: &TemplateReference,
    ) -> ResolvedReference {
        let address_of = |agent: usize| self.address(instance.agent, agent);
        let agents: Vec<usize> = match reference {
            TemplateReference::Instance => return ResolvedReference::Text(number.to_string()),
            TemplateReference::SelfAddress | TemplateReference::From => vec![instance.agent],
            TemplateReference::To => instance.far_agent.into_iter().collect(),
            TemplateReference::Role(name, which) => {
                let all = self.instances.get(name).map_or(&[][..], Vec::as_slice);
                let own = self.instances.get(&role.name).map_or(1, Vec::len);
                let is_selected = |(index, _): &(usize, &PlacedRoleInstance)| match which {
                    InstanceSelector::One(number) => *index + 1 == number.get() as usize,
                    InstanceSelector::All => true,
                    InstanceSelector::Share => index % own == number as usize - 1,
                };
                all.iter().enumerate().filter(is_selected).map(|(_, one)| one.agent).collect()
            }
        };
        ResolvedReference::Addresses(agents.into_iter().map(address_of).collect())
    }
}
