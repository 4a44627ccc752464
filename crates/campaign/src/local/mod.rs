//! Campaign in lab hosts on one machine: the same plan, orders and processes, without agents and
//! broker. One lab host replaces each agent; a central lab host forwards packets between them. The
//! lab is removed at the end of the run.

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
use horolog_record::{CampaignResult, Host as HostFacts, RunObserver, rfc3339_now};
use horolog_sys::alarm_clock::SleepClock;
use horolog_wire::prefix::{Prefix, PrefixError};

use crate::id::{AgentName, CampaignId, JobId};
use crate::job::{
    JobEvent, JobEventSink, JobExecutionEnvironment, JobGroup, OrderStartError, ServiceNotReady,
};
use crate::merge::{MergeInput, merge};
use crate::order::{AgentClockOffset, JobOutcome, Order, OrderEvent};
use crate::placement::{AgentCandidate, Placement, PlacementError, agents_needed, assign_roles};
use crate::plan::{Plan, RoleInstanceSpec};
use crate::role::RoleKind;

/// Largest number of lab hosts that can replace agents: all of a lab except the forwarding one.
pub const AGENTS_MAX: usize = HOSTS_MAX - 1;
/// Network of all links in a lab (RFC 5737).
const LINK_NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(192, 0, 2, 0), 24);
/// IPv6 network of all links in a lab (RFC 3849).
const LINK_NETWORK_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32);
/// Longest time until a service is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Constant part of the lead of the start time, in ns, in which all processes are created;
/// [`LEAD_PER_JOB_NS`] is added for each job.
const LEAD_NS: i64 = 250_000_000;
const LEAD_PER_JOB_NS: i64 = 10_000_000;
/// Interval of checks for the end of the run.
const TICK: Duration = Duration::from_millis(50);

/// Reason why a campaign cannot run locally.
#[derive(Debug, thiserror::Error)]
pub enum LocalCampaignError {
    /// The plan needs more agents than the [`AGENTS_MAX`] possible lab hosts.
    #[error("the plan needs {0} agents, and one machine supports up to {AGENTS_MAX} lab hosts")]
    Agents(usize),
    /// The plan cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Lab hosts cannot be created.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The networks of the lab's links are invalid.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Forwarding cannot be enabled on the central lab host.
    #[error("cannot enable packet forwarding on a lab host: {0}")]
    Forwarding(io::Error),
    /// Files cannot be created, or no random number is available.
    #[error("cannot start a campaign: {0}")]
    System(io::Error),
    /// An order cannot be started.
    #[error(transparent)]
    Begin(#[from] OrderStartError),
    /// A service is not ready, and nothing was measured.
    #[error(transparent)]
    NotReady(#[from] ServiceNotReady),
}

impl LocalCampaignError {
    /// Returns true if the error is in the plan and not caused by the machine.
    #[must_use]
    pub const fn is_usage_error(&self) -> bool {
        matches!(
            self,
            Self::Agents(_) | Self::Placement(_) | Self::Begin(OrderStartError::Options { .. })
        )
    }
}

/// Options of a local run.
#[derive(Clone, Debug)]
pub struct LocalCampaignOptions {
    /// Binary of horolog.
    pub program: PathBuf,
    /// Command line, as stated in the result.
    pub command: Vec<String>,
    /// Address family of the traffic between the lab hosts.
    pub addresses: LabAddressFamily,
}

/// Address family of the traffic between lab hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabAddressFamily {
    /// IPv4 addresses.
    V4,
    /// IPv6 addresses.
    V6,
}

/// Event of an agent for the observer of a campaign in lab hosts.
pub type AgentOrderEvent = (AgentName, OrderEvent);

/// Plan placed on lab hosts.
#[derive(Clone, Debug)]
pub struct PlanOnLabHosts {
    /// Plan without labels.
    pub plan: Plan,
    /// Placement of its roles.
    pub placement: Placement,
    /// Names of the hosts, in the order of their numbers from 1 on.
    pub hosts: Vec<AgentName>,
}

/// Places a plan on lab hosts. Labels in the plan are ignored, because lab hosts have none.
///
/// # Errors
///
/// The plan needs more than [`AGENTS_MAX`] agents, or cannot be placed.
pub fn assign_to_lab_hosts(
    plan: &Plan,
    addresses: LabAddressFamily,
) -> Result<PlanOnLabHosts, LocalCampaignError> {
    let mut plan = plan.clone();
    for role in &mut plan.roles {
        if let RoleInstanceSpec::Count { labels, .. } = &mut role.instances {
            labels.clear();
        }
    }
    let needed = agents_needed(&plan).max(1);
    if needed > AGENTS_MAX {
        return Err(LocalCampaignError::Agents(needed));
    }
    let candidates: Vec<_> =
        (1..=needed).filter_map(|number| candidate(number, addresses)).collect();
    let placement = assign_roles(&plan, &candidates)?;
    Ok(PlanOnLabHosts {
        plan,
        placement,
        hosts: candidates.into_iter().map(|candidate| candidate.name).collect(),
    })
}

/// Returns the lab host of this number as a candidate; its address is assigned by the lab.
fn candidate(number: usize, addresses: LabAddressFamily) -> Option<AgentCandidate> {
    let address: IpAddr = match addresses {
        LabAddressFamily::V4 => {
            let (network, _) = LINK_NETWORK;
            Ipv4Addr::from_bits(network.to_bits() + 4 * (number as u32 - 1) + 2).into()
        }
        LabAddressFamily::V6 => {
            let (network, _) = LINK_NETWORK_V6;
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

/// Runs a plan in lab hosts, which are removed on return.
///
/// # Errors
///
/// The run cannot be started; nothing was measured.
pub fn run(
    plan: &Plan,
    options: &LocalCampaignOptions,
    observer: &mut dyn RunObserver<(), AgentOrderEvent>,
) -> Result<CampaignResult, LocalCampaignError> {
    let PlanOnLabHosts { plan, placement, hosts } = assign_to_lab_hosts(plan, options.addresses)?;
    let started = rfc3339_now();
    let now_ms = (SleepClock::Realtime.now_ns() / 1_000_000).max(0).unsigned_abs();
    let campaign = CampaignId::generate(&plan.name, now_ms);
    let campaign = campaign.map_err(|error| LocalCampaignError::System(io::Error::other(error)))?;
    let lab = create_lab(hosts.len(), options.addresses)?;
    let made = directory::create_run_directory(&std::env::temp_dir(), &campaign);
    let (directory, _directory_guard) = made.map_err(LocalCampaignError::System)?;
    let orders = placement.orders(&campaign, env!("CARGO_PKG_VERSION"), &plan);
    let (event_sender, events) = mpsc::channel();
    let event_sender = Arc::new(Mutex::new(event_sender));
    let mut job_groups = Vec::new();
    for order in &orders {
        // Always found, because the plan was placed on these hosts.
        let number = hosts.iter().position(|name| *name == order.agent).unwrap_or(0) + 1;
        let host = lab.host(number);
        let environment = JobExecutionEnvironment {
            program: options.program.clone(),
            directory: directory.clone(),
            host: Some(host.netns.clone()),
        };
        job_groups.push(JobGroup::begin(
            order,
            &environment,
            Some(shared_clock_state()),
            event_sink(order, &event_sender),
        )?);
    }
    drop(event_sender);
    let mut running = RunningJobs { job_groups, events, outcomes: BTreeMap::new(), observer };
    let interrupted_before = running.start_services()?;
    let at_ns = (!interrupted_before).then(|| running.start(placement.jobs.len()));
    let interrupted = running.wait_until_done(&placement) || interrupted_before;
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
fn shared_clock_state() -> AgentClockOffset {
    AgentClockOffset { offset_ns: 0, error_ns: 0, source: "the same clock".to_owned() }
}

/// Creates a lab with a star topology, whose central host forwards packets between the others.
fn create_lab(agents: usize, addresses: LabAddressFamily) -> Result<Lab, LocalCampaignError> {
    let ((v4, length_v4), (v6, length_v6)) = (LINK_NETWORK, LINK_NETWORK_V6);
    let links = [Prefix::new(v4.into(), length_v4)?, Prefix::new(v6.into(), length_v6)?];
    let config = LabConfig {
        hosts: agents + 1,
        ipv6: addresses == LabAddressFamily::V6,
        client_networks: links.to_vec(),
        ..LabConfig::default()
    };
    let lab = Lab::new(&config)?;
    let switch = match addresses {
        LabAddressFamily::V4 => "/proc/sys/net/ipv4/ip_forward",
        LabAddressFamily::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
    };
    lab.client().run(|| fs::write(switch, "1"))?.map_err(LocalCampaignError::Forwarding)?;
    let mut hosts = (1..).zip(&lab.hosts()[1..]);
    debug_assert!(hosts.all(|(number, host)| has_expected_address(number, host, addresses)));
    Ok(lab)
}

fn has_expected_address(number: usize, host: &LabHost, addresses: LabAddressFamily) -> bool {
    let actual = match addresses {
        LabAddressFamily::V4 => Some(host.first_interface().ipv4.into()),
        LabAddressFamily::V6 => host.first_interface().ipv6.map(IpAddr::V6),
    };
    candidate(number, addresses).is_some_and(|agent| agent.addresses.first() == actual.as_ref())
}

type AgentJobEvent = (AgentName, JobEvent);

fn event_sink(
    order: &Order,
    event_sender: &Arc<Mutex<mpsc::Sender<AgentJobEvent>>>,
) -> JobEventSink {
    let (agent, event_sender) = (order.agent.clone(), Arc::clone(event_sender));
    Arc::new(move |event| {
        let event_sender = event_sender.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver is gone if the run could not be started.
        let _ = event_sender.send((agent.clone(), event));
    })
}

struct RunningJobs<'a> {
    job_groups: Vec<JobGroup>,
    events: Receiver<AgentJobEvent>,
    outcomes: BTreeMap<JobId, JobOutcome>,
    observer: &'a mut dyn RunObserver<(), AgentOrderEvent>,
}

impl RunningJobs<'_> {
    /// Starts all services. Returns true if the observer requested the end of the run meanwhile.
    fn start_services(&mut self) -> Result<bool, ServiceNotReady> {
        for index in 0..self.job_groups.len() {
            if self.observer.flow().is_break() {
                self.stop();
                return Ok(true);
            }
            self.job_groups[index].start_services(READY_TIMEOUT)?;
        }
        Ok(false)
    }

    /// Sets the start time, creates the processes that begin at it, and returns it: UTC, in ns
    /// since 1970.
    fn start(&mut self, jobs: usize) -> i64 {
        let jobs_lead_ns = LEAD_PER_JOB_NS.saturating_mul(jobs as i64);
        let at_ns = SleepClock::Realtime.now_ns() + LEAD_NS + jobs_lead_ns;
        self.job_groups.iter_mut().for_each(|group| group.start(at_ns));
        at_ns
    }

    fn stop(&mut self) {
        self.job_groups.iter_mut().for_each(JobGroup::stop);
    }

    /// Waits until all jobs have ended, then terminates the services and waits for them. Returns
    /// true if the run was interrupted.
    fn wait_until_done(&mut self, placement: &Placement) -> bool {
        let mut interrupted = false;
        let mut finishing = false;
        loop {
            let has_outcome = |job: &JobId| self.outcomes.contains_key(job);
            let mut jobs = placement.jobs.iter().map(|placed| &placed.job);
            if jobs.clone().all(|job| has_outcome(&job.id)) {
                return interrupted;
            }
            if !finishing && jobs.all(|job| job.service || has_outcome(&job.id)) {
                finishing = true;
                self.job_groups.iter().for_each(JobGroup::finish);
            }
            if !interrupted && self.observer.flow().is_break() {
                interrupted = true;
                self.stop();
            }
            match self.events.recv_timeout(TICK) {
                Ok((agent, JobEvent::OrderEvent(event))) => self.observer.event(&(agent, event)),
                Ok((_, JobEvent::Outcome(outcome))) => {
                    self.outcomes.entry(outcome.job.clone()).or_insert(*outcome);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All senders are gone, so all events have been received.
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
        let here = assign_to_lab_hosts(&plan, LabAddressFamily::V4).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["192.0.2.2", "192.0.2.6", "192.0.2.10"]);
        let here = assign_to_lab_hosts(&plan, LabAddressFamily::V6).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["2001:db8:0:1::2", "2001:db8:0:2::2", "2001:db8:0:3::2"]);
        let many = text.replace("count = 3", "count = 65");
        let many = Plan::parse(&many, &[]).unwrap();
        let error = assign_to_lab_hosts(&many, LabAddressFamily::V4).unwrap_err();
        assert!(error.is_usage_error() && error.to_string().contains("needs 65 agents"), "{error}");
    }

    #[test]
    fn every_shipped_plan_can_be_placed_here() {
        for plan in builtin_plans::PLANS {
            let read = Plan::parse(plan.text, &[]).unwrap();
            assert_eq!(read.name, plan.name);
            assert!(!read.description.is_empty(), "{}", plan.name);
            assign_to_lab_hosts(&read, LabAddressFamily::V4).unwrap();
        }
    }
}
