//! Making jobs of instances once their agents are chosen: which instances there are, and what their
//! options become.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{Beside, Candidate, PlaceFault, Placed, Placement};
use crate::id::{JobId, RoleName};
use crate::order::{Job, VALUES_MAX};
use crate::plan::{Filled, Instances, Plan, Reference, Role, Which};
use crate::role::Given;

/// The option that says how long a job measures, or each part of it.
const TIME: &str = "time";

/// An instance and the agent that runs it.
#[derive(Clone, Debug)]
struct Instance {
    agent: usize,
    beside: Beside,
    /// Of a pair, the agent of the other.
    other: Option<usize>,
}

type Instanced<'a> = BTreeMap<&'a RoleName, Vec<Instance>>;

struct Filler<'a> {
    plan: &'a Plan,
    agents: &'a [&'a Candidate],
    instances: &'a Instanced<'a>,
}

pub(super) fn fill(
    plan: &Plan,
    agents: &[&Candidate],
    of_role: &BTreeMap<&RoleName, Vec<usize>>,
) -> Result<Placement, PlaceFault> {
    let mut instances = Instanced::new();
    // Each pass finds the instances of roles that are for others whose instances are known.
    for _ in &plan.roles {
        for role in &plan.roles {
            if let Some(own) = of(role, of_role, &instances) {
                instances.insert(&role.name, own);
            }
        }
    }
    let filler = Filler { plan, agents, instances: &instances };
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

/// The instances of a role, where they are known by now.
fn of(
    role: &Role,
    of_role: &BTreeMap<&RoleName, Vec<usize>>,
    known: &Instanced<'_>,
) -> Option<Vec<Instance>> {
    match &role.instances {
        Instances::Count { .. } => {
            let one =
                |agent: &usize| Instance { agent: *agent, beside: Beside::Nobody, other: None };
            Some(of_role.get(&role.name)?.iter().map(one).collect())
        }
        Instances::ForEach(other) => {
            let one = |(index, of): (usize, &Instance)| {
                let beside = Beside::One(id(other, index));
                Instance { agent: of.agent, beside, other: None }
            };
            Some(known.get(other)?.iter().enumerate().map(one).collect())
        }
        Instances::ForEachPair(other) => {
            let all = known.get(other)?;
            let indices = (0..all.len()).flat_map(|from| (0..all.len()).map(move |to| (from, to)));
            let pair = |(from, to): (usize, usize)| Instance {
                agent: all[from].agent,
                beside: Beside::Pair(id(other, from), id(other, to)),
                other: Some(all[to].agent),
            };
            Some(indices.filter(|(from, to)| from != to).map(pair).collect())
        }
    }
}

impl Filler<'_> {
    fn placed(&self, role: &Role, number: u32, instance: &Instance) -> Result<Placed, PlaceFault> {
        let mut options = BTreeMap::new();
        for option in &role.options {
            let fill = |reference: &Reference| self.filled(role, number, instance, reference);
            let values = option.values.iter().flat_map(|template| template.fill(fill));
            let values: Vec<String> = values.take(VALUES_MAX).collect();
            // An instance whose share is nothing has no such option.
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
            PlaceFault { line, reason, is_option: true, is_empty: false }
        };
        let read = role.kind.read(&options).map_err(|fault| wrong(fault.option(), &fault))?;
        let read = read.iter().find(|(spec, _)| spec.name == TIME);
        if let Some((_, [Given::Time(time)])) = read.map(|(spec, given)| (spec, given.as_slice())) {
            self.fits(*time).map_err(|why| wrong(TIME, &why))?;
        }
        let candidate = self.agents[instance.agent];
        Ok(Placed {
            agent: candidate.name.clone(),
            address: self.address(instance.agent, instance.agent),
            job: Job { id, kind: role.kind, options, service: role.kind.is_service() },
            beside: instance.beside.clone(),
        })
    }

    /// Where one agent reaches another: at its best address of a kind that both have.
    fn address(&self, from: usize, to: usize) -> IpAddr {
        let addresses = &self.agents[to].addresses;
        let is_shared = |address: &&IpAddr| {
            self.agents[from].addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4())
        };
        let best = addresses.iter().find(is_shared).or(addresses.first());
        // Agents without an address are no candidates.
        best.copied().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// Whether what takes so long can be over when the plan ends it.
    fn fits(&self, time: Duration) -> Result<(), String> {
        let max = self.plan.duration_max;
        if time <= max {
            return Ok(());
        }
        let (time, max) = (time.as_secs_f64(), max.as_secs_f64());
        Err(format!(
            "'{TIME}' is {time} s, and the plan's duration-max of {max} s ends it before; make it \
             shorter, or raise duration-max"
        ))
    }

    fn filled(
        &self,
        role: &Role,
        number: u32,
        instance: &Instance,
        reference: &Reference,
    ) -> Filled {
        let at = |agent: usize| self.address(instance.agent, agent);
        let agents: Vec<usize> = match reference {
            Reference::Instance => return Filled::Text(number.to_string()),
            Reference::Own | Reference::From => vec![instance.agent],
            Reference::To => instance.other.into_iter().collect(),
            Reference::Role(name, which) => {
                let all = self.instances.get(name).map_or(&[][..], Vec::as_slice);
                let own = self.instances.get(&role.name).map_or(1, Vec::len);
                let falls_here = |(index, _): &(usize, &Instance)| match which {
                    Which::One(number) => *index + 1 == number.get() as usize,
                    Which::All => true,
                    Which::Share => index % own == number as usize - 1,
                };
                all.iter().enumerate().filter(falls_here).map(|(_, one)| one.agent).collect()
            }
        };
        Filled::Addresses(agents.into_iter().map(at).collect())
    }
}
