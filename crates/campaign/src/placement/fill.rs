//! Creation of jobs from instances once their agents are chosen: the instances that exist, and
//! their options filled in.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{AgentCandidate, Colocation, PlacedJob, Placement, PlacementError};
use crate::id::{JobId, RoleName};
use crate::order::{Job, VALUES_MAX};
use crate::plan::{InstanceSelector, Instances, Plan, Role, TemplateReference, TemplateValue};
use crate::role::ParsedValue;

/// Option for the duration of a job's measurement, or of each part of it.
const TIME: &str = "time";

/// Instance and the agent that runs it.
#[derive(Clone, Debug)]
struct Instance {
    agent: usize,
    colocation: Colocation,
    /// Agent of the other instance of a pair.
    other: Option<usize>,
}

type InstancesByRole<'a> = BTreeMap<&'a RoleName, Vec<Instance>>;

struct OptionFiller<'a> {
    plan: &'a Plan,
    agents: &'a [&'a AgentCandidate],
    instances: &'a InstancesByRole<'a>,
}

pub(super) fn fill(
    plan: &Plan,
    agents: &[&AgentCandidate],
    of_role: &BTreeMap<&RoleName, Vec<usize>>,
) -> Result<Placement, PlacementError> {
    let mut instances = InstancesByRole::new();
    // Each pass finds the instances of roles that depend on instances already known.
    for _ in &plan.roles {
        for role in &plan.roles {
            if let Some(own) = of(role, of_role, &instances) {
                instances.insert(&role.name, own);
            }
        }
    }
    let filler = OptionFiller { plan, agents, instances: &instances };
    let mut jobs = Vec::new();
    for role in &plan.roles {
        for (number, instance) in (1..).zip(instances.get(&role.name).into_iter().flatten()) {
            jobs.push(filler.placed(role, number, instance)?);
        }
    }
    Ok(Placement { jobs })
}

fn id(role: &RoleName, index: usize) -> JobId {
    let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
    JobId { role: role.clone(), instance: NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX) }
}

/// Returns the instances of a role if they are known by now.
fn of(
    role: &Role,
    of_role: &BTreeMap<&RoleName, Vec<usize>>,
    known: &InstancesByRole<'_>,
) -> Option<Vec<Instance>> {
    match &role.instances {
        Instances::Count { .. } => {
            let one = |agent: &usize| Instance {
                agent: *agent,
                colocation: Colocation::None,
                other: None,
            };
            Some(of_role.get(&role.name)?.iter().map(one).collect())
        }
        Instances::ForEach(other) => {
            let one = |(index, of): (usize, &Instance)| {
                let colocation = Colocation::With(id(other, index));
                Instance { agent: of.agent, colocation, other: None }
            };
            Some(known.get(other)?.iter().enumerate().map(one).collect())
        }
        Instances::ForEachPair(other) => {
            let all = known.get(other)?;
            let indices = (0..all.len()).flat_map(|from| (0..all.len()).map(move |to| (from, to)));
            let pair = |(from, to): (usize, usize)| Instance {
                agent: all[from].agent,
                colocation: Colocation::Pair(id(other, from), id(other, to)),
                other: Some(all[to].agent),
            };
            Some(indices.filter(|(from, to)| from != to).map(pair).collect())
        }
    }
}

impl OptionFiller<'_> {
    fn placed(
        &self,
        role: &Role,
        number: u32,
        instance: &Instance,
    ) -> Result<PlacedJob, PlacementError> {
        let mut options = BTreeMap::new();
        for option in &role.options {
            let fill =
                |reference: &TemplateReference| self.filled(role, number, instance, reference);
            let values = option.values.iter().flat_map(|template| template.fill(fill));
            let values: Vec<String> = values.take(VALUES_MAX).collect();
            // An instance with an empty share does not have the option.
            if !values.is_empty() {
                options.insert(option.spec.name.to_owned(), values);
            }
        }
        let line_of = |name: &str| {
            let option = role.options.iter().find(|option| option.spec.name == name);
            option.map_or(role.line, |option| option.line)
        };
        let id = id(&role.name, number as usize - 1);
        let wrong = |option: &str, why: &dyn Display| {
            let (line, reason) = (line_of(option), format!("{id}: {why}"));
            PlacementError { line, reason, is_option: true, is_empty: false }
        };
        let read = role.kind.read(&options).map_err(|fault| wrong(fault.option(), &fault))?;
        let read = read.iter().find(|(spec, _)| spec.name == TIME);
        if let Some((_, [ParsedValue::Time(time)])) =
            read.map(|(spec, parsed)| (spec, parsed.as_slice()))
        {
            self.fits(*time).map_err(|why| wrong(TIME, &why))?;
        }
        let candidate = self.agents[instance.agent];
        Ok(PlacedJob {
            agent: candidate.name.clone(),
            address: self.address(instance.agent, instance.agent),
            job: Job { id, kind: role.kind, options, service: role.kind.is_service() },
            colocation: instance.colocation.clone(),
        })
    }

    /// Returns the address by which one agent reaches another: its preferred one of a family that
    /// both have.
    fn address(&self, from: usize, to: usize) -> IpAddr {
        let addresses = &self.agents[to].addresses;
        let is_shared = |address: &&IpAddr| {
            self.agents[from].addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4())
        };
        let best = addresses.iter().find(is_shared).or(addresses.first());
        // Agents without an address are no candidates.
        best.copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// Checks that a measurement of this duration ends before the plan's limit.
    fn fits(&self, time: Duration) -> Result<(), String> {
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

    fn filled(
        &self,
        role: &Role,
        number: u32,
        instance: &Instance,
        reference: &TemplateReference,
    ) -> TemplateValue {
        let at = |agent: usize| self.address(instance.agent, agent);
        let agents: Vec<usize> = match reference {
            TemplateReference::Instance => return TemplateValue::Text(number.to_string()),
            TemplateReference::SelfAddress | TemplateReference::From => vec![instance.agent],
            TemplateReference::To => instance.other.into_iter().collect(),
            TemplateReference::Role(name, which) => {
                let all = self.instances.get(name).map_or(&[][..], Vec::as_slice);
                let own = self.instances.get(&role.name).map_or(1, Vec::len);
                let falls_here = |(index, _): &(usize, &Instance)| match which {
                    InstanceSelector::One(number) => *index + 1 == number.get() as usize,
                    InstanceSelector::All => true,
                    InstanceSelector::Share => index % own == number as usize - 1,
                };
                all.iter().enumerate().filter(falls_here).map(|(_, one)| one.agent).collect()
            }
        };
        TemplateValue::Addresses(agents.into_iter().map(at).collect())
    }
}
