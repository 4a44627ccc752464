//! Findings about all trials of a run together, made from sums over them.

use std::collections::BTreeSet;

use horolog_record::{Finding, FindingCode, InvalidReplyReason, RequestMode, Severity, Trial};

use super::trials::interleaved_part;
use super::{RunConditions, TrialWithCounts, finding};

/// Sums over the trials of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialSums {
    /// Received replies of each trial.
    pub(super) received: Vec<u64>,
    sent: u64,
    /// Received replies to requests in interleaved mode; all replies if the run is not a mix.
    pub(super) interleaved_received: u64,
    /// Largest number of clients of a trial.
    clients_max: u64,
    /// True if any message came that a request may have caused.
    is_answered: bool,
    is_port_closed: bool,
    /// Replies of a master that supports NetSync Monitor, and of one that ignores it.
    monitor_replies: u64,
    plain_replies: u64,
    /// Reasons for which replies were invalid.
    invalid_reasons: BTreeSet<InvalidReplyReason>,
}

impl TrialSums {
    pub(super) fn add(&mut self, observed: &TrialWithCounts<'_>) {
        let Trial { received, late, responses, invalid, .. } = observed.trial;
        self.received.push(*received);
        self.sent += observed.trial.sent;
        self.interleaved_received += interleaved_part(observed.trial).received;
        self.clients_max = self.clients_max.max(observed.trial.clients);
        // A NetSync Monitor request with only part of its answers does not count as received.
        let parts = responses.delay + responses.sync_follow_up + responses.granted_messages;
        self.is_answered |= received + late + observed.trial.invalid_total() + parts > 0;
        self.is_port_closed |= observed.port_closed > 0;
        self.monitor_replies += received + late + responses.sync_follow_up;
        let without_monitor = invalid.get(&InvalidReplyReason::Monitor).copied().unwrap_or(0);
        self.plain_replies += responses.delay + without_monitor;
        let reasons = invalid.iter().filter(|(_, count)| **count > 0).map(|(reason, _)| *reason);
        self.invalid_reasons.extend(reasons);
    }
}

pub(super) fn no_replies(sums: &TrialSums, conditions: &RunConditions) -> Option<Finding> {
    if sums.sent == 0 || sums.is_answered {
        return None;
    }
    let message = format!("none of {} requests received a reply", sums.sent);
    let advice = match &conditions.return_route {
        _ if sums.is_port_closed => {
            "the target's port is closed; check that the server runs and that the port is right"
                .to_owned()
        }
        Some(command) => format!(
            "the server needs a route back to the simulated clients: run '{command}' there, and \
             check that it serves that network"
        ),
        None => {
            "check that the server runs, that it serves this address, and that no firewall drops \
             packets"
                .into()
        }
    };
    let advice = match conditions.explaining_behaviour().no_replies_advice() {
        None => advice,
        Some(more) => format!("{advice}; {more}"),
    };
    Some(finding(FindingCode::NoReplies, Severity::Error, message, &advice))
}

/// Reports a master that replies to requests with NetSync Monitor as if they had none.
pub(super) fn monitor_unsupported(sums: &TrialSums, conditions: &RunConditions) -> Option<Finding> {
    if conditions.explaining_behaviour().mode() != RequestMode::PtpNsm {
        return None;
    }
    let plain = sums.plain_replies;
    if sums.monitor_replies > 0 || plain == 0 {
        return None;
    }
    let message = format!(
        "{plain} requests were answered with a Delay_Resp without NetSync Monitor, none with a Sync"
    );
    let advice = "NetSync Monitor is disabled on the master, or for these clients: for horolog, \
                  run serve with --ptp-netsync-monitor, and add other client networks to \
                  --ptp-unicast-allow";
    Some(finding(FindingCode::NoReplies, Severity::Error, message, advice))
}

/// Reports a run with fewer than two requests for each client in interleaved mode.
pub(super) fn few_interleaved_requests(
    sums: &TrialSums,
    conditions: &RunConditions,
) -> Option<Finding> {
    let TrialSums { sent, clients_max: clients, .. } = *sums;
    if !conditions.has_mode(RequestMode::NtpInterleaved)
        || sent == 0
        || sent >= clients.saturating_mul(2)
    {
        return None;
    }
    let message = format!(
        "{sent} requests of {clients} clients are too few for interleaved mode, which each client \
         enters after its first reply"
    );
    let advice = "use fewer clients, or a longer trial duration";
    Some(finding(FindingCode::InterleavedNotUsed, Severity::Note, message, advice))
}

/// Returns the advice on kiss-o'-death replies, each kind with its effect on a client (RFC 5905,
/// section 7.4).
pub(super) fn kiss_of_death_advice(sums: &TrialSums) -> String {
    let has_invalid = |reason| sums.invalid_reasons.contains(&reason);
    let mut advice = vec!["they count as lost"];
    if has_invalid(InvalidReplyReason::KissRate) {
        advice.push("RATE: the server limits client rates; use more clients or a lower rate");
    }
    if has_invalid(InvalidReplyReason::KissDeny) || has_invalid(InvalidReplyReason::KissRstr) {
        advice.push(
            "DENY and RSTR: the server's configuration refuses these clients; allow their network",
        );
    }
    if has_invalid(InvalidReplyReason::KissNtsn) {
        advice.push("NTSN: the server cannot decrypt the cookies; run NTS-KE again");
    }
    if has_invalid(InvalidReplyReason::KissOther) {
        advice.push(
            "other codes: service refused for a reason RFC 5905 does not define; see the server's \
             log",
        );
    }
    advice.join("; ")
}
