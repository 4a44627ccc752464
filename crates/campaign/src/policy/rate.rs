//! Upper limit of the packets or requests per second that a job sends, derived from its options.

use std::time::Duration;

use crate::role::{OptionSpec, ParsedValue, RoleKind};

/// Default interval of the exchanges of `horolog query`; public servers are polled less often.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
/// Assumed rate of a flow that sends each request after the previous reply, per second: the round
/// trip takes at least 10 µs.
const FLOW_RATE: f64 = 100_000.0;

/// Returns the name of the option that limits a job's rate, and the rate per second; 0 for jobs
/// that only reply or whose traffic the policy does not limit by rate.
pub(super) fn job_rate(
    kind: RoleKind,
    read: &[(&OptionSpec, Vec<ParsedValue>)],
) -> (&'static str, f64) {
    let values = |name: &str| {
        let found = read.iter().find(|(spec, _)| spec.name == name);
        found.map_or(&[][..], |(_, values)| values.as_slice())
    };
    let rate = values("rate").iter().find_map(|value| match value {
        ParsedValue::Rate(rate) => Some(*rate),
        _ => None,
    });
    match kind {
        RoleKind::Query => {
            let interval = match values("interval") {
                [ParsedValue::Time(interval)] => *interval,
                _ => QUERY_INTERVAL,
            };
            ("interval", values("target").len() as f64 / interval.as_secs_f64())
        }
        RoleKind::PathUdp => {
            let flows = match values("flows") {
                [ParsedValue::Number(flows)] => *flows as f64,
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
