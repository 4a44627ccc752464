//! What an agent may run, as its owner says in a file or, without one, modestly: measurements
//! within private networks. An order is judged as a whole before any of it is begun. A policy
//! allows; it never changes what was ordered.

mod file;
mod rate;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use horolog_sys::netlink::Prefix;

use crate::fault::{Fault, counted};
use crate::id::JobId;
use crate::order::{Job, Order};
use crate::role::{Bound, Given, RoleKind};

/// The schema's name and version.
pub const POLICY_SCHEMA: &str = "horolog.policy/1";

/// Networks that are nobody's on the Internet, or the host's own: RFC 1918, RFC 6598, RFC 3927, RFC
/// 5737, RFC 4193, RFC 4291, RFC 3849 and loopback.
const PRIVATE: [(IpAddr, u8); 13] = [
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24),
    (IpAddr::V4(Ipv4Addr::new(198, 51, 100, 0)), 24),
    (IpAddr::V4(Ipv4Addr::new(203, 0, 113, 0)), 24),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), 32),
];

/// The rate of all jobs of an order together, unless a file says otherwise.
const RATE: f64 = 100_000.0;
/// The most that sums of shares of a rate are off by because of how they are counted.
const SHARE_ERROR: f64 = 1e-9;
/// Each job's time.
const TIME: Duration = Duration::from_mins(10);
/// Jobs at a time: those of all pairs of 64 nodes on one of them.
const JOBS: u32 = 64;

/// What an agent may run.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    jobs: u32,
    usual: Bounds,
    kinds: BTreeMap<RoleKind, Bounds>,
}

/// The bounds of a kind of roles.
#[derive(Clone, PartialEq, Debug)]
struct Bounds {
    targets: Vec<Prefix>,
    listens: Vec<Prefix>,
    rate: f64,
    time: Duration,
}

/// Why an order is not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("job {job}: {reason}")]
pub struct Refusal {
    /// The job.
    pub job: JobId,
    /// Why, and where that is said.
    pub reason: String,
}

impl Default for Policy {
    /// Everything but what fills a path (`path-tcp`) or a processor with a real-time priority
    /// (`cycle-lead`, `cycle-join`), within private networks, at up to 100,000 requests or packets
    /// in a second, for up to 10 minutes, 64 jobs at a time.
    fn default() -> Self {
        let networks = PRIVATE.iter().filter_map(|(address, length)| {
            let prefix = Prefix::new(*address, *length);
            prefix.ok()
        });
        let private: Vec<_> = networks.collect();
        let usual = Bounds { targets: private.clone(), listens: private, rate: RATE, time: TIME };
        let fills = [RoleKind::PathTcp, RoleKind::CycleLead, RoleKind::CycleJoin];
        let all = RoleKind::ALL.into_iter().filter(|kind| !fills.contains(kind));
        let kinds = all.map(|kind| (kind, usual.clone())).collect();
        Self { jobs: JOBS, usual, kinds }
    }
}

impl Policy {
    /// One for private hosts that are made for the run, where there is nobody to be protected.
    #[must_use]
    pub fn everything() -> Self {
        let any = [(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];
        let any = any.into_iter().filter_map(|(address, length)| Prefix::new(address, length).ok());
        let any: Vec<_> = any.collect();
        let usual =
            Bounds { targets: any.clone(), listens: any, rate: f64::INFINITY, time: Duration::MAX };
        let kinds = RoleKind::ALL.into_iter().map(|kind| (kind, usual.clone())).collect();
        Self { jobs: u32::MAX, usual, kinds }
    }

    /// Reads a policy's file. What it does not say is as in the default policy.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        file::parse(text)
    }

    /// The same as a file: what is in force, with nothing left out.
    #[must_use]
    pub fn to_toml(&self) -> String {
        file::to_toml(self)
    }

    /// The kinds of roles that are allowed.
    #[must_use]
    pub fn kinds(&self) -> Vec<RoleKind> {
        self.kinds.keys().copied().collect()
    }

    /// Whether an order may be carried out, all of it.
    ///
    /// # Errors
    ///
    /// The first job that may not, and why.
    pub fn judge(&self, order: &Order) -> Result<(), Refusal> {
        let jobs = &order.jobs;
        if let Some(job) = jobs.get(self.jobs as usize) {
            let reason = format!(
                "{} are too many; the policy has max-jobs = {}",
                counted(jobs.len(), "job"),
                self.jobs
            );
            return Err(Refusal { job: job.id.clone(), reason });
        }
        let deadline = Duration::from_nanos(order.deadline_ns);
        let judge = |job: &Job| {
            self.judge_job(job, deadline).map_err(|reason| Refusal { job: job.id.clone(), reason })
        };
        let mut share = 0.0;
        jobs.iter().try_for_each(|job| {
            share += judge(job)?;
            if share <= 1.0 + SHARE_ERROR {
                return Ok(());
            }
            let reason = "with it, all jobs of this agent together are more than the policy's \
                          max-rate; order less of each, or fewer for one agent"
                .to_owned();
            Err(Refusal { job: job.id.clone(), reason })
        })
    }

    /// Judges one job by itself; gives its share of the rate that is allowed.
    fn judge_job(&self, job: &Job, deadline: Duration) -> Result<f64, String> {
        let kind = job.kind;
        let Some(bounds) = self.kinds.get(&kind) else {
            return Err(format!("the policy does not allow {kind}; its kinds do not list it"));
        };
        if job.service != kind.is_service() {
            return Err(format!("{kind} is ordered as what it is not: a service, or none"));
        }
        let read = kind.read(&job.options).map_err(|fault| fault.to_string())?;
        bounds.time(deadline, "the plan's duration-max")?;
        for (spec, values) in &read {
            for given in values {
                bounds.admit(spec.name, spec.value.bound(), given)?;
            }
        }
        let (option, rate) = rate::of(kind, &read);
        if rate > bounds.rate {
            return Err(format!(
                "{option}: {rate} in a second are more than the policy's max-rate = {}",
                bounds.rate
            ));
        }
        Ok(rate / bounds.rate)
    }
}

impl Bounds {
    fn admit(&self, option: &str, bound: Option<Bound>, given: &Given) -> Result<(), String> {
        match (given, bound) {
            (Given::Address(address, _), Some(Bound::Listens)) => {
                within(&self.listens, Prefix::host(*address), option, "listen")
            }
            (Given::Address(address, _), _) => {
                within(&self.targets, Prefix::host(*address), option, "targets")
            }
            (Given::Network(network), _) => within(&self.targets, *network, option, "targets"),
            (Given::Time(time), _) => self.time(*time, option),
            _ => Ok(()),
        }
    }

    fn time(&self, time: Duration, what: &str) -> Result<(), String> {
        if time <= self.time {
            return Ok(());
        }
        let (time, max) = (time.as_secs_f64(), self.time.as_secs_f64());
        Err(format!("{what}: {time} s are longer than the policy's max-time = {max} s"))
    }
}

/// Bits of an IPv6 address before the IPv4 address that it maps (RFC 4291, section 2.5.5.2).
const MAPPED_LENGTH: u8 = 96;

/// An IPv4 network in the clothes of IPv6 is where the IPv4 network is.
fn plain(network: Prefix) -> Prefix {
    let (address, length) = (network.address().to_canonical(), network.length());
    if address.is_ipv6() || network.address().is_ipv4() {
        return network;
    }
    let length = length.checked_sub(MAPPED_LENGTH);
    // A wider one has more than mapped addresses in it, and is judged as what it is.
    length.and_then(|length| Prefix::new(address, length).ok()).unwrap_or(network)
}

/// Whether a network lies within one of a list.
fn within(list: &[Prefix], network: Prefix, option: &str, key: &str) -> Result<(), String> {
    let network = plain(network);
    let holds = |one: &Prefix| one.contains(network.address()) && one.length() <= network.length();
    if list.iter().any(holds) {
        return Ok(());
    }
    let what = if network == Prefix::host(network.address()) {
        network.address().to_string()
    } else {
        network.to_string()
    };
    Err(format!("{option}: {what} is in none of the policy's '{key}'"))
}

#[cfg(test)]
mod tests;
