//! What is commonly said of clocks and delays on Linux, each held against what was measured here.
//! Pure: evidence in, verdicts with their figures out.

mod of_functions;
mod of_time;

use horolog_record::{
    Claim, ClaimVerdict, DelayKind, DelaySlack, Distribution, HostDelayResult, SchedulingPolicy,
};

use super::evidence::Evidence;
use crate::host::figures::time;

/// All claims, in the order in which they are usually told.
pub(super) fn all(result: &HostDelayResult, evidence: &Evidence) -> Vec<Claim> {
    let seen = Seen { result, evidence };
    let mut claims = of_time::all(&seen);
    claims.extend(of_functions::all(&seen));
    claims.extend(elsewhere());
    claims
}

/// Everything that a claim can be judged by.
struct Seen<'a> {
    result: &'a HostDelayResult,
    evidence: &'a Evidence,
}

impl Seen<'_> {
    /// What a function overshoots by at a delay, under ordinary scheduling and the default slack.
    fn overshoot(&self, kind: DelayKind, requested_ns: u64) -> Option<&Distribution> {
        self.under(kind, requested_ns, DelaySlack::Default)
    }

    fn under(
        &self,
        kind: DelayKind,
        requested_ns: u64,
        slack: DelaySlack,
    ) -> Option<&Distribution> {
        let setting = self
            .result
            .settings
            .iter()
            .position(|one| one.policy == SchedulingPolicy::Other && one.slack == slack)?;
        let cell = self.result.cells.iter().find(|cell| {
            (cell.function, cell.setting, cell.requested_ns) == (kind, setting, requested_ns)
        });
        cell?.overshoot_ns.as_ref()
    }
}

/// A verdict with its figure; `None` is what was not measured.
fn claim(id: &str, says: &str, judged: Option<(bool, String)>) -> Claim {
    let (verdict, figure) = match judged {
        Some((true, figure)) => (ClaimVerdict::Holds, figure),
        Some((false, figure)) => (ClaimVerdict::Fails, figure),
        None => (ClaimVerdict::NotMeasured, "not measured in this run".to_owned()),
    };
    Claim { id: id.to_owned(), says: says.to_owned(), verdict, figure }
}

/// What other commands show.
fn elsewhere() -> [Claim; 6] {
    let of = |(id, says, command): (&str, &str, &str)| Claim {
        id: id.to_owned(),
        says: says.to_owned(),
        verdict: ClaimVerdict::Elsewhere,
        figure: format!("see '{command}'"),
    };
    [
        (
            "delayed-ack-40-ms",
            "Small requests stall for about 40 ms: a delayed acknowledgement waits for Nagle's \
             algorithm or for the congestion window.",
            "horolog path stall",
        ),
        (
            "delayed-ack-minimum",
            "The shortest delay of an acknowledgement is HZ/25 ticks, 40 ms, and \
             net.ipv4.tcp_delack_min sets it where a kernel has that.",
            "horolog path stall",
        ),
        (
            "quickack-once",
            "TCP_QUICKACK does not stay: it has to be set again after each receive.",
            "horolog path stall",
        ),
        (
            "nodelay-and-cork",
            "TCP_NODELAY sends small segments at once, TCP_CORK holds them back until it is taken \
             off or the connection is closed.",
            "horolog path stall",
        ),
        ("latency-by-size", "Latency rises with the length of a message.", "horolog path tcp"),
        (
            "sleep-before-start",
            "A service that needs another is started later by 'sleep 180s', or by 'at now+2min'.",
            "horolog after' and 'horolog at",
        ),
    ]
    .map(of)
}

#[cfg(test)]
mod tests;
