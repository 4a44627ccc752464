//! Campaign in lab hosts on one machine: the same plan, orders and processes, without agents and a
//! broker. One host replaces each agent; they are joined by a router in the middle, and removed
//! with the run.

mod directory;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use horolog_lab::{HOSTS_MAX, Lab, LabConfig, LabError, LabHost};
use horolog_record::{CampaignResult, Host as HostFacts, rfc3339_now};
use horolog_sys::alarm_clock::SleepClock;
use horolog_sys::netlink::{Prefix, PrefixError};

use crate::id::{AgentName, CampaignId, JobId};
use crate::job::{BeginError, EventSink, ExecutionEnv, JobEvent, JobGroup, NotReady};
use crate::merge::{MergeInput, merge};
use crate::order::{AgentClockState, JobOutcome, Order, OrderEvent};
use crate::placement::{AgentCandidate, Placement, PlacementError, agents_needed, assign_roles};
use crate::plan::{Instances, Plan};
use crate::role::RoleKind;

/// Largest number of lab hosts that can replace agents: all of a lab except the router.
pub const AGENTS_MAX: usize = HOSTS_MAX - 1;
/// Network of all links in a lab (RFC 5737).
const LINKS: (Ipv4Addr, u8) = (Ipv4Addr::new(192, 0, 2, 0), 24);
/// IPv6 network of all links in a lab (RFC 3849).
const LINKS_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32);
/// Longest time until a service is ready.
const READY: Duration = Duration::from_secs(20);
/// Lead of the start time, so that all processes are created by then: a constant and a part for
/// each job.
const MARGIN_NS: i64 = 250_000_000;
const MARGIN_EACH_NS: i64 = 10_000_000;
/// Interval of checks for the end of the run.
const TICK: Duration = Duration::from_millis(50);

/// Reason why a campaign cannot run locally.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// More agents are needed than lab hosts are possible.
    #[error("the plan needs {0} agents, and one machine supports up to {AGENTS_MAX} lab hosts")]
    Agents(usize),
    /// The plan cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Lab hosts cannot be created.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Their addresses do not fit.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The router cannot be configured.
    #[error("cannot enable packet forwarding on a lab host: {0}")]
    Forwarding(io::Error),
    /// Files cannot be created, or no random number is available.
    #[error("cannot start a campaign: {0}")]
    System(io::Error),
    /// An order cannot be started.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// A service is not ready, and nothing was measured.
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

impl LocalError {
    /// Returns true if another plan would help, rather than another machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Agents(_) | Self::Placement(_) | Self::Begin(BeginError::Options { .. })
        )
    }
}

/// Options of a local run.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Binary of horolog.
    pub program: PathBuf,
    /// Command line, for the record.
    pub command: Vec<String>,
    /// Address family by which the hosts reach one another.
    pub addresses: LabAddresses,
}

/// Addresses of lab hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabAddresses {
    /// IPv4 addresses.
    V4,
    /// IPv6 addresses.
    V6,
}

/// Observer of a run.
pub trait CampaignObserver {
    /// Receives an event of an agent.
    fn event(&mut self, agent: &AgentName, event: &OrderEvent);

    /// Returns true if the run must end now, with the results so far.
    fn is_ending(&self) -> bool;
}

/// Plan placed on lab hosts.
#[derive(Clone, Debug)]
pub struct LocalPlacement {
    /// Plan without labels.
    pub plan: Plan,
    /// Placement of its roles.
    pub placement: Placement,
    /// Names of the hosts, in the order of their numbers from 1 on.
    pub hosts: Vec<AgentName>,
}

/// Places a plan on lab hosts. Labels apply to machines, and lab hosts have none: they are ignored.
///
/// # Errors
///
/// Too many hosts are needed, or an option is invalid once filled in.
pub fn assign_to_lab_hosts(
    plan: &Plan,
    addresses: LabAddresses,
) -> Result<LocalPlacement, LocalError> {
    let mut plan = plan.clone();
    for role in &mut plan.roles {
        if let Instances::Count { labels, .. } = &mut role.instances {
            labels.clear();
        }
    }
    let needed = agents_needed(&plan).max(1);
    if needed > AGENTS_MAX {
        return Err(LocalError::Agents(needed));
    }
    let candidates: Vec<_> =
        (1..=needed).filter_map(|number| candidate(number, addresses)).collect();
    let placement = assign_roles(&plan, &candidates)?;
    Ok(LocalPlacement {
        plan,
        placement,
        hosts: candidates.into_iter().map(|one| one.name).collect(),
    })
}

/// Returns the lab host of this number as a candidate; its address is assigned by the lab.
fn candidate(number: usize, addresses: LabAddresses) -> Option<AgentCandidate> {
    let address: IpAddr = match addresses {
        LabAddresses::V4 => {
            let (network, _) = LINKS;
            Ipv4Addr::from_bits(network.to_bits() + 4 * (number as u32 - 1) + 2).into()
        }
        LabAddresses::V6 => {
            let (network, _) = LINKS_V6;
            Ipv6Addr::from_bits(network.to_bits() + ((number as u128) << 64) + 2).into()
        }
    };
    Some(AgentCandidate {
        name: format!("host{number:02}").parse().ok()?,
        labels: BTreeMap::new(),
        addresses: vec![address],
        kinds: RoleKind::ALL.to_vec(),
    })
}

/// Runs a plan. Nothing of it remains, however it ends.
///
/// # Errors
///
/// The run could not be started: there is no result at all.
pub fn run(
    plan: &Plan,
    options: &LocalOptions,
    observer: &mut dyn CampaignObserver,
) -> Result<CampaignResult, LocalError> {
    let LocalPlacement { plan, placement, hosts } = assign_to_lab_hosts(plan, options.addresses)?;
    let started = rfc3339_now();
    let now_ms = (SleepClock::Realtime.now_ns() / 1_000_000).max(0).unsigned_abs();
    let campaign = CampaignId::fresh(&plan.name, now_ms);
    let campaign = campaign.map_err(|error| LocalError::System(io::Error::other(error)))?;
    let lab = lab(hosts.len(), options.addresses)?;
    let made = directory::make(&std::env::temp_dir(), &campaign);
    let (directory, _goes) = made.map_err(LocalError::System)?;
    let orders = placement.orders(&campaign, env!("CARGO_PKG_VERSION"), &plan);
    let (to, events) = mpsc::channel();
    let to = Arc::new(Mutex::new(to));
    let mut crews = Vec::new();
    for order in &orders {
        // Always found, since the plan was placed on these hosts.
        let number = hosts.iter().position(|name| *name == order.agent).unwrap_or(0) + 1;
        let host = lab.host(number);
        let means = ExecutionEnv {
            program: options.program.clone(),
            directory: directory.clone(),
            host: Some(host.netns.clone()),
        };
        crews.push(JobGroup::begin(order, &means, Some(same_clock()), event_sink(order, &to))?);
    }
    drop(to);
    let mut running = RunningJobs { crews, events, outcomes: BTreeMap::new(), observer };
    let interrupted_before = running.start_services()?;
    let at_ns = (!interrupted_before).then(|| running.start(placement.jobs.len()));
    let interrupted = running.follow(&placement) || interrupted_before;
    Ok(merge(MergeInput {
        plan: &plan,
        placement: &placement,
        campaign: &campaign,
        started,
        command: options.command.clone(),
        host: HostFacts::read(),
        local: true,
        interrupted,
        at_ns,
        delivery: None,
        outcomes: running.outcomes.into_values().collect(),
        findings: Vec::new(),
    }))
}

/// Returns the clock state of all lab hosts: they share this machine's clock, by which the start
/// time is set.
fn same_clock() -> AgentClockState {
    AgentClockState { offset_ns: 0, error_ns: 0, source: "the same clock".to_owned() }
}

/// Creates a star whose central host forwards between the others.
fn lab(agents: usize, addresses: LabAddresses) -> Result<Lab, LocalError> {
    let ((v4, length_v4), (v6, length_v6)) = (LINKS, LINKS_V6);
    let links = [Prefix::new(v4.into(), length_v4)?, Prefix::new(v6.into(), length_v6)?];
    let config = LabConfig {
        hosts: agents + 1,
        ipv6: addresses == LabAddresses::V6,
        client_networks: links.to_vec(),
        ..LabConfig::default()
    };
    let lab = Lab::new(&config)?;
    let switch = match addresses {
        LabAddresses::V4 => "/proc/sys/net/ipv4/ip_forward",
        LabAddresses::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
    };
    lab.client().run(|| fs::write(switch, "1"))?.map_err(LocalError::Forwarding)?;
    let mut hosts = (1..).zip(&lab.hosts()[1..]);
    debug_assert!(hosts.all(|(number, host)| is_at(number, host, addresses)));
    Ok(lab)
}

fn is_at(number: usize, host: &LabHost, addresses: LabAddresses) -> bool {
    let own = match addresses {
        LabAddresses::V4 => Some(host.first_interface().ipv4.into()),
        LabAddresses::V6 => host.first_interface().ipv6.map(IpAddr::V6),
    };
    candidate(number, addresses).is_some_and(|agent| agent.addresses.first() == own.as_ref())
}

type AgentJobEvent = (AgentName, JobEvent);

fn event_sink(order: &Order, to: &Arc<Mutex<mpsc::Sender<AgentJobEvent>>>) -> EventSink {
    let (agent, to) = (order.agent.clone(), Arc::clone(to));
    Arc::new(move |event| {
        let to = to.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver is gone if the run could not be started.
        let _ = to.send((agent.clone(), event));
    })
}

struct RunningJobs<'a> {
    crews: Vec<JobGroup>,
    events: Receiver<AgentJobEvent>,
    outcomes: BTreeMap<JobId, JobOutcome>,
    observer: &'a mut dyn CampaignObserver,
}

impl RunningJobs<'_> {
    /// Starts all services. Returns true if the run must end already.
    fn start_services(&mut self) -> Result<bool, NotReady> {
        for at in 0..self.crews.len() {
            if self.observer.is_ending() {
                self.stop();
                return Ok(true);
            }
            self.crews[at].start_services(READY)?;
        }
        Ok(false)
    }

    /// Sets the start time and starts everything at it.
    fn start(&mut self, jobs: usize) -> i64 {
        let each = MARGIN_EACH_NS.saturating_mul(jobs as i64);
        let at_ns = SleepClock::Realtime.now_ns() + MARGIN_NS + each;
        self.crews.iter_mut().for_each(|group| group.start(at_ns));
        at_ns
    }

    fn stop(&mut self) {
        self.crews.iter_mut().for_each(JobGroup::stop);
    }

    /// Waits until all jobs have ended, then terminates the services and waits for them. Returns
    /// true if the run was interrupted.
    fn follow(&mut self, placement: &Placement) -> bool {
        let mut interrupted = false;
        let mut finishing = false;
        loop {
            let has = |job: &JobId| self.outcomes.contains_key(job);
            let mut jobs = placement.jobs.iter().map(|placed| &placed.job);
            if jobs.clone().all(|job| has(&job.id)) {
                return interrupted;
            }
            if !finishing && jobs.all(|job| job.service || has(&job.id)) {
                finishing = true;
                self.crews.iter().for_each(JobGroup::finish);
            }
            if !interrupted && self.observer.is_ending() {
                interrupted = true;
                self.stop();
            }
            match self.events.recv_timeout(TICK) {
                Ok((agent, JobEvent::OrderEvent(event))) => self.observer.event(&agent, &event),
                Ok((_, JobEvent::Outcome(outcome))) => {
                    self.outcomes.entry(outcome.job.clone()).or_insert(*outcome);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All have reported everything.
                Err(RecvTimeoutError::Disconnected) => return interrupted,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_plans;

    #[test]
    fn hosts_stand_for_agents_whatever_their_labels() {
        let text = "schema = \"horolog.plan/2\"\nname = \"p\"\n[[role]]\nname = \"t\"\n\
                    kind = \"host-timer\"\ncount = 3\nlabels = { site = \"a\" }\n";
        let plan = Plan::parse(text, &[]).unwrap();
        let here = assign_to_lab_hosts(&plan, LabAddresses::V4).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["192.0.2.2", "192.0.2.6", "192.0.2.10"]);
        let here = assign_to_lab_hosts(&plan, LabAddresses::V6).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["2001:db8:0:1::2", "2001:db8:0:2::2", "2001:db8:0:3::2"]);
        let many = text.replace("count = 3", "count = 65");
        let many = Plan::parse(&many, &[]).unwrap();
        let error = assign_to_lab_hosts(&many, LabAddresses::V4).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("needs 65 agents"), "{error}");
    }

    #[test]
    fn every_shipped_plan_can_be_placed_here() {
        for plan in builtin_plans::PLANS {
            let read = Plan::parse(plan.text, &[]).unwrap();
            assert_eq!(read.name, plan.name);
            assert!(!read.description.is_empty(), "{}", plan.name);
            assign_to_lab_hosts(&read, LabAddresses::V4).unwrap();
        }
    }
}
