//! Findings about single clients: clients without a reply, and compliant loss.

use horolog_record::{CompliantClients, Finding, FindingCode, Severity};

use super::{TrialWithCounts, worst_trial_finding};

/// Smallest share of clients without a reply that is reported.
const UNANSWERED_MIN: f64 = 0.001;

/// Smallest loss ratio of compliant clients that is reported; less may be chance.
const COMPLIANT_LOSS_MIN: f64 = 0.001;

/// Reports clients that received no reply while others did.
pub(super) fn unanswered_clients(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let unanswered = |observed: &TrialWithCounts<'_>| {
        let Some(fairness) = &observed.trial.fairness else { return 0.0 };
        let share = fairness.unanswered as f64 / fairness.clients.max(1) as f64;
        if fairness.share_max > 0.0 && share >= UNANSWERED_MIN { share } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        unanswered,
        (FindingCode::UnfairReplies, Severity::Note),
        |observed| {
            let share = unanswered(observed) * 100.0;
            let best = observed.trial.fairness.as_ref().map_or(0.0, |one| one.share_max) * 100.0;
            format!(
                "{share:.1}% of the clients received no valid reply; the best client received \
                 {best:.1}% of its replies"
            )
        },
        "per-client rate limits or uneven distribution over server threads are likely causes; with \
         few requests for each client it may be chance",
    )
}

/// Reports compliant loss.
pub(super) fn compliant_loss(trials: &[TrialWithCounts<'_>]) -> Option<Finding> {
    let loss_ratio = |observed: &TrialWithCounts<'_>| {
        let ratio =
            observed.trial.compliant_clients.as_ref().map_or(0.0, CompliantClients::loss_ratio);
        if ratio >= COMPLIANT_LOSS_MIN { ratio } else { 0.0 }
    };
    worst_trial_finding(
        trials,
        loss_ratio,
        (FindingCode::CompliantClientLoss, Severity::Warning),
        |observed| {
            let (lost, sent, clients, active) =
                observed.trial.compliant_clients.as_ref().map_or((0, 0, 0, 0), |one| {
                    (one.lost, one.sent, one.clients_affected, one.clients_active)
                });
            let others = observed.trial.loss_ratio() * 100.0;
            format!(
                "compliant clients lost {lost} of {sent} requests, {clients} of {active} clients \
                 at least one, while the load lost {others:.1}%"
            )
        },
        "the server's rate limiting, or the lack of it, affects compliant clients; limit single \
         addresses instead of the total, and reserve capacity for new clients",
    )
}
