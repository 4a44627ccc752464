//! Policy of an agent: which orders it accepts. The policy is read from a file; the default allows
//! measurements within private networks. An order is allowed or refused as a whole, before any job
//! is started, and is never changed.

mod file;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use horolog_wire::prefix::Prefix;

use crate::file_error::{FileContentError, count_text};
use crate::id::JobId;
use crate::order::{Job, Order};
use crate::role::{ApplicablePolicyBound, ParsedOptionValue, RoleKind, RoleOptionSpec};

/// Name and version of the schema.
pub const POLICY_SCHEMA: &str = "horolog.policy/1";

/// Networks that are not routed on the Internet: loopback, private (RFC 1918, RFC 4193), shared
/// (RFC 6598), link-local (RFC 3927, RFC 4291) and documentation networks (RFC 5737, RFC 3849).
const PRIVATE_NETWORKS: [(IpAddr, u8); 13] = [
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

/// Default limit of the rate of all jobs of an order together, in packets per second.
const DEFAULT_RATE: f64 = 100_000.0;
/// Tolerance for rounding errors in the sum of the jobs' shares of the rate limit.
const SHARE_ERROR: f64 = 1e-9;
/// Default limit of the duration of each job.
const DEFAULT_TIME: Duration = Duration::from_mins(10);
/// Default limit of the number of jobs in an order; suffices for a plan with all pairs of 64 nodes.
const DEFAULT_JOBS: u32 = 64;

/// Policy on what an agent may run.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentPolicy {
    jobs_max: u32,
    default_bounds: RoleBounds,
    kinds: BTreeMap<RoleKind, RoleBounds>,
}

/// Bounds for the jobs of one kind of roles.
#[derive(Clone, PartialEq, Debug)]
struct RoleBounds {
    targets: Vec<Prefix>,
    listens: Vec<Prefix>,
    rate_max: f64,
    time_max: Duration,
}

/// Reason why an order is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("job {job}: {reason}")]
pub struct OrderRefusal {
    /// Job.
    pub job: JobId,
    /// Reason, and the policy key that states it.
    pub reason: String,
}

impl Default for AgentPolicy {
    /// Allows all kinds of roles except those that can saturate a path (`path-tcp`) or a CPU with a
    /// real-time priority (`cycle-lead`, `cycle-join`), within private networks, at up to 100,000
    /// requests or packets per second, for up to 10 minutes, with up to 64 jobs in an order.
    fn default() -> Self {
        let networks = PRIVATE_NETWORKS.iter().filter_map(|(address, length)| {
            let prefix = Prefix::new(*address, *length);
            prefix.ok()
        });
        let private: Vec<_> = networks.collect();
        let bounds = RoleBounds {
            targets: private.clone(),
            listens: private,
            rate_max: DEFAULT_RATE,
            time_max: DEFAULT_TIME,
        };
        let excluded = [RoleKind::PathTcp, RoleKind::CycleLead, RoleKind::CycleJoin];
        let all = RoleKind::ALL.into_iter().filter(|kind| !excluded.contains(kind));
        let kinds = all.map(|kind| (kind, bounds.clone())).collect();
        Self { jobs_max: DEFAULT_JOBS, default_bounds: bounds, kinds }
    }
}

impl AgentPolicy {
    /// Returns a policy that allows all orders, for isolated lab hosts.
    #[must_use]
    pub fn allow_all() -> Self {
        let any = [(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)];
        let any = any.into_iter().filter_map(|(address, length)| Prefix::new(address, length).ok());
        let any: Vec<_> = any.collect();
        let bounds = RoleBounds {
            targets: any.clone(),
            listens: any,
            rate_max: f64::INFINITY,
            time_max: Duration::MAX,
        };
        let kinds = RoleKind::ALL.into_iter().map(|kind| (kind, bounds.clone())).collect();
        Self { jobs_max: u32::MAX, default_bounds: bounds, kinds }
    }

    /// Parses a policy file. Missing values are as in the default policy.
    ///
    /// # Errors
    ///
    /// The first error, with its line.
    pub fn parse(text: &str) -> Result<Self, FileContentError> {
        file::parse(text)
    }

    /// Formats the policy as a file with all effective values.
    #[must_use]
    pub fn to_toml(&self) -> String {
        file::to_toml(self)
    }

    /// Returns the kinds of roles that are allowed.
    #[must_use]
    pub fn kinds(&self) -> Vec<RoleKind> {
        self.kinds.keys().copied().collect()
    }

    /// Checks that the whole order is allowed.
    ///
    /// # Errors
    ///
    /// The first job that is not allowed, and the reason.
    pub fn check(&self, order: &Order) -> Result<(), OrderRefusal> {
        let jobs = &order.jobs;
        if let Some(job) = jobs.get(self.jobs_max as usize) {
            let reason = format!(
                "{} exceed the policy's max-jobs = {}",
                count_text(jobs.len(), "job"),
                self.jobs_max
            );
            return Err(OrderRefusal { job: job.id.clone(), reason });
        }
        let deadline = Duration::from_nanos(order.deadline_ns);
        let judge = |job: &Job| {
            self.check_job(job, deadline)
                .map_err(|reason| OrderRefusal { job: job.id.clone(), reason })
        };
        let mut share = 0.0;
        jobs.iter().try_for_each(|job| {
            share += judge(job)?;
            if share <= 1.0 + SHARE_ERROR {
                return Ok(());
            }
            let reason = "with it, the total of all jobs of this agent exceeds the policy's \
                          max-rate; lower the rates, or the number of jobs for one agent"
                .to_owned();
            Err(OrderRefusal { job: job.id.clone(), reason })
        })
    }

    /// Checks one job. Returns the ratio of its rate to the allowed rate, or the reason for a
    /// refusal.
    fn check_job(&self, job: &Job, deadline: Duration) -> Result<f64, String> {
        let kind = job.kind;
        let Some(bounds) = self.kinds.get(&kind) else {
            return Err(format!("the policy does not allow {kind}; add it to its kinds"));
        };
        if job.service != kind.is_service() {
            return Err(format!("the order contradicts whether {kind} is a service"));
        }
        let read = kind.parse_options(&job.options).map_err(|fault| fault.to_string())?;
        bounds.check_time(deadline, "the plan's duration-max")?;
        for (spec, values) in &read {
            for value in values {
                bounds.check_value(spec.name, spec.value_type.bound(), value)?;
            }
        }
        let (option, rate) = job_rate(kind, &read);
        if rate > bounds.rate_max {
            return Err(format!(
                "{option}: {rate} per second exceed the policy's max-rate = {}",
                bounds.rate_max
            ));
        }
        Ok(rate / bounds.rate_max)
    }
}

impl RoleBounds {
    fn check_value(
        &self,
        option: &str,
        bound: Option<ApplicablePolicyBound>,
        value: &ParsedOptionValue,
    ) -> Result<(), String> {
        match (value, bound) {
            (ParsedOptionValue::Address(address, _), Some(ApplicablePolicyBound::Listens)) => {
                check_within(&self.listens, Prefix::host(*address), option, "listen")
            }
            (ParsedOptionValue::Address(address, _), _) => {
                check_within(&self.targets, Prefix::host(*address), option, "targets")
            }
            (ParsedOptionValue::Network(network), _) => {
                check_within(&self.targets, *network, option, "targets")
            }
            (ParsedOptionValue::Time(time), _) => self.check_time(*time, option),
            _ => Ok(()),
        }
    }

    fn check_time(&self, time: Duration, what: &str) -> Result<(), String> {
        if time <= self.time_max {
            return Ok(());
        }
        let (time, max) = (time.as_secs_f64(), self.time_max.as_secs_f64());
        Err(format!("{what}: {time} s exceed the policy's max-time = {max} s"))
    }
}

/// Bits of an IPv6 address before the IPv4 address that it maps (RFC 4291, section 2.5.5.2).
const MAPPED_LENGTH: u8 = 96;

/// Converts an IPv4-mapped IPv6 network to the IPv4 network.
fn unmap_ipv4(network: Prefix) -> Prefix {
    let (address, length) = (network.address().to_canonical(), network.length());
    if address.is_ipv6() || network.address().is_ipv4() {
        return network;
    }
    let length = length.checked_sub(MAPPED_LENGTH);
    // A network with a shorter prefix includes other addresses too, and is checked as IPv6.
    length.and_then(|length| Prefix::new(address, length).ok()).unwrap_or(network)
}

/// Checks that a network lies within one of the networks in `list`.
fn check_within(list: &[Prefix], network: Prefix, option: &str, key: &str) -> Result<(), String> {
    let network = unmap_ipv4(network);
    let holds = |one: &Prefix| one.contains(network.address()) && one.length() <= network.length();
    if list.iter().any(holds) {
        return Ok(());
    }
    let what = if network == Prefix::host(network.address()) {
        network.address().to_string()
    } else {
        network.to_string()
    };
    Err(format!("{option}: {what} is outside the policy's '{key}'"))
}

#[cfg(test)]
mod tests;

/// Default interval of the exchanges of `horolog query`; public servers are polled less often.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
/// Assumed rate of a flow that sends each request after the previous reply, per second: the round
/// trip takes at least 10 µs.
const FLOW_RATE: f64 = 100_000.0;

/// Returns the name of the option that limits a job's rate, and the rate per second; 0 for jobs
/// that only reply or whose traffic the policy does not limit by rate.
pub(super) fn job_rate(
    kind: RoleKind,
    read: &[(&RoleOptionSpec, Vec<ParsedOptionValue>)],
) -> (&'static str, f64) {
    let values = |name: &str| {
        let found = read.iter().find(|(spec, _)| spec.name == name);
        found.map_or(&[][..], |(_, values)| values.as_slice())
    };
    let rate = values("rate").iter().find_map(|value| match value {
        ParsedOptionValue::Rate(rate) => Some(*rate),
        _ => None,
    });
    match kind {
        RoleKind::Query => {
            let interval = match values("interval") {
                [ParsedOptionValue::Time(interval)] => *interval,
                _ => QUERY_INTERVAL,
            };
            ("interval", values("target").len() as f64 / interval.as_secs_f64())
        }
        RoleKind::PathUdp => {
            let flows = match values("flows") {
                [ParsedOptionValue::Number(flows)] => *flows as f64,
                _ => 1.0,
            };
            // A rate applies to all flows together.
            rate.map_or(("flows without a rate", flows * FLOW_RATE), |rate| ("rate", rate))
        }
        // A relay sends each packet to every child, and replies to what it receives.
        RoleKind::RelayRun => ("rate", rate.unwrap_or(0.0) * values("child").len().max(1) as f64),
        RoleKind::LoadNtp | RoleKind::LoadPtpDelay => ("rate", rate.unwrap_or(0.0)),
        RoleKind::Serve
        | RoleKind::PathServe
        | RoleKind::PathTcp
        | RoleKind::HostTimer
        | RoleKind::CycleLead
        | RoleKind::CycleJoin => ("rate", 0.0),
    }
}
