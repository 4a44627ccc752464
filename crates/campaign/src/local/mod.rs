//! A campaign in private hosts of one machine: the same plan, the same orders and the same
//! processes, without agents and a broker between. A host stands for each agent; they are joined by
//! a router in their middle, and go with the run.

mod directory;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use horolog_lab::{HOSTS_MAX, Host, Lab, LabConfig, LabError};
use horolog_record::{CampaignResult, Host as HostFacts, rfc3339_now};
use horolog_sys::alarm_clock::AlarmClock;
use horolog_sys::netlink::{Prefix, PrefixError};

use crate::id::{AgentName, CampaignId, JobId};
use crate::job::{BeginError, Crew, Event, Means, NotReady, Tell};
use crate::merge::{Gathered, merge};
use crate::order::{ClockState, News, Order, Outcome};
use crate::place::{Candidate, PlaceFault, Placement, agents_needed, place};
use crate::plan::{Instances, Plan};
use crate::role::RoleKind;

/// Private hosts that can stand for agents: all of a lab but the router.
pub const AGENTS_MAX: usize = HOSTS_MAX - 1;
/// The network that all links of a lab are part of (RFC 5737).
const LINKS: (Ipv4Addr, u8) = (Ipv4Addr::new(192, 0, 2, 0), 24);
/// The same of IPv6 (RFC 3849).
const LINKS_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32);
/// How long a service may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// From here to the instant, so that all processes are made by then: so long, and so much for each.
const MARGIN_NS: i64 = 250_000_000;
const MARGIN_EACH_NS: i64 = 10_000_000;
/// How often it is looked whether the run is to end.
const TICK: Duration = Duration::from_millis(50);

/// Why a campaign cannot be run here.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// More agents are needed than there can be private hosts.
    #[error(
        "the plan needs {0} agents, and one machine has up to {AGENTS_MAX} private hosts for it"
    )]
    Agents(usize),
    /// The plan cannot be placed.
    #[error(transparent)]
    Place(#[from] PlaceFault),
    /// Private hosts cannot be made.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Their addresses do not fit.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The router cannot be made one.
    #[error("cannot have a private host forward packets: {0}")]
    Forwarding(io::Error),
    /// There is no place for files, or no random number.
    #[error("cannot begin a campaign: {0}")]
    System(io::Error),
    /// An order cannot be begun.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// A service is not there, and nothing was measured.
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

impl LocalError {
    /// Whether another plan would help, and not another machine.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Agents(_) | Self::Place(_) | Self::Begin(BeginError::Options { .. }))
    }
}

/// What is run, and how it is recorded.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The binary of horolog.
    pub program: PathBuf,
    /// The command that was given.
    pub command: Vec<String>,
    /// By which addresses the hosts reach one another.
    pub addresses: Addresses,
}

/// The addresses of private hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// Of IPv4.
    V4,
    /// Of IPv6.
    V6,
}

/// What is seen of a run.
pub trait Observer {
    /// Something happened at an agent.
    fn news(&mut self, agent: &AgentName, news: &News);

    /// Whether the run is to end now, with what there is.
    fn is_ending(&self) -> bool;
}

/// A plan placed on private hosts.
#[derive(Clone, Debug)]
pub struct Here {
    /// The plan, without labels.
    pub plan: Plan,
    /// Where its roles go.
    pub placement: Placement,
    /// The names of the hosts, in the order of their numbers from 1 on.
    pub hosts: Vec<AgentName>,
}

/// Places a plan on private hosts. Labels are of machines, and private hosts have none: they say
/// nothing here.
///
/// # Errors
///
/// It needs too many, or an option cannot be as it was filled in.
pub fn place_here(plan: &Plan, addresses: Addresses) -> Result<Here, LocalError> {
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
    let placement = place(&plan, &candidates)?;
    Ok(Here { plan, placement, hosts: candidates.into_iter().map(|one| one.name).collect() })
}

/// The private host of this number as an agent; its address is the one that a lab gives it.
fn candidate(number: usize, addresses: Addresses) -> Option<Candidate> {
    let address: IpAddr = match addresses {
        Addresses::V4 => {
            let (network, _) = LINKS;
            Ipv4Addr::from_bits(network.to_bits() + 4 * (number as u32 - 1) + 2).into()
        }
        Addresses::V6 => {
            let (network, _) = LINKS_V6;
            Ipv6Addr::from_bits(network.to_bits() + ((number as u128) << 64) + 2).into()
        }
    };
    Some(Candidate {
        name: format!("host{number:02}").parse().ok()?,
        labels: BTreeMap::new(),
        addresses: vec![address],
        kinds: RoleKind::ALL.to_vec(),
    })
}

/// Runs a plan. Nothing of it is left behind, however it ends.
///
/// # Errors
///
/// It could not be begun: there is no result at all.
pub fn run(
    plan: &Plan,
    options: &LocalOptions,
    observer: &mut dyn Observer,
) -> Result<CampaignResult, LocalError> {
    let Here { plan, placement, hosts } = place_here(plan, options.addresses)?;
    let started = rfc3339_now();
    let now_ms = (AlarmClock::Realtime.now_ns() / 1_000_000).max(0).unsigned_abs();
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
        // One of them, for it was placed on them.
        let number = hosts.iter().position(|name| *name == order.agent).unwrap_or(0) + 1;
        let host = lab.host(number);
        let means = Means {
            program: options.program.clone(),
            directory: directory.clone(),
            host: Some(host.netns.clone()),
        };
        crews.push(Crew::begin(order, &means, Some(same_clock()), tell(order, &to))?);
    }
    drop(to);
    let mut running = Running { crews, events, outcomes: BTreeMap::new(), observer };
    let interrupted_before = running.start_services()?;
    let at_ns = (!interrupted_before).then(|| running.start(placement.jobs.len()));
    let interrupted = running.follow(&placement) || interrupted_before;
    Ok(merge(Gathered {
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

/// All private hosts have the clock of this machine, by which the instant is named.
fn same_clock() -> ClockState {
    ClockState { offset_ns: 0, error_ns: 0, source: "the same clock".to_owned() }
}

/// A star whose middle forwards between the others.
fn lab(agents: usize, addresses: Addresses) -> Result<Lab, LocalError> {
    let ((v4, length_v4), (v6, length_v6)) = (LINKS, LINKS_V6);
    let links = [Prefix::new(v4.into(), length_v4)?, Prefix::new(v6.into(), length_v6)?];
    let config = LabConfig {
        hosts: agents + 1,
        ipv6: addresses == Addresses::V6,
        client_networks: links.to_vec(),
        ..LabConfig::default()
    };
    let lab = Lab::new(&config)?;
    let switch = match addresses {
        Addresses::V4 => "/proc/sys/net/ipv4/ip_forward",
        Addresses::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
    };
    lab.client().run(|| fs::write(switch, "1"))?.map_err(LocalError::Forwarding)?;
    let mut hosts = (1..).zip(&lab.hosts()[1..]);
    debug_assert!(hosts.all(|(number, host)| is_at(number, host, addresses)));
    Ok(lab)
}

fn is_at(number: usize, host: &Host, addresses: Addresses) -> bool {
    let own = match addresses {
        Addresses::V4 => Some(host.port().ipv4.into()),
        Addresses::V6 => host.port().ipv6.map(IpAddr::V6),
    };
    candidate(number, addresses).is_some_and(|agent| agent.addresses.first() == own.as_ref())
}

type Told = (AgentName, Event);

fn tell(order: &Order, to: &Arc<Mutex<mpsc::Sender<Told>>>) -> Tell {
    let (agent, to) = (order.agent.clone(), Arc::clone(to));
    Arc::new(move |event| {
        let to = to.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody listens any more where the run could not be begun.
        let _ = to.send((agent.clone(), event));
    })
}

struct Running<'a> {
    crews: Vec<Crew>,
    events: Receiver<Told>,
    outcomes: BTreeMap<JobId, Outcome>,
    observer: &'a mut dyn Observer,
}

impl Running<'_> {
    /// Starts all services; says whether the run is to end already.
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

    /// Names the instant and has everything start at it.
    fn start(&mut self, jobs: usize) -> i64 {
        let each = MARGIN_EACH_NS.saturating_mul(jobs as i64);
        let at_ns = AlarmClock::Realtime.now_ns() + MARGIN_NS + each;
        self.crews.iter_mut().for_each(|crew| crew.start(at_ns));
        at_ns
    }

    fn stop(&mut self) {
        self.crews.iter_mut().for_each(Crew::stop);
    }

    /// Waits until all jobs have ended, then for the services, which are told to; says whether the
    /// run was ended before.
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
                self.crews.iter().for_each(Crew::finish);
            }
            if !interrupted && self.observer.is_ending() {
                interrupted = true;
                self.stop();
            }
            match self.events.recv_timeout(TICK) {
                Ok((agent, Event::News(news))) => self.observer.news(&agent, &news),
                Ok((_, Event::Outcome(outcome))) => {
                    self.outcomes.entry(outcome.job.clone()).or_insert(*outcome);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All have told all that they had to tell.
                Err(RecvTimeoutError::Disconnected) => return interrupted,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    #[test]
    fn hosts_stand_for_agents_whatever_their_labels() {
        let text = "schema = \"horolog.plan/1\"\nname = \"p\"\n[[role]]\nname = \"t\"\n\
                    kind = \"host-timer\"\ncount = 3\nlabels = { site = \"a\" }\n";
        let plan = Plan::parse(text, &[]).unwrap();
        let here = place_here(&plan, Addresses::V4).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["192.0.2.2", "192.0.2.6", "192.0.2.10"]);
        let here = place_here(&plan, Addresses::V6).unwrap();
        let at: Vec<_> = here.placement.jobs.iter().map(|job| job.address.to_string()).collect();
        assert_eq!(at, ["2001:db8:0:1::2", "2001:db8:0:2::2", "2001:db8:0:3::2"]);
        let many = text.replace("count = 3", "count = 65");
        let many = Plan::parse(&many, &[]).unwrap();
        let error = place_here(&many, Addresses::V4).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("needs 65 agents"), "{error}");
    }

    #[test]
    fn every_shipped_plan_can_be_placed_here() {
        for plan in shipped::PLANS {
            let read = Plan::parse(plan.text, &[]).unwrap();
            assert_eq!(read.name, plan.name);
            assert!(!read.about.is_empty(), "{}", plan.name);
            place_here(&read, Addresses::V4).unwrap();
        }
    }
}
