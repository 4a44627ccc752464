//! Findings on requests that were not sent or not answered, with their causes if known.

use horolog_record::{Finding, FindingCode, QueryCounts, QueryResult, QueryServerResult, Severity};

use super::{
    QueryRunContext, QueryServerContext, finding, join_servers, other_replies, polled_server,
};

/// Ratio of unanswered requests above which the finding is a warning.
const LOSS_WARNING_RATIO: f64 = 0.01;

/// Unanswered requests of one server, by cause if known.
struct UnansweredRequestCounts<'a> {
    server: &'a QueryServerResult,
    all: u64,
    /// Rejected by the server's host with ICMP "port unreachable".
    port_unreachable: u64,
    /// Rejected with another ICMP error.
    unreachable: u64,
}

impl<'a> UnansweredRequestCounts<'a> {
    /// Returns the unanswered requests of a server that answered others; `None` without any.
    fn from_server(server: &'a QueryServerResult, context: &QueryServerContext) -> Option<Self> {
        let QueryCounts { received, lost, unreachable, .. } = &server.counts;
        let all = lost.saturating_sub(other_replies(&server.counts));
        let closed = context.port_unreachable.min(all);
        let unreachable = unreachable.saturating_sub(context.port_unreachable).min(all - closed);
        (*received > 0 && all > 0).then_some(Self {
            server,
            all,
            port_unreachable: closed,
            unreachable,
        })
    }

    /// Describes the unanswered requests with their causes; `since` is inserted after the numbers.
    fn describe(&self, since: &str) -> String {
        let all = self.all;
        let mut causes = Vec::new();
        if self.port_unreachable > 0 {
            causes.push(format!("port closed: {} of {all}", self.port_unreachable));
        }
        if self.unreachable > 0 {
            causes.push(format!("host or network unreachable: {} of {all}", self.unreachable));
        }
        let causes =
            if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        format!(
            "{}: {all} of {}{since}{causes}",
            polled_server(self.server),
            self.server.counts.sent
        )
    }

    const fn unexplained(&self) -> u64 {
        self.all - self.port_unreachable - self.unreachable
    }
}

/// Returns true if a server answered and then stopped for at least two requests.
const fn has_stopped_replying(server: &QueryServerResult, context: &QueryServerContext) -> bool {
    context.unanswered_at_end > 1 && server.counts.received > 0
}

/// Returns a finding if this host did not send all requests.
pub(super) fn unsent_finding(servers: &[QueryServerResult]) -> Option<Finding> {
    let what = |server: &QueryServerResult| {
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

pub(super) fn outage_finding(
    result: &QueryResult,
    run_context: &QueryRunContext<'_>,
) -> Option<Finding> {
    let each = result.servers.iter().zip(run_context.servers);
    let each = each.filter(|(server, context)| has_stopped_replying(server, context));
    let each: Vec<_> = each
        .filter_map(|(server, context)| UnansweredRequestCounts::from_server(server, context))
        .collect();
    let since = |server: &QueryServerResult| {
        server.samples.last().map_or_else(String::new, |last| {
            let ns = last.sequence.saturating_mul(result.interval_ns);
            format!(", the last answered one at {:.1} s after the start", ns as f64 / 1e9)
        })
    };
    let texts: Vec<_> =
        each.iter().map(|missing| missing.describe(&since(missing.server))).collect();
    let has_ended = each.iter().all(|missing| missing.port_unreachable > 0);
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

pub(super) fn loss_finding(
    result: &QueryResult,
    run_context: &QueryRunContext<'_>,
) -> Option<Finding> {
    let each = result.servers.iter().zip(run_context.servers);
    let each = each.filter(|(server, context)| !has_stopped_replying(server, context));
    let each: Vec<_> = each
        .filter_map(|(server, context)| UnansweredRequestCounts::from_server(server, context))
        .collect();
    let is_much = |missing: &UnansweredRequestCounts<'_>| {
        missing.all as f64 > LOSS_WARNING_RATIO * missing.server.counts.sent as f64
    };
    let severity = if each.iter().any(is_much) { Severity::Warning } else { Severity::Note };
    let texts: Vec<_> = each.iter().map(|missing| missing.describe("")).collect();
    (!texts.is_empty()).then(|| {
        finding(
            FindingCode::PathLoss,
            severity,
            format!("Requests received no reply in time: {}.", texts.join("; ")),
            &unanswered_advice(&each),
        )
    })
}

fn unanswered_advice(each: &[UnansweredRequestCounts<'_>]) -> String {
    let mut advice = Vec::new();
    if each.iter().any(|missing| missing.port_unreachable > 0) {
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
    super::to_sentence(&advice.join("; "))
}
