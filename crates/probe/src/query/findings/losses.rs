//! Findings about requests that were not sent or not answered, with known causes.

use horolog_record::{Finding, FindingCode, QueryCounts, QueryResult, ServerResult, Severity};

use super::{QueryRunContext, QueryServerContext, finding, join_servers, other_replies, requested};

/// Share of requests without a reply above which the finding is a warning.
const NOTED_LOSS: f64 = 0.01;

/// Requests of one server without any reply, by cause where known.
struct Missing<'a> {
    server: &'a ServerResult,
    all: u64,
    /// Rejected by its host with "port unreachable".
    closed: u64,
    /// Rejected with another ICMP error: no route.
    unreachable: u64,
}

impl<'a> Missing<'a> {
    /// Returns the losses of a server that answered other requests.
    fn of(server: &'a ServerResult, context: &QueryServerContext) -> Option<Self> {
        let QueryCounts { received, lost, unreachable, .. } = &server.counts;
        let all = lost.saturating_sub(other_replies(&server.counts));
        let closed = context.closed.min(all);
        let unreachable = unreachable.saturating_sub(context.closed).min(all - closed);
        (*received > 0 && all > 0).then_some(Self { server, all, closed, unreachable })
    }

    /// Returns the count of missing replies and the total, with `since` and the causes.
    fn text(&self, since: &str) -> String {
        let all = self.all;
        let mut causes = Vec::new();
        if self.closed > 0 {
            causes.push(format!("port closed: {} of {all}", self.closed));
        }
        if self.unreachable > 0 {
            causes.push(format!("host or network unreachable: {} of {all}", self.unreachable));
        }
        let causes =
            if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        format!("{}: {all} of {}{since}{causes}", requested(self.server), self.server.counts.sent)
    }

    const fn unexplained(&self) -> u64 {
        self.all - self.closed - self.unreachable
    }
}

/// Returns true if a server answered at first and then stopped; a single loss does not count.
const fn has_ceased(server: &ServerResult, context: &QueryServerContext) -> bool {
    context.unanswered > 1 && server.counts.received > 0
}

/// Reports requests that this host did not send.
pub(super) fn unsent(servers: &[ServerResult]) -> Option<Finding> {
    let what = |server: &ServerResult| {
        let QueryCounts { sent, refused, .. } = server.counts;
        (refused > 0).then(|| format!("{refused} of {}", sent.saturating_add(refused)))
    };
    Some(finding(
        FindingCode::GeneratorBehind,
        Severity::Warning,
        format!("Requests could not be sent: {}.", join_servers(servers, what)?),
        "A firewall, a route or the link of this host refuses them: see 'nft list ruleset', 'ip \
         route get ADDRESS' and 'ip -s link'.",
    ))
}

pub(super) fn ceased(result: &QueryResult, about: &QueryRunContext<'_>) -> Option<Finding> {
    let each = result.servers.iter().zip(about.servers);
    let each = each.filter(|(server, context)| has_ceased(server, context));
    let each: Vec<_> = each.filter_map(|(server, context)| Missing::of(server, context)).collect();
    let since = |server: &ServerResult| {
        server.samples.last().map_or_else(String::new, |last| {
            let ns = last.sequence.saturating_mul(result.interval_ns);
            format!(", the last answered one at {:.1} s after the start", ns as f64 / 1e9)
        })
    };
    let texts: Vec<_> = each.iter().map(|missing| missing.text(&since(missing.server))).collect();
    let has_ended = each.iter().all(|missing| missing.closed > 0);
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::ServerOutage,
            Severity::Warning,
            format!("Replies stopped; requests without a reply: {}.", texts.join("; ")),
            if has_ended {
                "The server ended while its host kept running; results cover the time before."
            } else {
                "The server ended or the path to it failed; results cover the time before."
            },
        )
    })
}

pub(super) fn unanswered(result: &QueryResult, about: &QueryRunContext<'_>) -> Option<Finding> {
    let each = result.servers.iter().zip(about.servers);
    let each = each.filter(|(server, context)| !has_ceased(server, context));
    let each: Vec<_> = each.filter_map(|(server, context)| Missing::of(server, context)).collect();
    let is_much =
        |missing: &Missing<'_>| missing.all as f64 > NOTED_LOSS * missing.server.counts.sent as f64;
    let severity = if each.iter().any(is_much) { Severity::Warning } else { Severity::Note };
    let texts: Vec<_> = each.iter().map(|missing| missing.text("")).collect();
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::PathLoss,
            severity,
            format!("Requests received no reply in time: {}.", texts.join("; ")),
            &unanswered_advice(&each),
        )
    })
}

fn unanswered_advice(each: &[Missing<'_>]) -> String {
    let mut advice = Vec::new();
    if each.iter().any(|missing| missing.closed > 0) {
        advice.push("while its port was closed, the server was down or restarting");
    }
    if each.iter().any(|missing| missing.unreachable > 0) {
        advice.push("while it was unreachable, a route, a link or the host was down");
    }
    if each.iter().any(|missing| missing.unexplained() > 0) {
        advice
            .push("requests or replies were lost on the path, or the server limits its reply rate");
    }
    advice.push("results cover the other requests");
    super::sentence(&advice.join("; "))
}
