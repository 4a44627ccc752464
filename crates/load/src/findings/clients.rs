//! Findings about single clients: some without any reply, and compliant loss by a server's limits.

use horolog_record::{CompliantClients, Finding, FindingCode, Severity};

use super::{ObservedTrial, about_worst};

/// Share of clients without a reply above which a finding reports them.
const UNANSWERED_MIN: f64 = 0.001;

/// Compliant loss that may be chance.
const COMPLIANT_LOSS_MIN: f64 = 0.001;

/// Reports clients that received no reply while others did.
pub(super) fn uneven(trials: &[ObservedTrial<'_>]) -> Option<Finding> {
    let unanswered = |observed: &ObservedTrial<'_>| {
        let Some(fairness) = &observed.trial.fairness else { return 0.0 };
        let share = fairness.unanswered as f64 / fairness.clients.max(1) as f64;
        if fairness.share_max > 0.0 && share >= UNANSWERED_MIN { share } else { 0.0 }
    };
    about_worst(
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

/// Reports compliant clients that received no reply.
pub(super) fn compliant_loss(trials: &[ObservedTrial<'_>]) -> Option<Finding> {
    let loss_ratio = |observed: &ObservedTrial<'_>| {
        let ratio =
            observed.trial.compliant_clients.as_ref().map_or(0.0, CompliantClients::loss_ratio);
        if ratio >= COMPLIANT_LOSS_MIN { ratio } else { 0.0 }
    };
    about_worst(
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
